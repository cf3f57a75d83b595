// What the control plane hands to the fast path: which overlay prefix lies behind which VTEP.
import type { Prefix } from '../wire/prefix.ts'

/** Address of a node on the underlay: IPv4 as an unsigned 32-bit number, IPv6 as an unsigned 128-bit bigint. */
export type UnderlayAddress = number | bigint

/** A node's tunnel endpoint as its peers see it. */
export interface RemoteVtep {
  /** All of one table are of one family: that of the socket. */
  readonly underlayAddress: UnderlayAddress
  /** UDP port on which the node listens (8472 unless the network config says otherwise). */
  readonly port: number
  /** MAC of the node's VTEP as an unsigned 48-bit number; 0 where the encapsulation has no MACs. */
  readonly mac: number
  /** 24-bit VXLAN network identifier. */
  readonly vni: number
}

/** One overlay prefix and the VTEP behind it: the kernel's route, neighbour and FDB entry in one. */
export interface ForwardingEntry {
  readonly prefix: Prefix
  readonly vtep: RemoteVtep
}
