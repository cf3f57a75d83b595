// Errors of the calls that move packets: what is tried again, what is sent singly, and the reason under which the rest
// is counted. Orders of segmented sends and several ports: refused-segments.test.ts, udp-socket.test.ts.
import { expect } from 'vitest'
import { Counters } from '../../dataplane/engine/counters.ts'
import { GsoTrust } from '../../dataplane/engine/gso-trust.ts'
import { countSent } from '../../dataplane/engine/sent-counts.ts'
import { TunWriter } from '../../dataplane/engine/tun-writer.ts'
import * as errno from '../../dataplane/io/errno.ts'
import { Tun } from '../../dataplane/io/linux/tun.ts'
import { UdpSocket } from '../../dataplane/io/linux/udp-socket.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import { SendBatch } from '../../dataplane/io/send-batch.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import { type ErrorRow, rowsOf } from './error-row.ts'
import { scripted } from './scripted-libc.ts'

const { EPERM, EINTR, EIO, EAGAIN, EACCES, EINVAL, EBADFD, EMSGSIZE, ENETDOWN, ENETUNREACH } = errno
const { ENOBUFS, ECONNREFUSED, EHOSTUNREACH } = errno
const [EBADF, ENOMEM, EFAULT] = [9, 12, 14]
const PACKET_BYTES = 100
const WRITE_BYTES = virtioNet.HEADER_LEN + PACKET_BYTES
const SLOTS = 2
/** struct mmsghdr: msg_flags and msg_len, bits/socket.h. */
const FLAGS_AT = 48

/** Room for the sockets and batches of all rows. */
const memory = new PacketMemory(16 * 1024 * 1024)
const tun = new Tun(memory, 7)
const slots = new ReceiveSlots(memory, SLOTS)
const at = memory.reserve(8 * PACKET_BYTES)

