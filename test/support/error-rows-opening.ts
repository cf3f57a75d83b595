// Errors of the calls that open a TUN, a UDP socket, a doorbell, and of those that test segmented sends: what goes on
// without, what is given up, and that no descriptor is left open.
import { expect } from 'vitest'
import { EACCES, EADDRINUSE, EADDRNOTAVAIL, EBUSY, EINVAL, EIO, EPERM } from '../../dataplane/io/errno.ts'
import { openSender } from '../../dataplane/io/linux/datagram-sender.ts'
import { testSegmentedSend } from '../../dataplane/io/linux/gso-self-test.ts'
import { deviceMtu, openTun, openTunQueues, setPersistent } from '../../dataplane/io/linux/tun.ts'
import { openSenders, openUdpSocket, openUdpSockets } from '../../dataplane/io/linux/udp-open.ts'
import { closeDescriptor, makeDoorbell } from '../../dataplane/worker/descriptors.ts'
import { type ErrorRow, rowsOf } from './error-row.ts'
import { closes, GRANTED_FD, grantAllBut, scripted } from './scripted-libc.ts'

const [ENOENT, EBADF, ENOMEM, ENODEV, ENFILE, EMFILE, ENOTTY] = [2, 9, 12, 19, 23, 24, 25]
const [ENOPROTOOPT, EAFNOSUPPORT] = [92, 97]
const TUNSETIFF = 0x400454ca
const TUNSETVNETHDRSZ = 0x400454d8
const TUNSETOFFLOAD = 0x400454d0
const SIOCGIFMTU = 0x8921
const [SOL_IP, SOL_SOCKET, SOL_UDP] = [0, 1, 17]
const [SO_SNDBUF, SO_RCVBUF, SO_REUSEPORT, SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_RXQ_OVFL] = [7, 8, 15, 32, 33, 40]
const [IP_MTU_DISCOVER, IP_RECVTOS, UDP_SEGMENT, UDP_GRO] = [10, 13, 103, 104]
const LOOPBACK = 0x7f000001

/** The `nth` call of that name (from 1 on) fails, all others succeed. */
function refuseCall(call: string, errno: number, nth = 1): void {
  let calls = 0
  grantAllBut((name) => (name === call && ++calls === nth ? errno : undefined))
}

/** Calls whose second argument is that one fail. */
const refuseRequest = (call: string, request: number, errno: number): void =>
  grantAllBut((name, args) => (name === call && args[1] === request ? errno : undefined))

/** Socket options that were set, with their values, as `level option value`. */
function optionsSet(): string[] {
  const set: string[] = []
  scripted.watch((name, [, level, option, value], result) => {
    if (name === 'setsockopt' && result >= 0) set.push(`${level} ${option} ${value}`)
  })
  return set
}

const refuseOption = (call: string, level: number, option: number, errno: number): void =>
  grantAllBut((name, args) => (name === call && args[1] === level && args[2] === option ? errno : undefined))

const open = () => openUdpSocket(LOOPBACK, 8472, '6.18.0')

