// What the daemon asks of whatever moves its packets: our userspace engine, or the kernel's VTEP.
import type {
  Feature,
  Ipv4Prefix,
  Ipv6Prefix,
  Offender,
  OuterDf,
  PeerTraffic,
  UnderlayAddress,
  WorkerDriver,
} from '../../dataplane/index.ts'
import type { Lease } from '../lease/lease.ts'

/** What is known of this node before it has a lease. Addresses are unsigned 32-bit numbers. */
export interface VtepOutline {
  readonly encapsulation: 'vxlan' | 'udp'
  /** `flannel.<VNI>`, `flannel0` for plain UDP. */
  readonly deviceName: string
  /** 0 where the encapsulation has none. */
  readonly vni: number
  /** UDP port we listen on and peers send to. */
  readonly port: number
  /** Underlay interface and its address; the socket binds to it. */
  readonly underlayInterface: string
  readonly underlayAddress: number
  readonly network: Ipv4Prefix
  /** The IPv6 network whose packets cross through this device as well, `null` when only IPv4 does. */
  readonly ipv6Network: Ipv6Prefix | null
  /** MTU of the overlay device (underlay MTU − overhead). */
  readonly mtuBytes: number
}

/** Everything a dataplane must know of this node; MACs are 48-bit numbers. */
export interface LocalVtep extends VtepOutline {
  /** 0 where the encapsulation has no MACs. */
  readonly mac: number
  /** Own overlay address: the subnet's first address, as /32 on the device. */
  readonly overlayAddress: number
  readonly subnet: Ipv4Prefix
  /** Own IPv6 subnet; its first address is on the device as /128. `null` without `ipv6Network`. */
  readonly ipv6Subnet: Ipv6Prefix | null
}

export interface Dataplane {
  readonly kind: 'userspace' | 'kernel'
  /** By what the underlay can tell flows apart: `none`, `16 source ports`, … */
  readonly entropy: string
  /** What moves packets in and out: of the userspace engine one of its drivers, else `kernel`. */
  readonly driver: WorkerDriver | 'kernel'
  /** What the kernel takes off the driver's hands, and why it does or does not; empty until started. */
  features(): readonly Feature[]
  /**
   * Proves as far as possible that `start` will work, before a lease is taken: who cannot start must not disturb the
   * node that runs here already. Changes nothing on the host that outlives the process; what it opened `start` uses and
   * `stop` closes. @throws FlanneletteError port-busy, device-foreign, device-busy, network-overlap, tun-unavailable,
   * driver-unavailable, not-permitted
   */
  prepare(outline: VtepOutline): Promise<void>
  /**
   * Makes device, address, route and socket, after `prepare`. @throws FlanneletteError as `prepare`, and `host-command`
   */
  start(local: LocalVtep): Promise<void>
  /**
   * Goes on from another underlay address or interface, after `start`: device, address, routes and peers stay. Before
   * it fails nothing has changed, or the next call puts it right. @throws FlanneletteError as `start`
   */
  moveUnderlay(local: LocalVtep): Promise<void>
  /**
   * Takes packets up to another `mtuBytes`, after `start`: all else stays, and packets under way are not lost. After a
   * failure the next call puts it right. @throws FlanneletteError `host-command`
   */
  changeMtu(local: LocalVtep): Promise<void>
  /**
   * Forwards by these peers from now on; own lease and unusable ones are already left out. `peers` is the whole set.
   * Returns the generation of the table that results.
   */
  replacePeers(peers: readonly Lease[], cause: string): Promise<number>
  /** Counters by name, for status output and tests: `outbound.packets.read`, `inbound.dropped.vni-unknown`, … */
  counters(): Readonly<Record<string, number>>
  /**
   * What passed between this node and each peer, by underlay address (unsigned); times by monotonicClock. `null` where
   * nobody counts per peer.
   */
  traffic(): ReadonlyMap<UnderlayAddress, PeerTraffic> | null
  /** Whether tunnel packets have DF set; `clear` when absent. */
  readonly outerDf?: OuterDf
  /**
   * Largest inner packets that ways to peers take, in bytes by underlay address, where they are known to be limited; absent
   * where nobody knows.
   */
  pathLimits?(): ReadonlyMap<UnderlayAddress, number>
  /** How often each thread that moves packets was replaced after it had died; empty where there are none. */
  workerRestarts(): readonly number[]
  /** Who was refused by the source check lately, the latest first; none where another does the checking. */
  offenders(): readonly Offender[]
  /** What keeps packets from moving although there are peers, in one phrase; `null` when nothing does. */
  impairment(): string | null
  /** Peers that could not be programmed yet (0 when all are). */
  pendingPeers(): number
  /** Stops moving packets. `keep` leaves device, address and routes for the next start. */
  stop(mode: 'keep' | 'remove'): Promise<void>
}
