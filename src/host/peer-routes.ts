// Keeps routes to peers in the kernel's table. Each pass takes the whole set that is wanted, compares it with what is
// there, and runs only the difference: repeated, late or interrupted passes do no harm, and what somebody deleted or
// altered comes back. Only routes with our protocol tag are ever changed or deleted. A route that the kernel refuses, or
// that somebody else's stands in the way of, holds up no other one.
import type { Prefix } from '../../dataplane/index.ts'
import type { Log } from '../log.ts'
import { partTaken, partTakers, placedRoutes, tellOfForeign } from './foreign-routes.ts'
import type { RouteInfo } from './ip.ts'
import { type PeerRoute, planPeerRoutes, type RouteStep } from './peer-route-plan.ts'
import { NOTHING_PENDING, type Pending } from './pending.ts'
import { foreignInTheWay, noNeighbour } from './route-place.ts'
import type { RouteTable } from './route-table.ts'

/** How a wanted route is. */
export interface RouteState {
  readonly route: PeerRoute
  /** Whether packets take it: ours is there, or somebody else's that is alike. */
  readonly inForce: boolean
  /** Why not, or whose it is, or whose takes a part of the subnet; empty for a route of ours in its place. */
  readonly why: string
}

export interface PeerRoutesOptions {
  readonly table: RouteTable
  readonly log: Log
  /** Routes of ours inside these networks are ours to delete. */
  readonly networks: readonly Prefix[]
  /** Routes into this device are somebody else's business; `null` for none. */
  readonly sparedDevice: string | null
  /** Somebody else tells of others' routes to parts of the subnets; absent: we do. */
  readonly isWatched?: boolean
}

const SERVED = 'by a route that is not ours'

export class PeerRoutes {
  readonly #options: PeerRoutesOptions
  #states: ReadonlyMap<string, RouteState> = new Map()
  #pending = NOTHING_PENDING
  #restored = 0
  #unseen: string | null = null

  constructor(options: PeerRoutesOptions) {
    this.#options = options
  }

  /** After the last pass, by subnet. */
  get states(): ReadonlyMap<string, RouteState> {
    return this.#states
  }

  /** Subnets that no packet is forwarded by. Another map after each pass, and the same until then. */
  get pending(): Pending {
    return this.#pending
  }

  /** Why the last pass could not look at the routes; `null` when it did. */
  get unseen(): string | null {
    return this.#unseen
  }

  /** Routes that were put back, or set right, after somebody had changed them. */
  get restored(): number {
    return this.#restored
  }