const TUN_ROWS: readonly ErrorRow[] = [
  ...rowsOf('open', 'the TUN', { ENOENT, EACCES, EPERM, EMFILE, ENODEV }, 'fails as "open"', (errno) => {
    refuseCall('open', errno)
    expect(openTun('flannel.1')).toEqual({ step: 'open', errno })
    expect(closes()).toBe(0)
  }),
  ...rowsOf('open', 'the second queue', { EMFILE }, 'fails, and the first queue is closed', (errno) => {
    refuseCall('open', errno, 2)
    expect(openTunQueues('flannel.1', 2)).toEqual({ step: 'open', errno })
    expect(closes()).toBe(1)
  }),
  ...rowsOf('ioctlPointer', 'TUNSETIFF', { EBUSY, EPERM, EINVAL }, 'fails as "attach", nothing left open', (errno) => {
    refuseRequest('ioctlPointer', TUNSETIFF, errno)
    expect(openTun('flannel.1')).toEqual({ step: 'attach', errno })
    expect(closes()).toBe(1)
  }),
  ...rowsOf('ioctlPointer', 'TUNSETVNETHDRSZ', { EINVAL }, 'fails as "offload", nothing left open', (errno) => {
    refuseRequest('ioctlPointer', TUNSETVNETHDRSZ, errno)
    expect(openTun('flannel.1')).toEqual({ step: 'offload', errno })
    expect(closes()).toBe(1)
  }),
  ...rowsOf('ioctlPointer', 'SIOCGIFMTU', { ENODEV, EPERM }, 'is given back, nothing left open', (errno) => {
    refuseRequest('ioctlPointer', SIOCGIFMTU, errno)
    expect(deviceMtu('flannel.1')).toBe(-errno)
    expect(closes()).toBe(1)
  }),
  ...[
    { refused: [0x67], granted: 0x07, on: { 'tun-tso': true, 'tun-uso': false } },
    { refused: [0x67, 0x07], granted: 0x01, on: { 'tun-tso': false, 'tun-uso': false } },
    { refused: [0x67, 0x07, 0x01], granted: 0, on: { 'tun-tso': false, 'tun-uso': false } },
  ].map(({ refused, granted, on }) => ({
    call: 'ioctlValue',
    error: `EINVAL for TUNSETOFFLOAD ${refused.map((mask) => `0x${mask.toString(16)}`)}`,
    reaction: `goes on with 0x${granted.toString(16)}`,
    check: () => {
      grantAllBut((_, [, request, mask]) =>
        request === TUNSETOFFLOAD && refused.includes(mask as number) ? EINVAL : undefined,
      )
      const tun = openTun('flannel.1')
      if ('errno' in tun) throw new Error('it could not be opened')
      expect(tun.offloads).toBe(granted)
      expect(Object.fromEntries(tun.features.map((feature) => [feature.name, feature.on]))).toEqual(on)
      expect(tun.features.every((feature) => feature.on !== feature.downgrade)).toBe(true)
      expect(closes()).toBe(0)
    },
  })),
  ...rowsOf('ioctlValue', 'every TUNSETOFFLOAD', { EINVAL }, 'fails as "offload", nothing left open', (errno) => {
    refuseRequest('ioctlValue', TUNSETOFFLOAD, errno)
    expect(openTun('flannel.1')).toMatchObject({ step: 'offload' })
    expect(closes()).toBe(1)
  }),
  ...rowsOf('ioctlValue', 'TUNSETPERSIST', { EPERM, EBADF, ENOTTY }, 'is given back', (errno) => {
    refuseCall('ioctlValue', errno)
    expect(setPersistent(GRANTED_FD, true)).toBe(-errno)
  }),
  ...rowsOf(
    'close',
    '',
    { EIO, EBADF },
    "is not tried again: the number may be somebody else's by now",
    async (errno) => {
      refuseCall('close', errno)
      await closeDescriptor(GRANTED_FD)
      expect(closes()).toBe(1)
    },
  ),
  ...rowsOf('eventfd', '', { EMFILE, ENFILE, ENOMEM, ENODEV }, 'no worker is started without a bell', async (errno) => {
    refuseCall('eventfd', errno)
    await expect(makeDoorbell()).rejects.toThrow(`errno ${errno}`)
  }),
  ...rowsOf(
    'eventfdWrite',
    '',
    { EAGAIN: 11, EBADF },
    'is let be: it rings already, or nobody listens',
    async (errno) => {
      refuseCall('eventfdWrite', errno)
      const bell = await makeDoorbell()
      expect(() => bell.ring()).not.toThrow()
    },
  ),
]

