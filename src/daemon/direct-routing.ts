// `DirectRouting` around a tunnel's dataplane: a peer that is a neighbour on the underlay's link is reached by a route to
// it, past the tunnel. The choice follows from the kernel's own answer to how it would send to the peer's public address;
// it is made anew whenever peers, links, addresses or routes change, and every ten seconds.
//
// The userspace engine keeps every peer: a direct one has a more specific route than the network's into the device, and
// the moment that is gone its packets take the tunnel. What a peer sends through the tunnel is accepted all the same. The
// kernel's VTEP has a route to each peer already: it is given those only that take the tunnel.
import type { Dataplane, LocalVtep, PeerWay, VtepOutline } from '../host/dataplane.ts'
import type { RouteTools } from '../host/host-gateway.ts'
import type { RouteInfo } from '../host/ip.ts'
import { Lookout } from '../host/lookout.ts'
import { networksOf } from '../host/network-overlap.ts'
import { allCarried, carriedHalves, type PeerRoute, routesTo } from '../host/peer-route-plan.ts'
import { PeerRoutes, type RouteState } from '../host/peer-routes.ts'
import { type Pending, UNDERLAY_GONE } from '../host/pending.ts'
import { isForeignRoute } from '../host/route-place.ts'
import { lastResult } from '../last-result.ts'
import type { Lease } from '../lease/lease.ts'
import { Turns } from '../turns.ts'
import { ChosenDataplane } from './chosen-dataplane.ts'

