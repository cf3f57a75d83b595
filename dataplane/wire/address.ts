// Addresses as numbers, and as people write them. Off the hot path; the hot path compares numbers.

const IPV4 = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/

/** Dotted decimal to an unsigned 32-bit number; `null` for anything else. Leading zeros are refused, as Go's net.ParseIP does. */
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

const MAC = /^([0-9a-f]{2})([:-])([0-9a-f]{2})(?:\2([0-9a-f]{2})){4}$/i

/** `0a:00:00:00:00:01` (or with dashes, or dotted as in `0a00.0000.0001`) to a 48-bit number; `null` for anything else. */
export function parseMac(text: string): number | null {
  if (!MAC.test(text) && !/^[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}$/i.test(text)) return null
  return Number.parseInt(text.replace(/[:.-]/g, ''), 16)
}

/** A 48-bit number as lower-case, colon-separated hex. */
export function formatMac(mac: number): string {
  return (mac.toString(16).padStart(12, '0').match(/../g) ?? []).join(':')
}