const SOCKET_ROWS: readonly ErrorRow[] = [
  ...rowsOf('socket', 'UDP', { EMFILE, EPERM, EAFNOSUPPORT, ENOMEM }, 'fails as "socket"', (errno) => {
    refuseCall('socket', errno)
    expect(open()).toEqual({ step: 'socket', errno })
  }),
  ...rowsOf('socket', 'a sending port', { EMFILE }, 'fewer ports', (errno) => {
    refuseCall('socket', errno, 3)
    expect(openSenders(LOOPBACK, 4)).toHaveLength(2)
  }),
  ...rowsOf('socket', 'a question about a device', { EMFILE }, 'is given back', (errno) => {
    refuseCall('socket', errno)
    expect(deviceMtu('flannel.1')).toBe(-errno)
  }),
  ...rowsOf('socket', 'the self-test', { EMFILE }, 'nothing is proved, nothing left open', (errno) => {
    refuseCall('socket', errno, 2)
    expect(testSegmentedSend(LOOPBACK)).toBe('unknown')
    expect(closes()).toBe(1)
  }),
  ...rowsOf('bind', 'UDP', { EADDRINUSE, EACCES, EADDRNOTAVAIL }, 'fails as "bind", nothing left open', (errno) => {
    refuseCall('bind', errno)
    expect(open()).toEqual({ step: 'bind', errno })
    expect(closes()).toBe(1)
  }),
  ...rowsOf('bind', 'the second of two workers', { EADDRINUSE }, 'fails as "bind", nothing left open', (errno) => {
    refuseCall('bind', errno, 3)
    expect(openUdpSockets(LOOPBACK, 8472, '6.18.0', 2)).toEqual({ step: 'bind', errno })
    expect(closes()).toBe(3)
  }),
  ...rowsOf('bind', 'a sending port', { EADDRINUSE, EADDRNOTAVAIL }, 'fewer ports, none left open', (errno) => {
    refuseCall('bind', errno, 2)
    expect(openSenders(LOOPBACK, 4)).toHaveLength(1)
    expect(closes()).toBe(1)
  }),
  ...rowsOf('bind', 'the self-test', { EMFILE }, 'nothing is proved, nothing left open', (errno) => {
    refuseCall('bind', errno, 2)
    expect(testSegmentedSend(LOOPBACK)).toBe('unknown')
    expect(closes()).toBe(2)
  }),
  ...rowsOf('getsockname', 'the self-test', { ENOMEM, EBADF }, 'nothing is proved, nothing left open', (errno) => {
    refuseCall('getsockname', errno)
    expect(testSegmentedSend(LOOPBACK)).toBe('unknown')
    expect(closes()).toBe(2)
  }),
]

const OPTION_ROWS: readonly ErrorRow[] = [
  ...rowsOf('setsockopt', 'SO_RCVBUFFORCE', { EPERM }, 'what SO_RCVBUF allows', (errno) => {
    refuseOption('setsockopt', SOL_SOCKET, SO_RCVBUFFORCE, errno)
    const set = optionsSet()
    expect(open()).toMatchObject({ fd: GRANTED_FD })
    expect(set).toContain(`${SOL_SOCKET} ${SO_RCVBUF} ${16 << 20}`)
  }),
  ...rowsOf('setsockopt', 'SO_SNDBUFFORCE', { EPERM }, 'what SO_SNDBUF allows', (errno) => {
    refuseOption('setsockopt', SOL_SOCKET, SO_SNDBUFFORCE, errno)
    const set = optionsSet()
    expect(open()).toMatchObject({ fd: GRANTED_FD })
    expect(set).toContain(`${SOL_SOCKET} ${SO_SNDBUF} ${16 << 20}`)
  }),
  {
    call: 'setsockopt',
    error: 'EINVAL for IP_PMTUDISC_OMIT',
    reaction: 'DF stays clear by IP_PMTUDISC_DONT',
    check: () => {
      grantAllBut((_, [, level, option, value]) =>
        level === SOL_IP && option === IP_MTU_DISCOVER && value !== 0 ? EINVAL : undefined,
      )
      const set = optionsSet()
      expect(open()).toMatchObject({ fd: GRANTED_FD })
      expect(set).toContain(`${SOL_IP} ${IP_MTU_DISCOVER} 0`)
    },
  },
  ...rowsOf('setsockopt', 'UDP_GRO', { ENOPROTOOPT, EINVAL }, 'datagrams come one by one', (errno) => {
    refuseOption('setsockopt', SOL_UDP, UDP_GRO, errno)
    expect(open()).toMatchObject({ fd: GRANTED_FD, maxSegments: 127, receivesMerged: false })
  }),
  ...[
    ['IP_RECVTOS', SOL_IP, IP_RECVTOS],
    ['SO_RXQ_OVFL', SOL_SOCKET, SO_RXQ_OVFL],
  ].flatMap(([name, level, option]) =>
    rowsOf('setsockopt', name as string, { ENOPROTOOPT }, 'goes on without marks, or without the count', (errno) => {
      refuseOption('setsockopt', level as number, option as number, errno)
      expect(open()).toMatchObject({ fd: GRANTED_FD, maxSegments: 127, receivesMerged: true })
    }),
  ),
  ...rowsOf('setsockopt', 'SO_REUSEPORT', { ENOPROTOOPT }, 'the second bind tells', (errno) => {
    let binds = 0
    grantAllBut((name, [, level, option]) => {
      if (name === 'bind') return ++binds === 3 ? EADDRINUSE : undefined
      return level === SOL_SOCKET && option === SO_REUSEPORT ? errno : undefined
    })
    expect(openUdpSockets(LOOPBACK, 8472, '6.18.0', 2)).toEqual({ step: 'bind', errno: EADDRINUSE })
    expect(closes()).toBe(3)
  }),
  ...rowsOf('setsockopt', 'every option', { EINVAL, ENOMEM }, 'it is still a socket', (errno) => {
    grantAllBut((name) => (name === 'setsockopt' ? errno : undefined))
    expect(open()).toMatchObject({ fd: GRANTED_FD, receivesMerged: false })
  }),
  ...rowsOf('getsockopt', 'UDP_SEGMENT', { ENOPROTOOPT }, 'one datagram a send', (errno) => {
    refuseOption('getsockopt', SOL_UDP, UDP_SEGMENT, errno)
    expect(open()).toMatchObject({ fd: GRANTED_FD, maxSegments: 1, receivesMerged: true })
  }),
  ...rowsOf('getsockopt', 'UDP_GRO', { ENOPROTOOPT }, 'it is not relied upon', (errno) => {
    refuseOption('getsockopt', SOL_UDP, UDP_GRO, errno)
    expect(open()).toMatchObject({ fd: GRANTED_FD, maxSegments: 127, receivesMerged: false })
  }),
  ...rowsOf('getsockopt', 'SO_RCVBUF', { EINVAL }, 'the size is not known', (errno) => {
    refuseOption('getsockopt', SOL_SOCKET, SO_RCVBUF, errno)
    expect(open()).toMatchObject({ fd: GRANTED_FD, receiveBufferBytes: 0 })
  }),
]

