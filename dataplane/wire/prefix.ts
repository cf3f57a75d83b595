// IPv4 prefixes (CIDR), as numbers. Shifts by 32 are a no-op in JavaScript, so masks are made without them.
import { formatIpv4, parseIpv4 } from './address.ts'

/** An IPv4 prefix. `address` is an unsigned 32-bit number with no bit set beyond `length` (0-32). */
export interface Ipv4Prefix {
  readonly address: number
  readonly length: number
}

/** Netmask of a prefix length 0-32, as an unsigned 32-bit number. */
export function maskOf(length: number): number {
  return length === 0 ? 0 : (-1 << (32 - length)) >>> 0
}

/** Number of addresses in a prefix of that length (1 to 2^32). */
export function sizeOf(length: number): number {
  return 2 ** (32 - length)
}

/** The prefix of that length around an address; host bits are cleared. */
export function prefixAround(address: number, length: number): Ipv4Prefix {
  return { address: (address & maskOf(length)) >>> 0, length }
}

/** Last address of the prefix. */
export function lastAddress(prefix: Ipv4Prefix): number {
  return prefix.address + sizeOf(prefix.length) - 1
}

export function containsAddress(prefix: Ipv4Prefix, address: number): boolean {
  return (address & maskOf(prefix.length)) >>> 0 === prefix.address
}

/** Whether `inner` lies wholly inside `outer` (equal counts). */
export function containsPrefix(outer: Ipv4Prefix, inner: Ipv4Prefix): boolean {
  return outer.length <= inner.length && containsAddress(outer, inner.address)
}

export function overlaps(a: Ipv4Prefix, b: Ipv4Prefix): boolean {
  return containsPrefix(a, b) || containsPrefix(b, a)
}

export function samePrefix(a: Ipv4Prefix, b: Ipv4Prefix): boolean {
  return a.address === b.address && a.length === b.length
}

/** Addresses that are no single host's on a network: this network, loopback, multicast and reserved (RFC 6890, RFC 5771). */
export const NON_UNICAST_PREFIXES: readonly Ipv4Prefix[] = [
  { address: 0, length: 8 },
  { address: 0x7f000000, length: 8 },
  { address: 0xe0000000, length: 3 },
]

/** Whether another host can be reached at the address. A subnet's own broadcast address cannot be told from it alone. */
export function isUnicast(address: number): boolean {
  return !NON_UNICAST_PREFIXES.some((prefix) => containsAddress(prefix, address))
}

/** `10.244.1.0/24`, as people and `ip route` write it. */
export function formatPrefix(prefix: Ipv4Prefix): string {
  return `${formatIpv4(prefix.address)}/${prefix.length}`
}

/** Reads `10.244.1.0/24`; host bits are cleared, as Go's net.ParseCIDR does for the network. `null` for anything else. */
export function parsePrefix(text: string): Ipv4Prefix | null {
  const match = /^([\d.]+)\/(\d{1,2})$/.exec(text)
  const address = parseIpv4(match?.[1] ?? '')
  const length = Number(match?.[2] ?? 33)
  return address === null || length > 32 ? null : prefixAround(address, length)
}