/** Writes one packet into the TUN as the engine does; its counters, which must balance. */
function write(): Counters {
  const counters = new Counters()
  const trust = new GsoTrust(counters, { mergeTcp: true, mergeUdp: true })
  new TunWriter(memory, tun, counters, trust).writePlain(0, at, PACKET_BYTES, PACKET_BYTES)
  expect(counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return counters
}

/**
 * Sends so many messages of so many frames from a fresh socket, which has these results; what was counted must balance.
 */
function send(messages: number, frames: number, ...results: number[]) {
  const counters = new Counters()
  const batch = new SendBatch(memory, 63)
  for (let message = 0; message < messages; message++) {
    for (let frame = 0; frame < frames; frame++) {
      batch.frame(0xc0000202, 8472 + message, 0, PACKET_BYTES, false)
      batch.add(at, PACKET_BYTES)
    }
  }
  scripted.give('sendmmsg', ...results)
  new UdpSocket(memory, { fd: 7, maxSegments: 63 }).send(batch)
  countSent(counters, batch, 0)
  expect(counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  expect(counters.get('outbound.packets.read')).toBe(messages * frames)
  const dropped = (reason: Parameters<Counters['dropped']>[1]) => counters.dropped('outbound', reason).packets
  return { passed: counters.get('outbound.packets.passed'), dropped, counters }
}

const receive = () => new UdpSocket(memory, { fd: 7, maxSegments: 63 }).receive(slots)

const TUN_ROWS: readonly ErrorRow[] = [
  ...rowsOf('read', 'the TUN', { EINTR }, 'is tried again', (error) => {
    scripted.give('read', -error, -error, PACKET_BYTES)
    expect(tun.read(at, PACKET_BYTES)).toBe(PACKET_BYTES)
  }),
  ...rowsOf('read', 'the TUN', { EAGAIN }, 'there is nothing to read', (error) => {
    scripted.give('read', -error)
    expect(tun.read(at, PACKET_BYTES)).toBe(0)
  }),
  ...rowsOf('read', 'the TUN', { EIO, EBADFD, EBADF, EFAULT, EINVAL }, 'is told once, by value', (error) => {
    scripted.give('read', -error)
    expect(tun.read(at, PACKET_BYTES)).toBe(-error)
    expect(scripted.made).toEqual(['read'])
  }),
  ...rowsOf('writev', '', { EINTR }, 'is tried again', (error) => {
    scripted.give('writev', -error, -error, WRITE_BYTES)
    expect(write().get('inbound.packets.passed')).toBe(1)
  }),
  ...rowsOf('writev', 'a moment', { EAGAIN }, 'waits for room once, and goes on', (error) => {
    scripted.give('writev', -error, WRITE_BYTES)
    scripted.give('poll', 1)
    expect(write().get('inbound.packets.passed')).toBe(1)
    expect(scripted.made).toEqual(['writev', 'poll', 'writev'])
  }),
  ...rowsOf('writev', 'good', { EAGAIN }, 'tun-backpressure', (error) => {
    scripted.give('writev', -error, -error)
    scripted.give('poll', 0)
    expect(write().dropped('inbound', 'tun-backpressure').packets).toBe(1)
  }),
  ...(
    [
      [{ EIO, EBADFD }, 'tun-down'],
      [{ EINVAL }, 'tun-rejected'],
      [{ EBADF, ENOMEM, ENOBUFS, EFAULT, EPERM }, 'tun-error'],
    ] as const
  ).flatMap(([errors, reason]) =>
    rowsOf('writev', 'one packet', errors, reason, (error) => {
      scripted.give('writev', -error)
      expect(write().dropped('inbound', reason).packets).toBe(1)
      expect(scripted.made).toEqual(['writev'])
    }),
  ),
  {
    call: 'writev',
    error: 'fewer bytes than given',
    reaction: 'tun-error: the rest would be a packet of its own',
    check: () => {
      scripted.give('writev', WRITE_BYTES - 1)
      expect(write().dropped('inbound', 'tun-error').packets).toBe(1)
      expect(scripted.made).toEqual(['writev'])
    },
  },
  ...rowsOf('poll', 'room in the TUN', { EINTR, ENOMEM }, 'the write is tried all the same', (error) => {
    scripted.give('writev', -EAGAIN, WRITE_BYTES)
    scripted.give('poll', -error)
    expect(write().get('inbound.packets.passed')).toBe(1)
  }),
]

const NAMED = [
  [{ EPERM, EACCES, ENETDOWN, ENETUNREACH, EHOSTUNREACH }, 'tx-unreachable'],
  [{ EMSGSIZE }, 'tx-too-big'],
  [{ EIO, EINVAL, EBADF, ENOMEM }, 'tx-error'],
] as const

const SEND_ROWS: readonly ErrorRow[] = [
  ...rowsOf('sendmmsg', '', { EINTR }, 'is tried again', (error) => {
    expect(send(2, 1, -error, -error, 2).passed).toBe(2)
  }),
  {
    call: 'sendmmsg',
    error: 'fewer messages than given',
    reaction: 'goes on where the kernel stopped',
    check: () => expect(send(5, 1, 2, 1, 2).passed).toBe(5),
  },
  ...rowsOf('sendmmsg', 'a moment', { EAGAIN }, 'waits for room once, and goes on', (error) => {
    scripted.give('poll', 1)
    expect(send(3, 1, 1, -error, 2).passed).toBe(3)
  }),
  ...rowsOf('sendmmsg', 'good', { EAGAIN }, 'tx-queue-full for that message, and the next is offered', (error) => {
    scripted.give('poll', 0)
    const { passed, dropped } = send(3, 1, -error, 2)
    expect([passed, dropped('tx-queue-full')]).toEqual([2, 1])
    expect(scripted.made).toEqual(['sendmmsg', 'poll', 'sendmmsg'])
  }),
  ...rowsOf('sendmmsg', 'a moment', { ENOBUFS }, 'is tried three times more', (error) => {
    expect(send(1, 1, -error, -error, -error, 1).passed).toBe(1)
  }),
  ...rowsOf('sendmmsg', 'good', { ENOBUFS }, 'tx-nobufs for that message, and the next is offered', (error) => {
    const { passed, dropped } = send(2, 1, -error, -error, -error, -error, 1)
    expect([passed, dropped('tx-nobufs')]).toEqual([1, 1])
  }),
  ...rowsOf('sendmmsg', 'an earlier datagram', { ECONNREFUSED }, 'is tried again', (error) => {
    expect(send(2, 1, -error, 2).passed).toBe(2)
  }),
  ...rowsOf('sendmmsg', 'good', { ECONNREFUSED }, 'tx-unreachable for that message', (error) => {
    const { passed, dropped } = send(2, 1, -error, -error, 1)
    expect([passed, dropped('tx-unreachable')]).toEqual([1, 1])
  }),
  ...NAMED.flatMap(([errors, reason]) =>
    rowsOf('sendmmsg', 'one datagram', errors, `${reason} for that message, the socket stays`, (error) => {
      const { passed, dropped } = send(3, 1, 1, -error, 1)
      expect([passed, dropped(reason)]).toEqual([2, 1])
    }),
  ),
  ...rowsOf('sendmmsg', 'a segmented message', { EIO, EINVAL, EMSGSIZE }, 'leaves frame by frame', (error) => {
    const { passed, counters } = send(2, 3, -error, 3, ...(error === EIO ? [3] : [1]))
    expect(passed).toBe(6)
    expect(counters.get('downgrade.udp-gso')).toBe(error === EIO ? 1 : 0)
  }),
  ...rowsOf('sendmmsg', 'a segmented message', { EPERM, EHOSTUNREACH, ENETUNREACH }, 'tx-unreachable', (error) => {
    const { passed, dropped } = send(2, 3, -error, 1)
    expect([passed, dropped('tx-unreachable')]).toEqual([3, 3])
  }),
  ...rowsOf('sendmmsg', 'one frame of a refused message', { EPERM, EMSGSIZE }, 'the others leave', (error) => {
    expect(send(1, 3, -EIO, 1, -error, 1).passed).toBe(2)
  }),
  ...rowsOf('poll', 'room in the socket', { EINTR, ENOMEM }, 'the send is tried all the same', (error) => {
    scripted.give('poll', -error)
    expect(send(1, 1, -EAGAIN, 1).passed).toBe(1)
  }),
]

const RECEIVE_ROWS: readonly ErrorRow[] = [
  ...rowsOf('recvmmsg', '', { EAGAIN }, 'there is nothing to receive', (error) => {
    scripted.give('recvmmsg', -error)
    expect(receive()).toBe(0)
  }),
  ...rowsOf(
    'recvmmsg',
    'once',
    { EINTR, ECONNREFUSED, EHOSTUNREACH, ENOMEM },
    'is tried again: what is queued is kept',
    (error) => {
      scripted.give('recvmmsg', -error, SLOTS)
      expect(receive()).toBe(SLOTS)
    },
  ),
  ...rowsOf('recvmmsg', 'an earlier datagram, none queued', { ECONNREFUSED }, 'there is nothing', (error) => {
    scripted.give('recvmmsg', -error, -EAGAIN)
    expect(receive()).toBe(0)
  }),
  ...rowsOf('recvmmsg', 'good', { EBADF, ENOMEM, EINVAL, EFAULT, ENETDOWN }, 'is told, by value', (error) => {
    scripted.give('recvmmsg', -error, -error)
    expect(receive()).toBe(-error)
    expect(scripted.made).toEqual(['recvmmsg', 'recvmmsg'])
  }),
  {
    call: 'recvmmsg',
    error: 'fewer datagrams than asked for',
    reaction: 'takes them',
    check: () => {
      scripted.give('recvmmsg', 1)
      expect(receive()).toBe(1)
    },
  },
  ...rowsOf('recvmmsg', 'one of two datagrams', { MSG_TRUNC: 0x20, MSG_CTRUNC: 0x8 }, 'that one is marked', (flag) => {
    scripted.give('recvmmsg', SLOTS)
    scripted.watch((_, [, header]) => memory.view.setUint32(header! + FLAGS_AT, flag, true))
    expect(receive()).toBe(SLOTS)
    expect([...slots.truncated]).toEqual([1, 0])
  }),
]

export const MOVING_ROWS: readonly ErrorRow[] = [...TUN_ROWS, ...SEND_ROWS, ...RECEIVE_ROWS]
