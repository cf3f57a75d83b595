// Routes of others that take packets of peers away from the userspace dataplane, which has one route for the whole
// network: any that is more specific wins. Looked for in the lists of /proc/net, which cost no program;
// only when something is found there that was not there before is `ip` asked whose it is. Nothing is done about it but
// to say so.
import { readFileSync } from 'node:fs'
import { containsPrefix, formatPrefix, type Prefix } from '../../dataplane/index.ts'
import type { LocalVtep, PeerWay } from '../host/dataplane.ts'
import {
  type PeerSubnet,
  type PlacedRoute,
  partTaken,
  partTakers,
  placedRoutes,
  type ShownRoute,
  tellOfForeign,
  tunnelWays,
  wholeTaken,
  wholeTakers,
} from '../host/foreign-routes.ts'
import { networksOf } from '../host/network-overlap.ts'
import { carriedHalves, routesTo } from '../host/peer-route-plan.ts'
import { NOTHING_PENDING, type Pending } from '../host/pending.ts'
import { type ListedRoute, listedIpv6Routes, listedRoutes } from '../host/proc-route.ts'
import type { RouteTable } from '../host/route-table.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'

/** The kernel's routes of both families as text; of a family that does not cross, nothing. */
export interface RouteLists {
  readonly ipv4: string
  readonly ipv6: string
}

export interface ForeignRouteWatchOptions {
  readonly table: Pick<RouteTable, 'read'>
  readonly log: Log
  /** Stands in for /proc/net in tests. */
  readonly lists?: (local: LocalVtep) => RouteLists
}

export class ForeignRouteWatch {
  readonly #options: ForeignRouteWatchOptions
  /** Of the last look that came to its end, as the next two. */
  #lists: RouteLists | null = null
  /** The routes that it was about, in words; `null` when `ip` may have told of others. */
  #suspected: string | null = ''
  #peers: readonly Lease[] = []
  #subnets: readonly string[] = []
  #partTaken: ReadonlyMap<string, string> = new Map()
  #lost = NOTHING_PENDING
  #unseen: string | null = null

  constructor(options: ForeignRouteWatchOptions) {
    this.#options = options
  }

  /** Subnets of peers that no packet gets to. Another map when that has been looked for anew, else the same. */
  get lost(): Pending {
    return this.#lost
  }

  /** Why the last look failed, in one phrase; `null` when it did not. */
  get unseen(): string | null {
    return this.#unseen
  }

  /** As Dataplane.ways. */
  ways(): ReadonlyMap<string, PeerWay> | null {
    return tunnelWays(this.#subnets, this.#partTaken)
  }

  /**
   * Resolves with whether it could be looked at, and stood still meanwhile. Never rejects: what could not be read is told, and stays for the next
   * look. Not to be called before it has ended.
   */
  async look(local: LocalVtep, peers: readonly Lease[]): Promise<boolean> {
    try {
      const isSettled = await this.#lookNow(local, peers)
      this.#unseen = null
      return isSettled
    } catch (error) {
      const { message } = error as Error
      this.#unseen = message
      this.#options.log.warn('routes-unreadable', `the kernel's routes cannot be looked at for now: ${message}`)
      return false
    }
  }

  async #lookNow(local: LocalVtep, peers: readonly Lease[]): Promise<boolean> {
    const read = this.#options.lists ?? readLists
    const lists = read(local)
    const { ipv4, ipv6 } = this.#lists ?? {}
    if (lists.ipv4 === ipv4 && lists.ipv6 === ipv6 && peers === this.#peers) return true
    const suspects = suspectsIn(lists, local)
    const suspected = inWords(suspects)
    if (suspected !== this.#suspected || peers !== this.#peers) {
      this.#lists = null
      this.#suspected = null
      this.#settle(peers, local, await this.#find(suspects, local, peers))
      if (inWords(suspectsIn(read(local), local)) !== suspected) return false
    }
    this.#suspected = suspected
    this.#lists = lists
    return true
  }

  async #find(suspects: readonly Suspect[], local: LocalVtep, peers: readonly Lease[]): Promise<Taken> {
    if (suspects.length === 0) return NOTHING_TAKEN
    const networks = networksOf(local)
    const subnets = peers.flatMap((peer) => subnetsOf(peer, local))
    if (partTakers(subnets, suspects).size + wholeTakers(subnets, suspects).size === 0) return NOTHING_TAKEN
    const routes = placedRoutes(await this.#options.table.read(networks), local.deviceName)
    return takenOf(subnets, moreSpecific(routes, networks, local))
  }

  #settle(peers: readonly Lease[], local: LocalVtep, { parts, wholes }: Taken): void {
    tellOfForeign(this.#options.log, new Map([...this.#partTaken, ...this.#lost]), new Map([...parts, ...wholes]))
    this.#peers = peers
    this.#subnets = parts.size === 0 ? [] : peers.flatMap((peer) => carriedHalves(peer, local))
    this.#partTaken = parts
    this.#lost = wholes
  }
}

type Suspect = ListedRoute & PlacedRoute

/** In the list of IPv6 the kernel counts who uses a route as well: another text, and the same routes. */
function inWords(suspects: readonly Suspect[]): string {
  return suspects.map(({ prefix, gateway, device }) => `${formatPrefix(prefix)} ${gateway} ${device}`).join()
}

/** Listed routes that are more specific than ours: whose they are the lists do not tell. */
function suspectsIn({ ipv4, ipv6 }: RouteLists, local: LocalVtep): Suspect[] {
  const listed = [...listedRoutes(ipv4), ...listedIpv6Routes(ipv6)].map((route) => {
    return { ...route, isForeign: route.device !== local.deviceName }
  })
  return moreSpecific(listed, networksOf(local), local)
}

function readLists({ network, ipv6Network }: LocalVtep): RouteLists {
  const read = (name: string) => readFileSync(`/proc/thread-self/net/${name}`, 'latin1')
  return {
    ipv4: network === null ? '' : read('route'),
    ipv6: ipv6Network === null ? '' : read('ipv6_route'),
  }
}

/** Routes to parts of the networks. This node's own part is others' business: its pods are there. */
function moreSpecific<Route extends PlacedRoute>(
  routes: readonly Route[],
  networks: readonly Prefix[],
  { subnet, ipv6Subnet }: LocalVtep,
): Route[] {
  const own = [subnet, ipv6Subnet].filter((one) => one !== null)
  return routes.filter(({ prefix }) => {
    const isInside = networks.some((network) => prefix.length > network.length && containsPrefix(network, prefix))
    return isInside && !own.some((half) => containsPrefix(half, prefix))
  })
}

function subnetsOf(peer: Lease, local: LocalVtep): PeerSubnet[] {
  const gateways = new Map(routesTo(peer, local).map(({ subnet, gateway }) => [subnet, gateway]))
  return carriedHalves(peer, local).map((subnet) => ({ subnet, peerAddress: gateways.get(subnet) ?? null }))
}

/** By subnet: whose route takes a part of it, and whose all of it, in words. */
interface Taken {
  readonly parts: ReadonlyMap<string, string>
  readonly wholes: Pending
}

const NOTHING_TAKEN: Taken = { parts: new Map(), wholes: NOTHING_PENDING }

function takenOf(subnets: readonly PeerSubnet[], routes: readonly ShownRoute[]): Taken {
  return {
    parts: new Map([...partTakers(subnets, routes)].map(([subnet, route]) => [subnet, partTaken(route)])),
    wholes: new Map([...wholeTakers(subnets, routes)].map(([subnet, route]) => [subnet, wholeTaken(route)])),
  }
}
