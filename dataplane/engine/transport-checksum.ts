// The inner TCP or UDP checksum, on the packet memory. Completion of what offloads left open on the way out,
// verification on the way in. Sums are folded, in network byte order.
import { complement, complementUdp, fold, type PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'

/** Source and destination address together. */
const ADDRESS_BYTES = 8

/** Where the checksum field of a transport header lies, -1 for a protocol that we do not know. */
export function checksumOffsetOf(protocol: number): number {
  if (protocol === ipv4.PROTOCOL_TCP) return tcp.CHECKSUM_OFFSET
  return protocol === ipv4.PROTOCOL_UDP ? udp.CHECKSUM_OFFSET : -1
}

/** Sum of the pseudo-header (RFC 793 §3.1, RFC 768) of the IPv4 packet at `at`, for a transport part of `length` bytes. */
export function pseudoHeaderSum(memory: PacketMemory, at: number, length: number): number {
  const addresses = memory.sum(at + ipv4.SOURCE_OFFSET, ADDRESS_BYTES)
  return fold(addresses + ipv4.getProtocol(memory.view, at) + length)
}

/**
 * Completes a checksum whose field holds the folded pseudo-header sum (virtio NEEDS_CSUM): sums `length` bytes from
 * `start` and stores the complement at `field`. For UDP a zero becomes 0xffff (RFC 768).
 */
export function completeChecksum(
  memory: PacketMemory,
  start: number,
  length: number,
  field: number,
  isUdp: boolean,
): void {
  const sum = memory.sum(start, length)
  memory.view.setUint16(field, isUdp ? complementUdp(sum) : complement(sum))
}

export const CHECKSUM_GOOD = 0
/** The field holds only the pseudo-header sum: a kernel left the rest to an offload that never ran. */
export const CHECKSUM_PARTIAL = 1
/** UDP without a checksum (RFC 768). */
export const CHECKSUM_UNUSED = 2
export const CHECKSUM_BAD = 3

/** One of the four `CHECKSUM_` states, for the whole TCP or UDP packet at `at` whose transport part has `length` bytes at `transport`. */
export function verifyTransport(
  memory: PacketMemory,
  at: number,
  transport: number,
  length: number,
  protocol: number,
): number {
  const stored = memory.view.getUint16(transport + checksumOffsetOf(protocol))
  if (stored === 0 && protocol === ipv4.PROTOCOL_UDP) return CHECKSUM_UNUSED
  const pseudo = pseudoHeaderSum(memory, at, length)
  if (fold(pseudo + memory.sum(transport, length)) === 0xffff) return CHECKSUM_GOOD
  return stored === pseudo ? CHECKSUM_PARTIAL : CHECKSUM_BAD
}

/** Whether the IPv4 header checksum is right. */
export function headerChecksumIsGood(memory: PacketMemory, at: number, headerBytes: number): boolean {
  return memory.sum(at, headerBytes) === 0xffff
}

/** Computes the IPv4 header checksum anew and stores it. */
export function setHeaderChecksum(memory: PacketMemory, at: number, headerBytes: number): void {
  ipv4.setChecksum(memory.view, at, 0)
  ipv4.setChecksum(memory.view, at, complement(memory.sum(at, headerBytes)))
}