export class DirectRouting extends ChosenDataplane {
  readonly #tools: RouteTools
  /** False: what a former run has left is taken away, and that is all. */
  #wanted = false
  #local: LocalVtep | null = null
  #routes: PeerRoutes | null = null
  /** `null` until the first set is known: what a former run left is not judged before. */
  #peers: readonly Lease[] | null = null
  /** What the inner dataplane was given last, where it is not given all. */
  #tunnelled: readonly Lease[] = []
  #ways: ReadonlyMap<string, PeerWay> = new Map()
  /** By subnet: what keeps a peer from being reached past the tunnel. */
  #obstacles: ReadonlyMap<string, string> = new Map()
  readonly #allPending = lastResult(allCarried)
  readonly #tunnelledPending = lastResult((pending: Pending, ways: ReadonlyMap<string, PeerWay>): Pending => {
    return pending.size === 0 ? pending : new Map([...pending].filter(([subnet]) => ways.get(subnet)?.way !== 'direct'))
  })
  #lookout: Lookout | null = null
  readonly #turns = new Turns()
  /** Whether what a former run with direct routing left is gone. */
  #cleared = false
  #stopped = false

  constructor(inner: Dataplane, tools: RouteTools) {
    super(inner, () => null)
    this.#tools = tools
  }

  override prepare(outline: VtepOutline): Promise<void> {
    this.#wanted = outline.directRouting === true
    return super.prepare(outline)
  }

  override async start(local: LocalVtep): Promise<void> {
    await super.start(local)
    const { table, log, clock, doorbell } = this.#tools
    this.#local = local
    const place = { networks: networksOf(local), sparedDevice: local.deviceName }
    // The userspace engine looks for others' routes to all peers.
    this.#routes = new PeerRoutes({ table, log, ...place, isWatched: this.inner.kind === 'userspace' })
    if (this.#wanted) this.#lookout = new Lookout({ clock, doorbell, look: () => this.#lookSafely() })
  }

  override async moveUnderlay(local: LocalVtep): Promise<void> {
    await super.moveUnderlay(local)
    this.#local = local
    await this.#turns.take(() => this.#look())
  }

  override replacePeers(peers: readonly Lease[], cause: string): Promise<number> {
    return this.#turns.take(async () => {
      this.#peers = peers
      if (this.inner.kind !== 'kernel') {
        const generation = await super.replacePeers(peers, cause)
        if (!(await this.#look())) this.#lookout?.ring()
        return generation
      }
      const wanted = await this.#wantedRoutes()
      const generation = await this.#giveInner(this.#tunnelledBefore(wanted), cause)
      await this.#keep(wanted)
      await this.#giveInnerTheRest(wanted)
      return generation
    })
  }

  override unseen(): string | null {
    return super.unseen() ?? this.#routes?.unseen ?? null
  }

  /** What keeps the tunnel from a subnet is no matter to one that is reached past it, but for a lost underlay. */
  override pendingSubnets(): Pending {
    const [inner, local] = [super.pendingSubnets(), this.#local]
    if (!this.#wanted || local === null) return inner
    if (this.impairment() === UNDERLAY_GONE) return this.#allPending(this.#peers ?? [], local, UNDERLAY_GONE)
    return this.#tunnelledPending(inner, this.#ways)
  }

  /** Where somebody else's route takes a part of a subnet from the tunnel, that counts. */
  override ways(): ReadonlyMap<string, PeerWay> | null {
    const inner = super.ways()
    if (!this.#wanted) return inner
    const taken = [...(inner ?? [])].filter(([subnet, { why }]) => !this.#isDirect(subnet) && isForeignRoute(why))
    return taken.length === 0 ? this.#ways : new Map([...this.#ways, ...taken])
  }

  override async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.#stopped = true
    this.#lookout?.stop()
    await this.#turns.ended()
    // First the routes: until the device is gone its tunnel takes over.
    if (mode === 'remove') await this.#routes?.remove()
    await super.stop(mode)
  }

  /** Nobody waits for this one: what fails is told, and the next look is soon. */
  async #lookSafely(): Promise<boolean> {
    try {
      return await this.#turns.take(() => this.#look())
    } catch (error) {
      this.#tools.log.warn('ways-unkept', `the ways to peers could not be changed: ${(error as Error).message}`)
      return false
    }
  }

  /** Whether every peer goes the way it should. */
  async #look(): Promise<boolean> {
    if (this.#peers === null || this.#stopped) return true
    const wanted = await this.#wantedRoutes()
    const isKernel = this.inner.kind === 'kernel'
    // The tunnel is ready before the route goes, and the route there before the tunnel goes.
    if (isKernel) await this.#giveInnerIfChanged(this.#tunnelledBefore(wanted))
    await this.#keep(wanted)
    if (isKernel) await this.#giveInnerTheRest(wanted)
    return this.unseen() === null && wanted.every(({ subnet }) => this.#isDirect(subnet))
  }

  /** The routes that should be there by the kernel's own word. */
  async #wantedRoutes(): Promise<readonly PeerRoute[]> {
    const local = this.#local
    if (!this.#wanted || local === null) return []
    const routes = (this.#peers ?? []).flatMap((peer) => routesTo(peer, local))
    let ways: ReadonlyMap<string, RouteInfo>
    try {
      ways = await this.#tools.table.waysTo(routes.map(({ gateway }) => gateway))
    } catch (error) {
      this.#tools.log.warn(
        'routes-unreadable',
        `nobody can be asked for the ways to peers: ${(error as Error).message}`,
      )
      return routes.filter(({ subnet }) => this.#isDirect(subnet))
    }
    const judged = routes.map((route) => ({ route, obstacle: obstacleOn(ways.get(route.gateway), route.device) }))
    this.#obstacles = new Map(judged.map(({ route, obstacle }) => [route.subnet, obstacle ?? '']))
    return judged.filter(({ obstacle }) => obstacle === null).map(({ route }) => route)
  }

  async #keep(wanted: readonly PeerRoute[]): Promise<void> {
    if (!this.#wanted) return this.#clear()
    const states = (await this.#routes?.keep(wanted)) ?? new Map<string, RouteState>()
    const ways = new Map<string, PeerWay>()
    for (const subnet of (this.#peers ?? []).flatMap((peer) => this.#carried(peer))) {
      const state = states.get(subnet)
      const why = state?.why ?? this.#obstacles.get(subnet) ?? 'its lease names no address of that family'
      ways.set(subnet, { way: state?.inForce === true ? 'direct' : 'tunnel', why })
    }
    this.#tell(ways)
    this.#ways = ways
  }

  /** Without direct routing nobody makes such routes: once gone, each change of a peer is spared a look at the table. */
  async #clear(): Promise<void> {
    if (this.#cleared) return
    try {
      this.#cleared = (await this.#routes?.remove()) ?? true
    } catch (error) {
      this.#tools.log.warn('routes-unreadable', `routes of a former run stay for now: ${(error as Error).message}`)
    }
  }

  /** Its subnets that this dataplane is to reach. */
  #carried(peer: Lease): readonly string[] {
    return this.#local === null ? [] : carriedHalves(peer, this.#local)
  }

  #isDirect(subnet: string): boolean {
    return this.#ways.get(subnet)?.way === 'direct'
  }

  #tell(ways: ReadonlyMap<string, PeerWay>): void {
    for (const [subnet, { way, why }] of ways) {
      if ((this.#ways.get(subnet)?.way ?? 'tunnel') === way) continue
      const how = way === 'direct' ? 'past the tunnel, by a route' : 'through the tunnel'
      this.#tools.log.info('peer-way', `packets to ${subnet} go ${how}`, { way, ...(why === '' ? {} : { why }) })
    }
  }

  /** Those without a route in the end, and for now those that have none yet. */
  #tunnelledBefore(wanted: readonly PeerRoute[]): readonly Lease[] {
    const has = new Set(this.#tunnelled.flatMap((peer) => this.#carried(peer)))
    return this.#tunnelledBy(wanted, (subnet) => !has.has(subnet))
  }

  /** A peer of which only one half could go direct takes the tunnel as a whole: its entries are one. */
  #tunnelledBy(wanted: readonly PeerRoute[], goes: (subnet: string) => boolean): readonly Lease[] {
    const direct = new Set(wanted.map(({ subnet }) => subnet).filter(goes))
    return (this.#peers ?? []).filter((peer) => !this.#carried(peer).every((subnet) => direct.has(subnet)))
  }

  async #giveInnerTheRest(wanted: readonly PeerRoute[]): Promise<void> {
    const changed = await this.#giveInnerIfChanged(this.#tunnelledBy(wanted, (subnet) => this.#isDirect(subnet)))
    // In between it may have found its routes changed, and put them back.
    if (changed) await this.#keep(wanted)
  }

  async #giveInnerIfChanged(peers: readonly Lease[]): Promise<boolean> {
    const same =
      peers.length === this.#tunnelled.length && peers.every((peer, index) => peer === this.#tunnelled[index])
    if (same) return false
    await this.#giveInner(peers, 'ways to peers changed')
    return true
  }

  async #giveInner(peers: readonly Lease[], cause: string): Promise<number> {
    const generation = await super.replacePeers(peers, cause)
    this.#tunnelled = peers
    return generation
  }
}

/**
 * As flannel decides: the way to a neighbour has no gateway. It must leave by the underlay interface as well. `null` for
 * a neighbour.
 */
function obstacleOn(way: RouteInfo | undefined, device: string): string | null {
  if (way === undefined || (way.type !== undefined && way.type !== 'unicast')) return 'there is no way to its address'
  if (way.gateway !== undefined) return `its address is behind ${way.gateway}`
  return way.dev === device ? null : `its address is on ${way.dev ?? 'no device'}, not on ${device}`
}
