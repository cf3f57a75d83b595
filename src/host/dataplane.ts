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
import type { Encapsulation } from '../config/mtu.ts'
import type { PlainBackend } from '../config/plain-backend.ts'
import type { Lease } from '../lease/lease.ts'
import type { Pending } from './pending.ts'

/**
 * What is known of this node before it has a lease. Addresses are unsigned numbers, those of IPv6 bigints.
 */
export interface VtepOutline {
  readonly encapsulation: Encapsulation
  /** `flannel.<VNI>`, `flannel-v6.<VNI>` over IPv6, `flannel0` for plain UDP; empty where the backend has none. */
  readonly deviceName: string
  /** 0 where the encapsulation has none. */
  readonly vni: number
  /** UDP port we listen on and peers send to; 0 for none. */
  readonly port: number
  /** Underlay interface and its address; the socket binds to it. */
  readonly underlayInterface: string
  readonly underlayAddress: UnderlayAddress
  /** `null` where IPv4 does not cross. */
  readonly network: Ipv4Prefix | null
  /** `null` where IPv6 does not cross. */
  readonly ipv6Network: Ipv6Prefix | null
  /** What IPv6 crosses by where that is not this very device. */
  readonly ipv6Device?: Ipv6Device
  /** MTU of the overlay device (underlay MTU − overhead). */
  readonly mtuBytes: number
  /** Peers on the same link are to be reached by routes, past the tunnel. Absent: none are. */
  readonly directRouting?: boolean
  /** What runs when nothing is tunnelled; absent for a tunnel. */
  readonly plain?: PlainBackend
  /** The interface's IPv6 address, for a backend without a tunnel that has both families. */
  readonly underlayIpv6?: bigint
  /** `Backend.GBP`: marks of packets cross the tunnel (draft-smith-vxlan-group-policy). Absent: they do not. */
  readonly groupPolicy?: boolean
  /** `Backend.Learning`: the kernel's device learns MACs from what it receives. Absent: it does not. */
  readonly learning?: boolean
}

/** A device of IPv6's own beside that of IPv4, whose tunnel is between IPv6 addresses of hosts. */
export interface Ipv6Device {
  /** `flannel-v6.<VNI>` */
  readonly deviceName: string
  /** On the same interface. */
  readonly underlayAddress: bigint
  readonly mtuBytes: number
}

/** Everything a dataplane must know of this node; MACs are 48-bit numbers. */
export interface LocalVtep extends VtepOutline {
  readonly ipv6Device?: Ipv6Device & { readonly mac: number }
  /** 0 where the encapsulation has no MACs. */
  readonly mac: number
  /** Own overlay address: the first one of the subnet, on the device as /32 (or /128 where only IPv6 crosses). */
  readonly overlayAddress: number | bigint
  readonly subnet: Ipv4Prefix | null
  /** Own IPv6 subnet; its first address is on the device as /128. `null` without `ipv6Network`. */
  readonly ipv6Subnet: Ipv6Prefix | null
}

/** How packets get to a subnet of a peer that is not pending. */
export interface PeerWay {
  /** `direct`: by a route to the peer itself, without encapsulation. */
  readonly way: 'tunnel' | 'direct'
  /** Why, in one phrase; may be empty. */
  readonly why: string
}

/** What an engine of ours, and nobody else, has to tell. All of it is empty before the start, and outlives the stop. */
export interface EngineBooks {
  /** What the kernel takes off the driver's hands, and why it does or does not. */
  features(): readonly Feature[]
  /** What passed between this node and each peer, by underlay address (unsigned); times by monotonicClock. */
  traffic(): ReadonlyMap<UnderlayAddress, PeerTraffic>
  /** Largest inner packets that ways to peers take, in bytes by underlay address, where they are known to be limited. */
  pathLimits(): ReadonlyMap<UnderlayAddress, number>
  /** How often each thread that moves packets was replaced after it had died. */
  workerRestarts(): readonly number[]
  /** Who was refused by the source check lately, the latest first. */
  offenders(): readonly Offender[]
}

export interface Dataplane {
  /** `routes` leaves it to the kernel's routing, `none` moves nothing at all, `commands` leaves it to the operator's. */
  readonly kind: 'userspace' | 'kernel' | 'routes' | 'none' | 'commands'
  /** Why it is this kind, where no person said so. */
  readonly why?: string | undefined
  /** By what the underlay can tell flows apart: `none`, `16 source ports`, … */
  readonly entropy: string
  /** What moves packets in and out: of the userspace engine one of its drivers, else `kernel`, or nothing of ours. */
  readonly driver: WorkerDriver | 'kernel' | 'none'
  /** Absent where the kernel moves packets, or nobody does: these count for no peer, and refuse none by its source. */
  readonly books?: EngineBooks | undefined
  /**
   * Proves as far as possible that `start` will work, before a lease is taken: who cannot start must not disturb the
   * node that runs here already. Changes nothing on the host that outlives the process; what it opened `start` uses and
   * `stop` closes. @throws FlanneletteError port-busy, device-foreign, device-busy, network-overlap, tun-unavailable,
   * driver-unavailable, not-permitted
   */
  prepare(outline: VtepOutline): Promise<void>
  /** After `prepare`: what peers are to find in our lease, a JSON value. Absent where it holds a VTEP's MAC or nothing. */
  leaseData?(): unknown
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
  /** Whether tunnel packets have DF set; `clear` when absent. */
  readonly outerDf?: OuterDf
  /**
   * What keeps packets from moving although there are peers, in one phrase; `null` when nothing does. Peers whose way it
   * is on are pending by it.
   */
  impairment(): string | null
  /**
   * Subnets of the last set of peers that packets are not sent to for now, each with why. This is what pending means,
   * whatever the dataplane: it could not be programmed (yet), somebody else's route takes all of it, or an impairment is
   * on its way, the underlay address that is gone first of all. An IPv6 half may be pending alone, and so is it counted. A
   * dataplane that leaves packets to others tells what it knows of their work.
   */
  pendingSubnets(): Pending
  /**
   * By subnet in text form, where peers may be reached in more ways than one, or where somebody else's route takes a part
   * of one; absent or `null` where not. What it says of a subnet that is pending does not count.
   */
  ways?(): ReadonlyMap<string, PeerWay> | null
  /** Stops moving packets. `keep` leaves device, address and routes for the next start. */
  stop(mode: 'keep' | 'remove'): Promise<void>
}
