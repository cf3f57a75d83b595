// What the engine must know of its node when it starts. Of these only the MTU may change later, see Engine.setMtu.
import type { Ipv4Prefix, Ipv6Prefix, Prefix } from '../wire/prefix.ts'

/**
 * `strict`: the outer source must hold the lease in which the inner source lies. `peer`: it must hold some lease.
 * `off`: anybody may inject, as with the kernel's VXLAN.
 */
export type SourceCheckMode = 'strict' | 'peer' | 'off'

export interface EngineSettings {
  /** Our own overlay address, the source of ICMP answers; `null` when the node has none. Unsigned 32-bit. */
  readonly overlayAddress: number | null
  /** Our own IPv6 overlay address, `null` when the node has none: no ICMPv6 answers then. Unsigned 128-bit. */
  readonly overlayIpv6: bigint | null
  /** Our own subnets: what inbound packets must be for. `null` where a family does not cross. */
  readonly subnet: Ipv4Prefix | null
  readonly ipv6Subnet: Ipv6Prefix | null
  /** Largest inner packet that the tunnel takes without outer fragments, in bytes. */
  readonly mtuBytes: number
  readonly sourceCheck: SourceCheckMode
  /** Inner sources that any lease holder may forward for others, in `strict` mode too; none when left out. */
  readonly sourceAllow?: readonly Prefix[]
  /** Whether the tunnel counts as a hop on both sides (flannel's plain UDP) or as none (VXLAN). */
  readonly countsHop: boolean
  /** Whether TCP segments may be merged towards the TUN; they are unless this says no. */
  readonly mergeTcp?: boolean
  /** Whether UDP datagrams may be merged towards the TUN (safe from kernel 6.8.5 on). */
  readonly mergeUdp: boolean
}
