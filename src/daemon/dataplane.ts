// What the daemon asks of whatever moves its packets: our userspace engine, or the kernel's VTEP.
import type { Feature, Ipv4Prefix } from '../../dataplane/index.ts'
import type { Lease } from '../lease/lease.ts'

/** Everything a dataplane must know of this node. Addresses are unsigned 32-bit numbers, MACs 48-bit numbers. */
export interface LocalVtep {
  readonly encapsulation: 'vxlan' | 'udp'
  /** `flannel.<VNI>`, `flannel0` for plain UDP. */
  readonly deviceName: string
  /** 0 where the encapsulation has none. */
  readonly vni: number
  /** UDP port we listen on and peers send to. */
  readonly port: number
  /** 0 where the encapsulation has no MACs. */
  readonly mac: number
  /** Underlay interface and its address; the socket binds to it. */
  readonly underlayInterface: string
  readonly underlayAddress: number
  /** Own overlay address: the subnet's first address, as /32 on the device. */
  readonly overlayAddress: number
  readonly network: Ipv4Prefix
  readonly subnet: Ipv4Prefix
  /** MTU of the overlay device (underlay MTU − overhead). */
  readonly mtuBytes: number
}

export interface Dataplane {
  readonly kind: 'userspace' | 'kernel'
  /** What moves packets in and out: of the userspace engine one of its drivers, else `kernel`. */
  readonly driver: 'offload' | 'plain' | 'kernel'
  /** What the kernel takes off the driver's hands, and why it does or does not; empty until started. */
  features(): readonly Feature[]
  /** Makes device, address, route and socket. @throws FlanneletteError port-busy, device-foreign, tun-unavailable, not-permitted */
  start(local: LocalVtep): Promise<void>
  /**
   * Forwards by these peers from now on; own lease and unusable ones are already left out. `peers` is the whole set.
   * Returns the generation of the table that results.
   */
  replacePeers(peers: readonly Lease[], cause: string): Promise<number>
  /** Counters by name, for status output and tests: `outbound.packets.read`, `inbound.dropped.vni-unknown`, … */
  counters(): Readonly<Record<string, number>>
  /** Peers that could not be programmed yet (0 when all are). */
  pendingPeers(): number
  /** Stops moving packets. `keep` leaves device, address and routes for the next start. */
  stop(mode: 'keep' | 'remove'): Promise<void>
}
