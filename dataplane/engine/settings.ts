// What the engine must know of its node. Fixed for the life of an engine; the forwarding table is what changes.
import type { Ipv4Prefix } from '../wire/prefix.ts'

/**
 * `strict`: the outer source must hold the lease in which the inner source lies. `peer`: it must hold some lease.
 * `off`: anybody may inject, as with the kernel's VXLAN.
 */
export type SourceCheck = 'strict' | 'peer' | 'off'

export interface EngineSettings {
  /** Our own overlay address, the source of ICMP answers. Unsigned 32-bit. */
  readonly overlayAddress: number
  /** Our own subnet: what inbound packets must be for. */
  readonly subnet: Ipv4Prefix
  /** Largest inner packet that the tunnel takes without outer fragments. */
  readonly mtuBytes: number
  readonly sourceCheck: SourceCheck
  /** Whether UDP datagrams may be merged towards the TUN (safe from kernel 6.8.5 on). */
  readonly mergeUdp: boolean
}
