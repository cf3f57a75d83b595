// Addresses as numbers, and as people write them. Off the hot path; the hot path compares numbers.

const IPV4 = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/

/**
 * Dotted decimal to an unsigned 32-bit number; `null` for anything else. Leading zeros are refused, as Go's net.ParseIP
 * does.
 */
export function parseIpv4(text: string): number | null {
  const match = IPV4.exec(text)
  if (match === null) return null
  let address = 0
  for (const octet of match.slice(1)) {
    const value = Number(octet)
    if (value > 255) return null
    address = address * 256 + value
  }
  return address
}

/** An unsigned 32-bit number in dotted decimal. */
export function formatIpv4(address: number): string {
  return `${(address >>> 24) & 255}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`
}

const IPV6_GROUPS = 8
const GROUP = /^[0-9a-f]{1,4}$/i

/**
 * `a.b.c.d` at the end of an IPv6 address as the two groups that it stands for; anything else as it is, `null` if
 * malformed.
 */
function withoutDots(text: string): string | null {
  const lastGroup = text.lastIndexOf(':') + 1
  if (lastGroup === 0 || !text.includes('.')) return text
  const address = parseIpv4(text.slice(lastGroup))
  if (address === null) return null
  return `${text.slice(0, lastGroup)}${(address >>> 16).toString(16)}:${(address & 0xffff).toString(16)}`
}

/**
 * An IPv6 address (RFC 4291 §2.2) to an unsigned 128-bit number; `null` for anything else. Reads `::`, upper case and a
 * dotted end (`::ffff:1.2.3.4`); refuses a zone (`fe80::1%eth0`), as Go's net.ParseIP does.
 */
export function parseIpv6(text: string): bigint | null {
  const halves = withoutDots(text)
    ?.split('::')
    .map((half) => (half === '' ? [] : half.split(':')))
  const [head, tail] = halves ?? []
  if (halves === undefined || head === undefined || halves.length > 2) return null
  const missing = IPV6_GROUPS - head.length - (tail?.length ?? 0)
  if (tail === undefined ? missing !== 0 : missing < 1) return null
  const groups = [...head, ...Array<string>(missing).fill('0'), ...(tail ?? [])]
  if (!groups.every((group) => GROUP.test(group))) return null
  return BigInt(`0x${groups.map((group) => group.padStart(4, '0')).join('')}`)
}

/** The first of the longest runs of two or more zero groups: where it starts and how long it is. */
function longestZeros(groups: readonly number[]): { readonly start: number; readonly length: number } {
  let longest = { start: 0, length: 1 }
  for (let start = 0; start < groups.length; start++) {
    let length = 0
    while (groups[start + length] === 0) length++
    if (length > longest.length) longest = { start, length }
  }
  return longest
}

const MAPPED = 0xffffn

/** An unsigned 128-bit number as RFC 5952 writes it; an IPv4-mapped address with a dotted end (§5), as Go prints it. */
export function formatIpv6(address: bigint): string {
  if (address >> 32n === MAPPED) return `::ffff:${formatIpv4(Number(address & 0xffff_ffffn))}`
  const digits = address.toString(16).padStart(IPV6_GROUPS * 4, '0')
  const groups = (digits.match(/..../g) ?? []).map((group) => Number.parseInt(group, 16))
  const { start, length } = longestZeros(groups)
  const written = groups.map((group) => group.toString(16))
  if (length < 2) return written.join(':')
  return `${written.slice(0, start).join(':')}::${written.slice(start + length).join(':')}`
}

const MAC = /^([0-9a-f]{2})([:-])([0-9a-f]{2})(?:\2([0-9a-f]{2})){4}$/i

/** An address of either family: IPv4 is given as a number, IPv6 as a bigint. */
export function formatAddress(address: number | bigint): string {
  return typeof address === 'number' ? formatIpv4(address) : formatIpv6(address)
}

/**
 * `0a:00:00:00:00:01` (or with dashes, or dotted as in `0a00.0000.0001`) to a 48-bit number; `null` for anything else.
 */
export function parseMac(text: string): number | null {
  if (!MAC.test(text) && !/^[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}$/i.test(text)) return null
  return Number.parseInt(text.replace(/[:.-]/g, ''), 16)
}

/** A 48-bit number as lower-case, colon-separated hex. */
export function formatMac(mac: number): string {
  return (mac.toString(16).padStart(12, '0').match(/../g) ?? []).join(':')
}
