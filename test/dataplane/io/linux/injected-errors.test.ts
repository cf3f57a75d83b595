// Every system call of opening a TUN, opening a UDP socket and testing it, refused in every way that matters: what goes
// on without it, what is given up, and that no descriptor is left open. Calls at work: tun.test.ts, udp-socket.test.ts,
// refused-segments.test.ts.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { EACCES, EADDRINUSE, EBUSY, EINVAL, EIO, EPERM } from '../../../../dataplane/io/errno.ts'
import { testSegmentedSend } from '../../../../dataplane/io/linux/gso-self-test.ts'
import { openTun } from '../../../../dataplane/io/linux/tun.ts'
import { openUdpSocket, UdpSocket } from '../../../../dataplane/io/linux/udp-socket.ts'
import { ReceiveSlots } from '../../../../dataplane/io/receive-slots.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { scripted } from '../../../support/scripted-libc.ts'

vi.mock('../../../../dataplane/io/linux/libc.ts', async () => {
  const { libcModule } = await import('../../../support/scripted-libc.ts')
  return libcModule
})

const FD = 9
const ENOENT = 2
const EMFILE = 24
const ENOPROTOOPT = 92
const TUNSETVNETHDRSZ = 0x400454d8
const TUNSETOFFLOAD = 0x400454d0
const SOL_SOCKET = 1
const SOL_UDP = 17
const [SO_RCVBUF, SO_RCVBUFFORCE, UDP_SEGMENT, UDP_GRO] = [8, 33, 103, 104]

beforeEach(() => scripted.reset())

const closes = () => scripted.made.filter((name) => name === 'close').length

/** A kernel that grants everything but what `refuse` has an errno for. */
function kernel(refuse: (name: string, args: readonly unknown[]) => number | undefined): void {
  scripted.otherwise((name, args) => {
    const errno = refuse(name, args)
    if (errno !== undefined) return -errno
    if (name === 'open' || name === 'socket') return FD
    return name === 'getsockopt' && args[2] === UDP_GRO ? 1 : 0
  })
}

describe('opening a TUN', () => {
  const offload = (name: string, args: readonly unknown[]) => name === 'ioctlValue' && args[1] === TUNSETOFFLOAD

  test.each([ENOENT, EACCES, EMFILE])('without the device node (errno %i) says so', (errno) => {
    kernel((name) => (name === 'open' ? errno : undefined))
    expect(openTun('flannel.1')).toEqual({ step: 'open', errno })
    expect(closes()).toBe(0)
  })

  test.each([EBUSY, EPERM, EINVAL])('that cannot be attached (errno %i) leaves no descriptor', (errno) => {
    kernel((name, args) => (name === 'ioctlPointer' && args[1] !== TUNSETVNETHDRSZ ? errno : undefined))
    expect(openTun('flannel.1')).toEqual({ step: 'attach', errno })
    expect(closes()).toBe(1)
  })

  test('whose header size cannot be set leaves no descriptor', () => {
    kernel((name, args) => (name === 'ioctlPointer' && args[1] === TUNSETVNETHDRSZ ? EINVAL : undefined))
    expect(openTun('flannel.1')).toEqual({ step: 'offload', errno: EINVAL })
    expect(closes()).toBe(1)
  })

  test.each([
    ['all', [], 0x67, { 'tun-tso': true, 'tun-uso': true }],
    ['all but those of UDP (before Linux 6.2)', [0x67], 0x07, { 'tun-tso': true, 'tun-uso': false }],
    ['only checksums', [0x67, 0x07], 0x01, { 'tun-tso': false, 'tun-uso': false }],
    ['none', [0x67, 0x07, 0x01], 0, { 'tun-tso': false, 'tun-uso': false }],
  ] as const)('with offloads granted: %s', (_, refused, granted, features) => {
    kernel((name, args) => (offload(name, args) && refused.some((mask) => mask === args[2]) ? EINVAL : undefined))
    const tun = openTun('flannel.1')
    if ('errno' in tun) throw new Error('it could not be opened')
    expect(tun.offloads).toBe(granted)
    expect(Object.fromEntries(tun.features.map(({ name, on }) => [name, on]))).toEqual(features)
    expect(tun.features.every(({ on, downgrade }) => on !== downgrade)).toBe(true)
    expect(closes()).toBe(0)
  })

  test('that refuses every mask fails, and leaves no descriptor', () => {
    kernel((name, args) => (offload(name, args) ? EINVAL : undefined))
    expect(openTun('flannel.1')).toMatchObject({ step: 'offload' })
    expect(closes()).toBe(1)
  })
})

