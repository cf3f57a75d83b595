// Whether segmented sends arrive as what went in: three segments to a socket of our own, compared byte by byte. Covers
// the way through this kernel, not the network card.
import { PacketMemory } from '../../memory/packet-memory.ts'
import * as ipv6 from '../../wire/ipv6.ts'
import { ReceiveSlots, SLOT_BYTES } from '../receive-slots.ts'
import { SendBatch } from '../send-batch.ts'
import type { SocketAddresses } from '../socket-addresses.ts'
import * as libc from './libc.ts'
import { familyOf, portOf, SOCKADDR_BYTES, socketAddress } from './message-header.ts'
import { PollSet } from './poll-set.ts'
import { UdpSocket } from './udp-socket.ts'

const SOCK_DGRAM = 2
const SOCK_NONBLOCK = 0x800
const SOCK_CLOEXEC = 0x80000
const SEGMENTS = 3
const SEGMENT_BYTES = 700
/** How long a segment may take to come back, milliseconds: without a firewall in the way it is there at once. */
const WAIT_MS = 50
const MEMORY_BYTES = (SEGMENTS + 8) * SLOT_BYTES

/** `unknown`: nothing came back, or no socket could be had, which says nothing of segments. */
export type SelfTestResult = 'passed' | 'refused' | 'damaged' | 'unknown'

/** Tries segmented sends between two sockets on ephemeral ports of `address`. Takes at most 150 ms. */
export function testSegmentedSend(address: number | bigint): SelfTestResult {
  const fds: number[] = []
  try {
    for (let count = 0; count < 2; count++) {
      const fd = libc.socket(familyOf(address), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
      if (fd < 0) return 'unknown'
      fds.push(fd)
      if (libc.bind(fd, socketAddress(address, 0)) < 0) return 'unknown'
    }
    const name = new Uint8Array(SOCKADDR_BYTES)
    if (libc.getsockname(fds[1]!, name) < 0) return 'unknown'
    return exchange(address, portOf(name), fds[0]!, fds[1]!)
  } finally {
    for (const fd of fds) libc.close(fd)
  }
}

function exchange(address: number | bigint, port: number, senderFd: number, receiverFd: number): SelfTestResult {
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  const batch = new SendBatch(memory, SEGMENTS)
  const at = memory.reserve(SEGMENTS * SEGMENT_BYTES)
  for (let byte = 0; byte < SEGMENTS * SEGMENT_BYTES; byte++) memory.bytes[at + byte] = (byte * 31) & 0xff
  for (let segment = 0; segment < SEGMENTS; segment++) {
    batch.frame(typeof address === 'number' ? address : 0, port, 0, SEGMENT_BYTES, false)
    batch.add(at + segment * SEGMENT_BYTES, SEGMENT_BYTES)
  }
  new UdpSocket(memory, { fd: senderFd, maxSegments: SEGMENTS, ...only(address) }).send(batch)
  if (batch.resent > 0) return batch.sentPackets[0] === 0 ? 'unknown' : 'refused'
  if (batch.errno[0] !== 0) return 'unknown'
  return compare(memory, at, receiverFd, address)
}

/** Whatever the number, it is this address, where numbers are needed at all. */
function only(address: number | bigint): { addresses?: SocketAddresses } {
  if (typeof address === 'number') return {}
  const write = (_number: number, view: DataView, at: number) => ipv6.writeAddress(view, at, address)
  return { addresses: { numberOf: () => 0, write } }
}

function compare(memory: PacketMemory, at: number, receiverFd: number, address: number | bigint): SelfTestResult {
  const receiver = new UdpSocket(memory, { fd: receiverFd, maxSegments: 1, ...only(address) })
  const slots = new ReceiveSlots(memory, SEGMENTS)
  const arrival = new PollSet(memory, [receiverFd])
  for (let segment = 0; segment < SEGMENTS; ) {
    if (arrival.wait(WAIT_MS) <= 0) return segment === 0 ? 'unknown' : 'damaged'
    slots.first = 0
    const received = receiver.receive(slots)
    for (let slot = 0; slot < received; slot++) {
      const sent = at + segment++ * SEGMENT_BYTES
      if (segment > SEGMENTS || slots.length[slot] !== SEGMENT_BYTES) return 'damaged'
      for (let byte = 0; byte < SEGMENT_BYTES; byte++) {
        if (memory.bytes[slots.at(slot) + byte] !== memory.bytes[sent + byte]) return 'damaged'
      }
    }
  }
  return 'passed'
}
