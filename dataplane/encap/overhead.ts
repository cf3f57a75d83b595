// What each encapsulation adds to an inner packet on the underlay, computed from the headers themselves.
import * as ethernet from '../wire/ethernet.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import * as udp from '../wire/udp.ts'
import * as vxlan from '../wire/vxlan.ts'

const TUNNEL_BYTES = {
  vxlan: udp.HEADER_LEN + vxlan.HEADER_LEN + ethernet.HEADER_LEN,
  udp: udp.HEADER_LEN,
} as const

/** Bytes that encapsulation over IPv4 adds to an inner packet. */
export const OVERHEAD_BYTES = overheadOver(ipv4.HEADER_LEN)

/** The same over IPv6. */
export const WIDE_OVERHEAD_BYTES = overheadOver(ipv6.HEADER_LEN)

function overheadOver(outerBytes: number): Readonly<Record<keyof typeof TUNNEL_BYTES, number>> {
  return { vxlan: outerBytes + TUNNEL_BYTES.vxlan, udp: outerBytes + TUNNEL_BYTES.udp }
}
