// A lease: a node's claim on a subnet until it expires. In flannel's terms throughout.
import { formatPrefix, type Ipv4Prefix, type Ipv6Prefix, type Prefix, parseIpv6Prefix } from '../../dataplane/index.ts'

/** What a node says of itself in its lease. Backend data is kept raw: each backend decodes its own. */
export interface LeaseAttributes {
  /** Unsigned 32-bit IPv4 address that peers send to; 0 when IPv4 is off. It is the node's identity. */
  readonly publicIp: number
  /** RFC 5952 text, or `null` when unset. */
  readonly publicIpv6: string | null
  /** `vxlan`, `host-gw`, …; empty for the `udp` and `alloc` backends, as flannel writes it. */
  readonly backendType: string
  /** Raw JSON value, `undefined` when absent; for vxlan `{ VNI, VtepMAC }`. */
  readonly backendData?: unknown
  readonly backendV6Data?: unknown
}

export interface Lease {
  readonly subnet: Ipv4Prefix
  /** IPv6 half of a dual-stack lease in RFC 5952 text (`fd00:1::/64`), `null` when there is none. */
  readonly ipv6Subnet: string | null
  readonly attributes: LeaseAttributes
  /** Wall-clock milliseconds at which the store lets it go; `null` for one that never expires (a reservation). */
  readonly expiresAtMs: number | null
  /** The store's modification counter of this key: compare-and-swap hangs on it. Opaque but ordered. */
  readonly revision: number
}

/** The IPv6 half as a prefix, `null` when there is none. */
export function ipv6HalfOf({ ipv6Subnet }: Pick<Lease, 'ipv6Subnet'>): Ipv6Prefix | null {
  return ipv6Subnet === null ? null : parseIpv6Prefix(ipv6Subnet)
}

/** The subnets of a lease or of its key: IPv4 first, then the IPv6 half if there is one. */
export function halvesOf(lease: Pick<Lease, 'subnet' | 'ipv6Subnet'>): Prefix[] {
  const half = ipv6HalfOf(lease)
  return half === null ? [lease.subnet] : [lease.subnet, half]
}

/** Each half in text form: `10.244.1.0/24`, `fd00:1::/64`. */
export function halvesInWords(lease: Pick<Lease, 'subnet' | 'ipv6Subnet'>): string[] {
  return halvesOf(lease).map(formatPrefix)
}

/** `10.244.1.0/24 and fd00:1::/64` */
export function subnetsInWords(lease: Pick<Lease, 'subnet' | 'ipv6Subnet'>): string {
  return halvesInWords(lease).join(' and ')
}
