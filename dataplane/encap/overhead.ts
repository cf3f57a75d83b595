// What each encapsulation adds to an inner packet on the underlay, computed from the headers themselves.
import * as ethernet from '../wire/ethernet.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as udp from '../wire/udp.ts'
import * as vxlan from '../wire/vxlan.ts'

/** Bytes that encapsulation over IPv4 adds to an inner packet. */
export const OVERHEAD_BYTES = {
  vxlan: ipv4.HEADER_LEN + udp.HEADER_LEN + vxlan.HEADER_LEN + ethernet.HEADER_LEN,
  udp: ipv4.HEADER_LEN + udp.HEADER_LEN,
} as const
