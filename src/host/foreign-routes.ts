// Routes of others that are more specific than ours, and the peers' subnets that they take packets of: the kernel takes
// the longest prefix and asks nobody whose it is (fib_table_lookup in net/ipv4/fib_trie.c). Such a route is left alone
// and told of.
import { containsPrefix, formatPrefix, type Prefix, prefixAround } from '../../dataplane/index.ts'
import type { Log } from '../log.ts'
import type { PeerWay } from './dataplane.ts'
import type { RouteInfo } from './ip.ts'
import { parseDestination } from './network-overlap.ts'
import { describeRoute, foreignInTheWay, foreignTakesPart, isForeignRoute } from './route-place.ts'
import { isOurRoute } from './route-protocol.ts'

/** Any route, as far as it matters here. */
export interface PlacedRoute {
  readonly prefix: Prefix
  /** Text form; absent where it leads to a link itself. */
  readonly gateway?: string | undefined
}

/** A subnet of a peer, and where a route leads that does it no harm: to the peer itself. */
export interface PeerSubnet {
  /** Text form, as formatPrefix gives it. */
  readonly subnet: string
  /** The peer's own address, text form; `null` where it names none. */
  readonly peerAddress: string | null
}

/** A route of somebody else's, by `ip`. */
export type ForeignRoute = PlacedRoute & { readonly info: RouteInfo }

/** Of these routes those of others: without our tag, and not into `device` (`null` for none). */
export function foreignRoutes(routes: readonly RouteInfo[], device: string | null): ForeignRoute[] {
  return routes.flatMap((info) => {
    if (isOurRoute(info.protocol) || (device !== null && info.dev === device)) return []
    const prefix = parseDestination(info.dst)
    return prefix === null ? [] : [{ prefix, gateway: info.gateway, info }]
  })
}

/** By subnet: a route that is more specific than the subnet, and takes a part of it. */
export function partTakers<Route extends PlacedRoute>(
  subnets: readonly PeerSubnet[],
  routes: readonly Route[],
): Map<string, Route> {
  const takers = new Map<string, Route>()
  if (routes.length === 0) return takers
  const known = new Map(subnets.map((one) => [one.subnet, one]))
  // Few: most networks give subnets of one length.
  const lengths = new Set(subnets.map(({ subnet }) => Number(subnet.slice(subnet.indexOf('/') + 1))))
  for (const route of routes) {
    const { address, length } = route.prefix
    for (const shorter of lengths) {
      if (shorter >= length) continue
      const around = known.get(formatPrefix(prefixAround(address, shorter)))
      if (around !== undefined && !leadsTo(around, route)) takers.set(around.subnet, route)
    }
  }
  return takers
}

/** By subnet: a route that takes all of it, where none of ours leads to the subnet alone. */
export function wholeTakers<Route extends PlacedRoute>(
  subnets: readonly PeerSubnet[],
  routes: readonly Route[],
): Map<string, Route> {
  const takers = new Map<string, Route>()
  for (const one of routes.length === 0 ? [] : subnets) {
    const prefix = parseDestination(one.subnet)
    if (prefix === null) continue
    const taker = routes.find((route) => containsPrefix(route.prefix, prefix) && !leadsTo(one, route))
    if (taker !== undefined) takers.set(one.subnet, taker)
  }
  return takers
}

function leadsTo({ peerAddress }: PeerSubnet, { gateway }: PlacedRoute): boolean {
  return gateway !== undefined && gateway === peerAddress
}

/** Why packets to a part of a subnet do not get there. */
export function partTaken({ info }: ForeignRoute): string {
  return foreignTakesPart(describeRoute(info))
}

/** Why no packet to a subnet gets there. */
export function wholeTaken({ info }: ForeignRoute): string {
  return foreignInTheWay(describeRoute(info))
}

const THROUGH_TUNNEL: PeerWay = { way: 'tunnel', why: '' }

/** The ways to all subnets that a tunnel leads to: worth a word only where there is trouble with one, else `null`. */
export function tunnelWays(
  subnets: readonly string[],
  trouble: ReadonlyMap<string, PeerWay>,
): ReadonlyMap<string, PeerWay> | null {
  if (trouble.size === 0) return null
  return new Map([...subnets.map((subnet) => [subnet, THROUGH_TUNNEL] as const), ...trouble])
}

/** Tells of each such route once, and of its end. Maps: by subnet, why. */
export function tellOfForeign(log: Log, before: ReadonlyMap<string, string>, now: ReadonlyMap<string, string>): void {
  for (const [subnet, why] of now) {
    if (isForeignRoute(why) && before.get(subnet) !== why)
      log.warn('foreign-route', `packets to ${subnet} are taken away: ${why}`)
  }
  for (const [subnet, why] of before) {
    if (isForeignRoute(why) && !now.has(subnet))
      log.info('foreign-route-gone', `no route of others takes packets to ${subnet} any more`)
  }
}
