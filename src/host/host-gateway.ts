// The backend `host-gw` as a dataplane: no device and no encapsulation. Each peer's public address is the gateway to its
// subnets, by routes on the underlay interface, which takes that all nodes are neighbours on one link. Whenever links,
// addresses or routes change, and every ten seconds, the routes are looked at.
import type { Clock } from '../clock.ts'
import { lastResult } from '../last-result.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { Turns } from '../turns.ts'
import { requireNetworkAdmin } from './capability.ts'
import { carriesAddress } from './carried-address.ts'
import type { Dataplane, LocalVtep, PeerWay, VtepOutline } from './dataplane.ts'
import type { Doorbell } from './ip-monitor.ts'
import { Lookout } from './lookout.ts'
import { networksOf, refuseConnectedOverlap } from './network-overlap.ts'
import { allCarried, routesTo } from './peer-route-plan.ts'
import { PeerRoutes } from './peer-routes.ts'
import { NOTHING_PENDING, type Pending, UNDERLAY_GONE } from './pending.ts'
import type { RouteTable } from './route-table.ts'

export interface RouteTools {
  readonly log: Log
  readonly clock: Clock
  readonly table: RouteTable
  /** Rings when links, addresses or routes may have changed. */
  readonly doorbell: (ring: () => void) => Doorbell
  /** Stands in for the host's interfaces in tests. */
  readonly carries?: typeof carriesAddress
}

export class HostGateway implements Dataplane {
  readonly kind = 'routes'
  readonly entropy = 'none'
  readonly driver = 'none'
  readonly #tools: RouteTools
  #local: LocalVtep | null = null
  #routes: PeerRoutes | null = null
  /** `null` until the first set is known: what a former run left is not judged before. */
  #peers: readonly Lease[] | null = null
  readonly #allPending = lastResult(allCarried)
  #generation = 0
  #lookout: Lookout | null = null
  readonly #turns = new Turns()
  #stopped = false

  constructor(tools: RouteTools) {
    this.#tools = tools
  }

  /** @throws FlanneletteError `not-permitted`, `network-overlap`, `host-command` */
  async prepare(outline: VtepOutline): Promise<void> {
    requireNetworkAdmin('a route')
    await refuseConnectedOverlap(outline)
  }

  async start(local: LocalVtep): Promise<void> {
    const { table, log, clock, doorbell } = this.#tools
    this.#local = local
    this.#routes = new PeerRoutes({ table, log, networks: networksOf(local), sparedDevice: null })
    this.#lookout = new Lookout({ clock, doorbell, look: () => this.#pass() })
  }

  async moveUnderlay(local: LocalVtep): Promise<void> {
    this.#local = local
    await this.#pass()
  }

  /** Routes have no size. */
  async changeMtu(local: LocalVtep): Promise<void> {
    this.#local = local
  }

  async replacePeers(peers: readonly Lease[], _cause: string): Promise<number> {
    if (this.#routes === null) throw new Error('the dataplane is not started')
    this.#peers = peers
    this.#generation += 1
    const generation = this.#generation
    if (!(await this.#pass())) this.#lookout?.ring()
    return generation
  }

  /** Whether every peer has its routes. */
  #pass(): Promise<boolean> {
    return this.#turns.take(async () => {
      const [peers, local] = [this.#peers, this.#local]
      if (this.#routes === null || peers === null || local === null || this.#stopped) return true
      const states = await this.#routes.keep(peers.flatMap((peer) => routesTo(peer, local)))
      return [...states.values()].every(({ inForce }) => inForce)
    })
  }

  counters(): Readonly<Record<string, number>> {
    return this.#routes === null ? {} : { 'routes.restored': this.#routes.restored }
  }

  impairment(): string | null {
    const local = this.#local
    const { carries = carriesAddress } = this.#tools
    if (local === null || carries(local.underlayInterface, local.underlayAddress)) return null
    return UNDERLAY_GONE
  }

  pendingSubnets(): Pending {
    const [peers, local, why] = [this.#peers, this.#local, this.impairment()]
    if (why !== null && peers !== null && local !== null) return this.#allPending(peers, local, why)
    return this.#routes?.pending ?? NOTHING_PENDING
  }

  ways(): ReadonlyMap<string, PeerWay> {
    return new Map([...(this.#routes?.states ?? [])].map(([subnet, { why }]) => [subnet, { way: 'direct', why }]))
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.#stopped = true
    this.#lookout?.stop()
    await this.#turns.ended()
    if (mode === 'remove') await this.#routes?.remove()
  }
}