  /** One pass. Not to be called again before it has ended. Never rejects: what could not be done is in the states. */
  async keep(wanted: readonly PeerRoute[]): Promise<ReadonlyMap<string, RouteState>> {
    const { log } = this.#options
    let states: ReadonlyMap<string, RouteState>
    try {
      states = await this.#pass(wanted)
      this.#unseen = null
    } catch (error) {
      const { message } = error as Error
      this.#unseen = message
      log.warn('routes-unreadable', `the kernel's routes cannot be looked at for now: ${message}`)
      states = new Map(wanted.map((route) => [route.subnet, this.#unlooked(route, message)]))
    }
    this.#tell(states)
    this.#states = states
    this.#pending = new Map([...states].flatMap(([subnet, { inForce, why }]) => (inForce ? [] : [[subnet, why]])))
    return states
  }

  /**
   * Takes away all routes of ours to peers; `false` when the kernel refused some of it.
   * @throws FlanneletteError `host-command`
   */
  async remove(): Promise<boolean> {
    const { table, networks } = this.#options
    const { removals } = planPeerRoutes([], await table.read(networks), (route) => this.#isOurs(route))
    const refused = await table.apply(removals)
    this.#states = new Map()
    this.#pending = NOTHING_PENDING
    return refused.length === 0
  }

  /** What was in force is believed to be so still. */
  #unlooked(route: PeerRoute, why: string): RouteState {
    const before = this.#states.get(route.subnet)
    return before !== undefined && isSame(before.route, route) ? before : { route, inForce: false, why }
  }

  async #pass(wanted: readonly PeerRoute[]): Promise<ReadonlyMap<string, RouteState>> {
    const { table, networks, log } = this.#options
    const present = await table.read(networks)
    const { steps, removals } = planPeerRoutes(wanted, present, (route) => this.#isOurs(route))
    for (const { index, message } of await table.apply(removals)) {
      // Gone already is as good as removed; anything else the next pass sees again.
      log.debug('route-kept', `a stale route could not be removed: ${message}`, { command: removals[index] ?? '' })
    }
    const runs = wanted.flatMap((route) => {
      const step = steps.get(route.subnet)
      return step?.kind === 'run' ? [{ route, step }] : []
    })
    const failed = new Map<string, string>()
    const wrong: string[] = []
    for (const { index, message } of await table.apply(runs.map(({ step }) => step.command))) {
      const run = runs[index]
      if (run === undefined) continue
      failed.set(run.route.subnet, message)
      if (run.step.instead !== null) wrong.push(run.step.instead)
    }
    // Better no route to a peer than one to where it was.
    await table.apply(wrong)
    const takers = partTakers(
      wanted.map(({ subnet, gateway }) => ({ subnet, peerAddress: gateway })),
      placedRoutes(present, this.#options.sparedDevice),
    )
    return new Map(
      wanted.map((route) => {
        const state = this.#stateOf(route, steps.get(route.subnet), failed)
        const taker = takers.get(route.subnet)
        return [route.subnet, state.inForce && taker !== undefined ? { ...state, why: partTaken(taker) } : state]
      }),
    )
  }

  #stateOf(route: PeerRoute, step: RouteStep | undefined, failed: ReadonlyMap<string, string>): RouteState {
    const { subnet } = route
    const refusal = failed.get(subnet)
    if (refusal !== undefined) return { route, inForce: false, why: inWords(refusal, route) }
    if (step?.kind === 'blocked') return { route, inForce: false, why: foreignInTheWay(step.what) }
    if (step?.kind === 'served') return { route, inForce: true, why: SERVED }
    const before = this.#states.get(subnet)
    if (step?.kind === 'run' && before?.inForce === true && before.why !== SERVED && isSame(before.route, route)) {
      this.#restored += 1
      this.#options.log.warn('route-restored', `the route to ${subnet} was gone or changed, and is as it was again`)
    }
    return { route, inForce: true, why: '' }
  }

  #isOurs({ dev }: RouteInfo): boolean {
    return dev === undefined || dev !== this.#options.sparedDevice
  }

  /** Of each change once. */
  #tell(states: ReadonlyMap<string, RouteState>): void {
    const { log, isWatched = false } = this.#options
    if (!isWatched) tellOfForeign(log, reasonsInForce(this.#states), reasonsInForce(states))
    for (const [subnet, { route, inForce, why }] of states) {
      const before = this.#states.get(subnet)
      if (!inForce && before?.why !== why) log.warn('peer-pending', `no route to ${subnet} by ${route.gateway}: ${why}`)
      if (inForce && before?.inForce === false) log.info('peer-programmed', `the route to ${subnet} is there`)
    }
  }
}

function reasonsInForce(states: ReadonlyMap<string, RouteState>): ReadonlyMap<string, string> {
  const inForce = [...states].filter(([, state]) => state.inForce && state.why !== '')
  return new Map(inForce.map(([subnet, { why }]) => [subnet, why]))
}

function isSame(a: PeerRoute, b: PeerRoute): boolean {
  return a.gateway === b.gateway && a.device === b.device
}

/** The kernel's short answers (net/ipv4/fib_semantics.c, net/ipv6/route.c) in words that say what it means. */
function inWords(message: string, { gateway, device }: PeerRoute): string {
  if (!/invalid gateway|No route to host|is not a gateway|unreachable/i.test(message)) return message
  return noNeighbour(gateway, device, message)
}
