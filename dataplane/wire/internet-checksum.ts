// The Internet checksum (RFC 1071) as plainly as it can be said: byte pairs, added up. Used where packets are
// described, parsed and built for tests, and as the slow twin of the fast one in `dataplane/memory/`.
import { formatHex } from './field.ts'

/** What the IP layer knows and a transport header needs to judge itself. */
export interface Carriage {
  /** IPv4 addresses as unsigned 32-bit numbers, IPv6 addresses as bigints; both of one family. */
  readonly source: number | bigint
  readonly destination: number | bigint
  /**
   * Only the beginning of the packet is here: a fragment, or the quote in an ICMP error. Lengths and sums cannot be
   * judged.
   */
  readonly partial: boolean
  /** The checksum field holds the pseudo-header sum on purpose; the reader of the virtio-net header completes it. */
  readonly pending: boolean
}

/**
 * Sum of the big-endian byte pairs of `buf[at, end)`, an odd last byte padded with zero, added to `start`. Not folded.
 */
export function sumWords(buf: Uint8Array, at: number, end: number, start = 0): number {
  let sum = start
  for (let index = at; index < end; index += 2) {
    const low = index + 1 < end ? (buf[index + 1] ?? 0) : 0
    sum += (buf[index] ?? 0) * 256 + low
  }
  return sum
}

/** Adds the carries back in until 16 bits are left (end-around carry, RFC 1071 §1). `sum` is 0 to 2^53-1. */
export function fold(sum: number): number {
  let folded = sum
  while (folded > 0xffff) folded = (folded % 0x1_0000) + Math.floor(folded / 0x1_0000)
  return folded
}

/** Complement of the folded sum: what goes into the checksum field when the sum was taken with a zero there. */
export function finish(sum: number): number {
  return ~fold(sum) & 0xffff
}

/**
 * Sum of the IPv4 pseudo header (RFC 793 §3.1, RFC 768): addresses, protocol, bytes of transport header and payload.
 * Not folded; give it to {@link sumWords} as `start`.
 */
export function sumPseudoHeader(source: number, destination: number, protocol: number, length: number): number {
  return (source >>> 16) + (source & 0xffff) + (destination >>> 16) + (destination & 0xffff) + protocol + length
}

/** Sum of the eight 16-bit words of an IPv6 address. */
function sumAddress6(address: bigint): number {
  let sum = 0
  for (let rest = address; rest > 0n; rest >>= 16n) sum += Number(rest & 0xffffn)
  return sum
}

/**
 * Sum of the IPv6 pseudo header (RFC 8200 §8.1): addresses, upper-layer length, next header. Not folded; give it to
 * {@link sumWords} as `start`. With a routing header, `destination` is the last one.
 */
export function sumPseudoHeader6(source: bigint, destination: bigint, nextHeader: number, length: number): number {
  const words = (length >>> 16) + (length & 0xffff) + nextHeader
  return sumAddress6(source) + sumAddress6(destination) + words
}

function sumCarriage({ source, destination }: Carriage, protocol: number, length: number): number {
  return typeof source === 'bigint'
    ? sumPseudoHeader6(source, BigInt(destination), protocol, length)
    : sumPseudoHeader(source, Number(destination), protocol, length)
}

/** The right checksum, from the one found and an unfolded sum that included it at an even offset. */
export function correctChecksum(found: number, sum: number): number {
  return finish(sum - found)
}

/** What is wrong with a checksum, from the one found and a sum that included it; `undefined` when it is right. */
export function checksumProblem(found: number, sum: number): string | undefined {
  return fold(sum) === 0xffff ? undefined : `wrong, should be ${formatHex(correctChecksum(found, sum), 16)}`
}

/**
 * The same for UDP, TCP and ICMPv6, whose sum covers `length` bytes from `at` and the pseudo header. A checksum that is
 * left to the hardware holds the folded pseudo-header sum, not complemented: between two namespaces no hardware ever
 * completes it.
 */
export function transportChecksumProblem(
  buf: Uint8Array,
  at: number,
  length: number,
  found: number,
  protocol: number,
  carriage: Carriage | undefined,
): string | undefined {
  if (carriage === undefined || carriage.partial) return undefined
  const pseudo = sumCarriage(carriage, protocol, length)
  const problem = checksumProblem(found, sumWords(buf, at, at + length, pseudo))
  if (problem === undefined) return undefined
  if (found !== fold(pseudo)) return problem
  return carriage.pending
    ? undefined
    : `${problem}; it holds only the pseudo-header sum, as left for hardware to complete`
}
