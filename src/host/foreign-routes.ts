// Routes of others that are more specific than ours, and the peers' subnets that they take packets of: the kernel takes
// the longest prefix and asks nobody whose it is (fib_table_lookup in net/ipv4/fib_trie.c). Such a route is left alone
// and told of.
import { formatPrefix, type Prefix, prefixAround } from '../../dataplane/index.ts'
import type { Log } from '../log.ts'
import type { PeerWay } from './dataplane.ts'
import type { RouteInfo } from './ip.ts'
import { parseDestination } from './network-overlap.ts'
import { describeRoute, foreignInTheWay, foreignRouteIn, foreignTakesPart, isForeignRoute } from './route-place.ts'
import { isOurRoute } from './route-protocol.ts'

/** A route, as far as it matters here. */
export interface PlacedRoute {
  readonly prefix: Prefix
  /** Text form; absent where it leads to a link itself. */
  readonly gateway?: string | undefined
  /** Without our tag, and not into our device. */
  readonly isForeign: boolean
}

/** A route as `ip` shows it. */
export type ShownRoute = PlacedRoute & { readonly info: RouteInfo }

/** A subnet of a peer, and where a route leads that does it no harm: to the peer itself. */
export interface PeerSubnet {
  /** Text form, as formatPrefix gives it. */
  readonly subnet: string
  /** The peer's own address, text form; `null` where it names none. */
  readonly peerAddress: string | null
}

/** `device`: ours, `null` for none. */
export function placedRoutes(routes: readonly RouteInfo[], device: string | null): ShownRoute[] {
  return routes.flatMap((info) => {
    const isForeign = !isOurRoute(info.protocol) && (device === null || info.dev !== device)
    const prefix = parseDestination(info.dst)
    return prefix === null ? [] : [{ prefix, gateway: info.gateway, isForeign, info }]
  })
}

/** By subnet: somebody else's routes that are more specific than the subnet, and take a part of it; at least one. */
export function partTakers<Route extends PlacedRoute>(
  subnets: readonly PeerSubnet[],
  routes: readonly Route[],
): Map<string, Route[]> {
  const takers = new Map<string, Route[]>()
  const known = new Map(subnets.map((one) => [one.subnet, one]))
  // Few: most networks give subnets of one length.
  const lengths = new Set(subnets.map(({ subnet }) => Number(subnet.slice(subnet.indexOf('/') + 1))))
  const shortest = Math.min(...lengths)
  // Nearly none: routes to peers, and most of those of the world, are no more specific than that.
  const specific = routes.filter(({ prefix }) => prefix.length > shortest)
  for (const route of byPrefix(specific).values()) {
    if (!route.isForeign) continue
    const { address, length } = route.prefix
    for (const shorter of lengths) {
      if (shorter >= length) continue
      const around = known.get(formatPrefix(prefixAround(address, shorter)))
      if (around === undefined || leadsTo(around, route)) continue
      const found = takers.get(around.subnet)
      if (found === undefined) takers.set(around.subnet, [route])
      else found.push(route)
    }
  }
  return takers
}

/**
 * By subnet: somebody else's route that takes all of it. `routes` are those that are more specific than what leads to
 * all subnets, ours among them: the most specific one that holds the subnet decides.
 */
export function wholeTakers<Route extends PlacedRoute>(
  subnets: readonly PeerSubnet[],
  routes: readonly Route[],
): Map<string, Route> {
  const takers = new Map<string, Route>()
  const placed = byPrefix(routes)
  const lengths = [...new Set(routes.map(({ prefix }) => prefix.length))].sort((a, b) => b - a)
  for (const one of placed.size === 0 ? [] : subnets) {
    const subnet = parseDestination(one.subnet)
    if (subnet === null) continue
    const around = lengths.filter((length) => length <= subnet.length)
    const places = around.map((length) => placed.get(formatPrefix(prefixAround(subnet.address, length))))
    const best = places.find((route) => route !== undefined)
    if (best?.isForeign === true && !leadsTo(one, best)) takers.set(one.subnet, best)
  }
  return takers
}

/** Of several to one destination the kernel lists that first which it takes, the one with the lowest metric. */
function byPrefix<Route extends PlacedRoute>(routes: readonly Route[]): ReadonlyMap<string, Route> {
  const first = new Map<string, Route>()
  for (const route of routes) {
    const place = formatPrefix(route.prefix)
    if (!first.has(place)) first.set(place, route)
  }
  return first
}

function leadsTo({ peerAddress }: PeerSubnet, { gateway }: PlacedRoute): boolean {
  return gateway !== undefined && gateway === peerAddress
}

/** Why packets to a part of a subnet do not get there: the first of those routes, and how many others there are. */
export function partTaken(routes: readonly ShownRoute[]): string {
  const [first] = routes
  return first === undefined ? '' : foreignTakesPart(describeRoute(first.info), routes.length - 1)
}

/** Why no packet to a subnet gets there. */
export function wholeTaken({ info }: ShownRoute): string {
  return foreignInTheWay(describeRoute(info))
}

/** The ways to all subnets that a tunnel leads to: worth a word only where a part of one is taken, else `null`. */
export function tunnelWays(
  subnets: readonly string[],
  partTaken: ReadonlyMap<string, string>,
): ReadonlyMap<string, PeerWay> | null {
  if (partTaken.size === 0) return null
  return new Map(subnets.map((subnet) => [subnet, { way: 'tunnel', why: partTaken.get(subnet) ?? '' }]))
}

/** Tells of each route that is named once, and of the end of them all. Maps: by subnet, why. */
export function tellOfForeign(log: Log, before: ReadonlyMap<string, string>, now: ReadonlyMap<string, string>): void {
  for (const [subnet, why] of now) {
    const route = foreignRouteIn(why)
    if (route !== null && foreignRouteIn(before.get(subnet) ?? '') !== route)
      log.warn('foreign-route', `packets to ${subnet} are taken away: ${why}`)
  }
  for (const [subnet, why] of before) {
    if (isForeignRoute(why) && !now.has(subnet))
      log.info('foreign-route-gone', `no route of others takes packets to ${subnet} any more`)
  }
}
