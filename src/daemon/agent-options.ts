// What a node agent is made of. Everything that touches the machine comes in here, so that tests can stand in for it.
import type { UnderlayAddress } from '../../dataplane/index.ts'
import type { Clock } from '../clock.ts'
import type { UnderlayFamilies } from '../config/tunnel-backend.ts'
import type { Dataplane, LocalVtep, VtepOutline } from '../host/dataplane.ts'
import type { FirewallMode } from '../host/firewall/firewall.ts'
import type { UnderlayInterface } from '../host/underlay-interface.ts'
import type { Log } from '../log.ts'
import type { LeaseStore } from '../store/lease-store.ts'
import type { StateDirectory } from './state-directory.ts'
import type { UnderlayEyes } from './underlay-follower.ts'

/** `degraded`: forwarding, but something needs attention (store away, lease unconfirmed, leases in conflict). */
export type AgentState = 'starting' | 'ready' | 'degraded' | 'lost' | 'stopping'

/** Rules and routes on the host beside the dataplane's own. */
export interface HostWork {
  /** Resolves once they are there, or it is logged why not. */
  start(local: LocalVtep, mode: FirewallMode): Promise<void>
  stop(mode: 'keep' | 'remove'): Promise<void>
  /** The next look at them is not waited for. */
  lookNow(): void
  /** What this node lacks on its host, in one phrase; `null` when nothing. */
  problem(): string | null
}

export interface AgentOptions {
  readonly store: LeaseStore
  readonly dataplane: Dataplane
  readonly state: StateDirectory
  readonly hostWork: HostWork
  readonly clock: Clock
  readonly log: Log
  /** Numbers in [0, 1). */
  readonly random: () => number
  /** Chooses the underlay by what was asked for. @throws FlanneletteError `interface-unsuitable` */
  readonly selectUnderlay: (families: UnderlayFamilies) => Promise<UnderlayInterface>
  /** How changes of the underlay are noticed; absent: they are not followed. */
  readonly underlayEyes?: UnderlayEyes
  /** Makes the public address ours on this host. @throws FlanneletteError `device-busy` when another daemon has it */
  readonly claimIdentity: (publicIp: UnderlayAddress) => Promise<void>
  /**
   * Tells other daemons of this host what this one uses of its network; absent: there are none.
   * @throws FlanneletteError `device-busy`, `port-busy`, `network-overlap` when one of them has some of it
   */
  readonly claimPlace?: (outline: VtepOutline) => Promise<void>
  /** `--public-ip`, unsigned 32-bit. */
  readonly publicIp?: number
  /** `--public-ipv6`, unsigned 128-bit. */
  readonly publicIpv6?: bigint
  /** Flags of tunnels that somebody set; absent: none. */
  readonly tunnelFlags?: readonly string[]
  readonly subnetFile: string
  /** Where Docker options made from subnet.env go; absent: nowhere. */
  readonly dockerOptsFile?: string
  readonly renewMarginMs: number
  /** What subnet.env says of masquerading: container engines then leave it to us. */
  readonly ipMasq: boolean
}
