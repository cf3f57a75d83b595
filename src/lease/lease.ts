// A lease: a node's claim on a subnet until it expires. In flannel's terms throughout.
import {
  formatAddress,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  type Prefix,
  parseIpv6,
  parseIpv6Prefix,
  samePrefix,
  type UnderlayAddress,
} from '../../dataplane/index.ts'
import { resultPer } from '../last-result.ts'

/** What a node says of itself in its lease. Backend data is kept raw: each backend decodes its own. */
export interface LeaseAttributes {
  /** Unsigned 32-bit IPv4 address that peers send to; 0 when IPv4 is off. */
  readonly publicIp: number
  /** Where peers with a tunnel over IPv6 send to, RFC 5952 text; `null` when unset. */
  readonly publicIpv6: string | null
  /** `vxlan`, `host-gw`, …; empty for the `udp` and `alloc` backends, as flannel writes it. */
  readonly backendType: string
  /** Raw JSON value, `undefined` when absent; for vxlan `{ VNI, VtepMAC }`. */
  readonly backendData?: unknown
  readonly backendV6Data?: unknown
}

export interface Lease {
  /** `null` where IPv4 is off: there is an IPv6 subnet then. */
  readonly subnet: Ipv4Prefix | null
  /** IPv6 half in RFC 5952 text (`fd00:1::/64`), `null` when there is none. */
  readonly ipv6Subnet: string | null
  readonly attributes: LeaseAttributes
  /** Wall-clock milliseconds at which the store lets it go; `null` for one that never expires (a reservation). */
  readonly expiresAtMs: number | null
  /** The store's modification counter of this key: compare-and-swap hangs on it. Opaque but ordered. */
  readonly revision: number
}

/** The subnets of a lease, which are its key. */
export type Halves = Pick<Lease, 'subnet' | 'ipv6Subnet'>

/** Where peers send to. */
export type PublicAddresses = Pick<LeaseAttributes, 'publicIp' | 'publicIpv6'>

/** By the lease, which never changes: each change of one is a look at ten thousand, and text takes long to read. */
const halfIn = resultPer(({ ipv6Subnet }: Pick<Lease, 'ipv6Subnet'>) => parseIpv6Prefix(ipv6Subnet ?? ''))

/** The IPv6 half as a prefix, `null` when there is none. */
export function ipv6HalfOf(lease: Pick<Lease, 'ipv6Subnet'>): Ipv6Prefix | null {
  return lease.ipv6Subnet === null ? null : halfIn(lease)
}

/** The subnets of a lease or of its key: IPv4 first, then the IPv6 half if there is one. */
export function halvesOf(lease: Halves): Prefix[] {
  const half = ipv6HalfOf(lease)
  return [...(lease.subnet === null ? [] : [lease.subnet]), ...(half === null ? [] : [half])]
}

/** What a lease goes by among others: its IPv4 subnet, the IPv6 one where there is no other. */
export function leadingHalf(lease: Halves): Prefix {
  if (lease.subnet !== null) return lease.subnet
  const half = ipv6HalfOf(lease)
  if (half === null) throw new Error('a lease without a subnet')
  return half
}

/** `10.244.1.0/24`: the leading half as text. */
export function nameOf(lease: Halves): string {
  return formatPrefix(leadingHalf(lease))
}

/** Whether both are leases for one subnet: the IPv4 one decides, whatever halves are beside it. */
export function sameSubnet(a: Halves, b: Halves): boolean {
  if (a.subnet !== null && b.subnet !== null) return samePrefix(a.subnet, b.subnet)
  return a.subnet === b.subnet && a.ipv6Subnet === b.ipv6Subnet
}

/**
 * By what a node is known: its IPv4 address, as with flannel, or the IPv6 one where IPv4 is off (there flannel knows
 * all nodes by 0.0.0.0, and takes them for one).
 */
export function identityOf({ publicIp, publicIpv6 }: PublicAddresses): UnderlayAddress {
  if (publicIp !== 0 || publicIpv6 === null) return publicIp
  return parseIpv6(publicIpv6) ?? publicIp
}

/** The same as text. */
export function identityInWords(addresses: PublicAddresses): string {
  return formatAddress(identityOf(addresses))
}

/** By the lease as well: how many peers are pending is asked for by every look at a node. */
const wordsOf = resultPer((lease: Halves): readonly string[] => halvesOf(lease).map(formatPrefix))

/** Each half in text form: `10.244.1.0/24`, `fd00:1::/64`. */
export function halvesInWords(lease: Halves): readonly string[] {
  return wordsOf(lease)
}

/** `10.244.1.0/24 and fd00:1::/64` */
export function subnetsInWords(lease: Halves): string {
  return halvesInWords(lease).join(' and ')
}
