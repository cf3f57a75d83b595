// Prefixes (CIDR) of both families: IPv4 addresses are numbers, IPv6 addresses bigints, and what a function does
// follows from which of them it is given. Shifts by 32 are a no-op in JavaScript, so IPv4 masks are made without them.
import { formatAddress, parseIpv4, parseIpv6 } from './address.ts'

/** An IPv4 prefix. `address` is an unsigned 32-bit number with no bit set beyond `length` (0-32). */
export interface Ipv4Prefix {
  readonly address: number
  readonly length: number
}

/** An IPv6 prefix. `address` is an unsigned 128-bit number with no bit set beyond `length` (0-128). */
export interface Ipv6Prefix {
  readonly address: bigint
  readonly length: number
}

export type Prefix = Ipv4Prefix | Ipv6Prefix

/** Netmask of a prefix length 0-32, as an unsigned 32-bit number. */
export function maskOf(length: number): number {
  return length === 0 ? 0 : (-1 << (32 - length)) >>> 0
}

/** Netmask of a prefix length 0-128, as an unsigned 128-bit number. */
export function maskOfIpv6(length: number): bigint {
  return (1n << 128n) - sizeOfIpv6(length)
}

/** Number of addresses in an IPv4 prefix of that length (1 to 2^32). */
export function sizeOf(length: number): number {
  return 2 ** (32 - length)
}

/** Number of addresses in an IPv6 prefix of that length (1 to 2^128). */
export function sizeOfIpv6(length: number): bigint {
  return 1n << BigInt(128 - length)
}

/** The prefix of that length around an address; host bits are cleared. */
export function prefixAround(address: number, length: number): Ipv4Prefix
export function prefixAround(address: bigint, length: number): Ipv6Prefix
export function prefixAround(address: number | bigint, length: number): Prefix
export function prefixAround(address: number | bigint, length: number): Prefix {
  return typeof address === 'number'
    ? { address: (address & maskOf(length)) >>> 0, length }
    : { address: address & maskOfIpv6(length), length }
}

/** Last address of the prefix. */
export function lastAddress(prefix: Ipv4Prefix): number
export function lastAddress(prefix: Ipv6Prefix): bigint
export function lastAddress(prefix: Prefix): number | bigint
export function lastAddress({ address, length }: Prefix): number | bigint {
  return typeof address === 'number' ? address + sizeOf(length) - 1 : address + sizeOfIpv6(length) - 1n
}

/** The prefix of the same length behind this one. */
export function prefixBehind(prefix: Ipv4Prefix): Ipv4Prefix
export function prefixBehind(prefix: Ipv6Prefix): Ipv6Prefix
export function prefixBehind(prefix: Prefix): Prefix
export function prefixBehind({ address, length }: Prefix): Prefix {
  return typeof address === 'number'
    ? { address: address + sizeOf(length), length }
    : { address: address + sizeOfIpv6(length), length }
}

/** Whether the address lies in the prefix; one of the other family never does. */
export function containsAddress(prefix: Prefix, address: number | bigint): boolean {
  return typeof address === 'number'
    ? (address & maskOf(prefix.length)) >>> 0 === prefix.address
    : (address & maskOfIpv6(prefix.length)) === prefix.address
}

/** Whether `inner` lies wholly inside `outer` (equal counts). */
export function containsPrefix(outer: Prefix, inner: Prefix): boolean {
  return outer.length <= inner.length && containsAddress(outer, inner.address)
}

/** Whether they have an address in common; prefixes of different families never do. */
export function overlaps(a: Prefix, b: Prefix): boolean {
  return containsPrefix(a, b) || containsPrefix(b, a)
}

/** Whether they are one prefix. A 0 and a 0n, `0.0.0.0/0` and `::/0`, are not. */
export function samePrefix(a: Prefix, b: Prefix): boolean {
  return a.address === b.address && a.length === b.length
}

/**
 * Addresses that are no single host's on a network: this network, loopback, multicast and reserved (RFC 6890, RFC
 * 5771).
 */
export const NON_UNICAST_PREFIXES: readonly Ipv4Prefix[] = [
  { address: 0, length: 8 },
  { address: 0x7f000000, length: 8 },
  { address: 0xe0000000, length: 3 },
]

/**
 * The same for IPv6: ::/8 (unspecified, loopback, IPv4-mapped, translated), link-local and multicast (RFC 4291 §2.4).
 */
export const NON_UNICAST_IPV6_PREFIXES: readonly Ipv6Prefix[] = [
  { address: 0n, length: 8 },
  { address: 0xfe80n << 112n, length: 10 },
  { address: 0xffn << 120n, length: 8 },
]

/**
 * Whether another host can be reached at the address. A subnet's own broadcast address cannot be told from it alone.
 */
export function isUnicast(address: number): boolean {
  return !NON_UNICAST_PREFIXES.some((prefix) => containsAddress(prefix, address))
}

/** `10.244.1.0/24` or `fd00:10:244:1::/64`, as people and `ip route` write it. */
export function formatPrefix({ address, length }: Prefix): string {
  return `${formatAddress(address)}/${length}`
}

/**
 * Reads `10.244.1.0/24`; host bits are cleared, as Go's net.ParseCIDR does for the network. `null` for anything else.
 */
export function parsePrefix(text: string): Ipv4Prefix | null {
  const match = /^([\d.]+)\/(\d{1,2})$/.exec(text)
  const address = parseIpv4(match?.[1] ?? '')
  const length = Number(match?.[2] ?? 33)
  return address === null || length > 32 ? null : prefixAround(address, length)
}

/** Reads `fd00:10:244:1::/64`, host bits cleared; `null` for anything else, IPv4 prefixes too. */
export function parseIpv6Prefix(text: string): Ipv6Prefix | null {
  const match = /^([^/]+)\/(\d{1,3})$/.exec(text)
  const address = parseIpv6(match?.[1] ?? '')
  const length = Number(match?.[2] ?? 129)
  return address === null || length > 128 ? null : prefixAround(address, length)
}
