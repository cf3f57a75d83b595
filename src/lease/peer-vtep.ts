// Where a peer's packets go through one tunnel: which of its subnets lie behind which VTEP. The one reading of leases
// for everything that forwards, be it our engine or the kernel.
import { type Prefix, parseIpv6, type UnderlayAddress } from '../../dataplane/index.ts'
import type { Encapsulation } from '../config/mtu.ts'
import { vtepMacForIpv6, vtepMacOf } from '../store/flannel-json.ts'
import { ipv6HalfOf, type Lease } from './lease.ts'

/** Our own end of the tunnel. */
export interface TunnelEnd {
  readonly encapsulation: Encapsulation
  /** An IPv6 one carries IPv6 subnets, by the second half of leases. */
  readonly underlayAddress: UnderlayAddress
  /** Whether an IPv4 tunnel carries IPv6 subnets as well. */
  readonly ipv6Network: Prefix | null
}

export interface PeerVtep {
  readonly subnets: readonly Prefix[]
  /** 0 where the encapsulation has no MACs. */
  readonly mac: number
  readonly underlayAddress: UnderlayAddress
}

/** `null` for a lease with nothing behind this tunnel, or without a VTEP that could be sent to. */
export function peerVtep(lease: Lease, local: TunnelEnd): PeerVtep | null {
  const { attributes, subnet } = lease
  const half = ipv6HalfOf(lease)
  if (typeof local.underlayAddress === 'bigint') {
    const [mac, underlayAddress] = [vtepMacForIpv6(attributes), parseIpv6(attributes.publicIpv6 ?? '')]
    return half === null || mac === null || underlayAddress === null ? null : { subnets: [half], mac, underlayAddress }
  }
  const mac = local.encapsulation === 'udp' ? 0 : vtepMacOf(attributes)
  if (subnet === null || mac === null) return null
  const subnets = half === null || local.ipv6Network === null ? [subnet] : [subnet, half]
  return { subnets, mac, underlayAddress: attributes.publicIp }
}