const SELF_TEST_ROWS: readonly ErrorRow[] = [
  ...rowsOf('sendmmsg', 'segments of the self-test', { EIO, EINVAL }, 'refused: single datagrams go', (errno) => {
    grantAllBut(() => undefined)
    scripted.give('sendmmsg', -errno, 3)
    expect(testSegmentedSend(LOOPBACK)).toBe('refused')
    expect(closes()).toBe(2)
  }),
  ...rowsOf('sendmmsg', 'anything of the self-test', { EPERM }, 'nothing is proved', (errno) => {
    grantAllBut(() => undefined)
    scripted.give('sendmmsg', -EIO, -errno, -errno, -errno)
    expect(testSegmentedSend(LOOPBACK)).toBe('unknown')
  }),
  ...rowsOf('poll', 'the self-test', { EINTR: 4, ENOMEM, 'no answer': 0 }, 'nothing is proved', (errno) => {
    grantAllBut((name) => (name === 'poll' ? errno : undefined))
    scripted.give('sendmmsg', 1)
    expect(testSegmentedSend(LOOPBACK)).toBe('unknown')
  }),
  {
    call: 'recvmmsg',
    error: 'other datagrams than were sent',
    reaction: 'segmented sends are damaged',
    check: () => {
      grantAllBut((name) => (name === 'poll' ? -1 : undefined))
      scripted.give('sendmmsg', 1)
      scripted.give('recvmmsg', 3)
      expect(testSegmentedSend(LOOPBACK)).toBe('damaged')
    },
  },
]

const DATAGRAM_ROWS: readonly ErrorRow[] = [
  ...rowsOf('socket', 'a sender to a Unix socket', { EMFILE, ENFILE }, 'is an errno', (errno) => {
    refuseCall('socket', errno)
    expect(openSender('/run/notify')).toBe(errno)
  }),
  ...rowsOf('sendto', 'a Unix socket', { EAGAIN: 11, ENOENT, ECONNREFUSED: 111 }, 'is told, nothing else', (errno) => {
    refuseCall('sendto', errno)
    const sender = openSender('/run/notify')
    if (typeof sender === 'number') throw new Error('it was not opened')
    expect([sender.send('READY=1'), sender.send('READY=1')]).toEqual([errno, 0])
    expect(closes()).toBe(0)
  }),
]

export const OPENING_ROWS: readonly ErrorRow[] = [
  ...TUN_ROWS,
  ...SOCKET_ROWS,
  ...OPTION_ROWS,
  ...SELF_TEST_ROWS,
  ...DATAGRAM_ROWS,
]