describe('opening a UDP socket', () => {
  const open = (release = '6.18.0') => openUdpSocket(0x7f000001, 8472, release)

  test.each([EMFILE, EPERM])('that the kernel does not make (errno %i) says so', (errno) => {
    kernel((name) => (name === 'socket' ? errno : undefined))
    expect(open()).toEqual({ step: 'socket', errno })
  })

  test.each([EADDRINUSE, EACCES])('that cannot be bound (errno %i) leaves no descriptor', (errno) => {
    kernel((name) => (name === 'bind' ? errno : undefined))
    expect(open()).toEqual({ step: 'bind', errno })
    expect(closes()).toBe(1)
  })

  test('without the right to large buffers takes what it may', () => {
    const asked: unknown[] = []
    kernel((name, [, level, option]) => {
      if (name === 'setsockopt' && level === SOL_SOCKET) asked.push(option)
      return option === SO_RCVBUFFORCE ? EPERM : undefined
    })
    expect(open()).toMatchObject({ fd: FD })
    expect(asked.slice(0, 2)).toEqual([SO_RCVBUFFORCE, SO_RCVBUF])
  })

  test.each<[string, number, string, object]>([
    ['UDP_SEGMENT', UDP_SEGMENT, 'getsockopt', { maxSegments: 1, receivesMerged: true }],
    ['UDP_GRO', UDP_GRO, 'setsockopt', { maxSegments: 127, receivesMerged: false }],
    ['reading UDP_GRO back', UDP_GRO, 'getsockopt', { maxSegments: 127, receivesMerged: false }],
  ])('that refuses %s goes on without', (_, option, call, granted) => {
    kernel((name, [, level, asked]) =>
      name === call && level === SOL_UDP && asked === option ? ENOPROTOOPT : undefined,
    )
    expect(open()).toMatchObject({ fd: FD, ...granted })
  })

  test('whose every option is refused is still a socket', () => {
    kernel((name) => (name.endsWith('sockopt') ? EINVAL : undefined))
    expect(open()).toMatchObject({ fd: FD, maxSegments: 1, receivesMerged: false })
  })
})

describe('the self-test of segmented sends', () => {
  test.each(['socket', 'bind', 'getsockname'])('proves nothing without %s, and leaves no descriptor', (call) => {
    let calls = 0
    kernel((name) => (name === call && ++calls === (call === 'getsockname' ? 1 : 2) ? EMFILE : undefined))
    expect(testSegmentedSend(0x7f000001)).toBe('unknown')
    expect(closes()).toBe(call === 'socket' ? 1 : 2)
  })

  test.each([EIO, EINVAL])('says that they are refused with errno %i where single datagrams go', (errno) => {
    kernel(() => undefined)
    scripted.give('sendmmsg', -errno, 3)
    expect(testSegmentedSend(0x7f000001)).toBe('refused')
    expect(closes()).toBe(2)
  })

  test('proves nothing where single datagrams do not go either, or none comes back', () => {
    kernel(() => undefined)
    scripted.give('sendmmsg', -EIO, -EPERM, -EPERM, -EPERM)
    expect(testSegmentedSend(0x7f000001)).toBe('unknown')
    scripted.give('sendmmsg', 1)
    expect(testSegmentedSend(0x7f000001)).toBe('unknown')
  })

  test('sees datagrams that are not those sent', () => {
    kernel((name) => (name === 'poll' ? -1 : undefined))
    scripted.give('sendmmsg', 1)
    scripted.give('recvmmsg', 3)
    expect(testSegmentedSend(0x7f000001)).toBe('damaged')
  })
})

describe('a datagram that the kernel cut', () => {
  const FLAGS_AT = 48
  test.each([
    ['MSG_TRUNC', 0x20],
    ['MSG_CTRUNC', 0x8],
  ])('is marked: %s', (_, flag) => {
    const memory = new PacketMemory(1024 * 1024)
    const socket = new UdpSocket(memory, { fd: FD, maxSegments: 1 })
    const slots = new ReceiveSlots(memory, 2)
    scripted.give('recvmmsg', 2)
    scripted.watch((_name, [, header]) => memory.view.setUint32(header! + FLAGS_AT, flag, true))
    expect(socket.receive(slots)).toBe(2)
    expect([...slots.truncated]).toEqual([1, 0])
  })
})
