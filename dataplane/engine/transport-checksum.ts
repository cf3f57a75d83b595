// The inner TCP or UDP checksum, on the packet memory. Completion of what offloads left open on the way out,
// verification on the way in. Sums are folded, in network byte order.
import { complement, complementUdp, fold, type PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'
import type { InnerPacket } from './inner-packet.ts'

/** Where the checksum field of a transport header lies, -1 for a protocol that we do not know. */
export function checksumOffsetOf(protocol: number): number {
  if (protocol === ipv4.PROTOCOL_TCP) return tcp.CHECKSUM_OFFSET
  return protocol === ipv4.PROTOCOL_UDP ? udp.CHECKSUM_OFFSET : -1
}

/**
 * Sum of the pseudo-header for a transport part of `length` bytes: addresses, protocol, length (RFC 9293 §3.1, RFC 768,
 * RFC 8200 §8.1; the upper half of IPv6's 32-bit length is always zero here).
 */
export function pseudoHeaderSum(memory: PacketMemory, packet: InnerPacket, length: number): number {
  return fold(memory.sum(packet.addressesAt, packet.addressBytes) + packet.protocol + length)
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

/** One of the four `CHECKSUM_` states, for a whole TCP or UDP packet. UDP over IPv6 has no "unused" (RFC 8200 §8.1). */
export function verifyTransport(memory: PacketMemory, packet: InnerPacket): number {
  const { protocol } = packet
  const transport = packet.at + packet.ipBytes
  const length = packet.length - packet.ipBytes
  const stored = memory.view.getUint16(transport + checksumOffsetOf(protocol))
  if (stored === 0 && protocol === ipv4.PROTOCOL_UDP) return packet.version === 4 ? CHECKSUM_UNUSED : CHECKSUM_BAD
  const pseudo = pseudoHeaderSum(memory, packet, length)
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
