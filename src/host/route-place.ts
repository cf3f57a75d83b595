// A route's place in the kernel's table: destination and metric, which only one route of the host has. Whose route stands
// there, whether ours may take it, and the words for that: `ip route replace` itself does not ask.
import { counted } from '../counted.ts'
import type { RouteInfo } from './ip.ts'
import { isOurPeerRoute, ROUTE_PROTOCOL } from './route-protocol.ts'

/** What `ip route add` takes when it is not told: none for IPv4, IP6_RT_PRIO_USER (net/ipv6_route.h) for IPv6. */
export function usualMetric(destination: string): number {
  return destination.includes(':') ? 1024 : 0
}

export function metricOf({ metric = 0 }: RouteInfo): number {
  return metric
}

/** Whether it stands where a route of ours to the same destination would. */
export function isInUsualPlace(route: RouteInfo): boolean {
  return metricOf(route) === usualMetric(route.dst)
}

/**
 * The verb that never takes a place from somebody else: `replace` where what stands there is known to be ours, else
 * `add`, which fails where anything does.
 */
export function verbFor(isOursThere: boolean): 'replace' | 'add' {
  return isOursThere ? 'replace' : 'add'
}

/** RTPROT_BOOT is what `ip` and flannel write when they are not told (rtnetlink(7)); the rest are words for 0. */
const UNTAGGED: readonly string[] = ['boot', 'unspec', 'none', '0']

/** Whether nobody has said whose it is, as flannel does not. */
export function isUntagged({ protocol }: RouteInfo): boolean {
  return protocol === undefined || UNTAGGED.includes(protocol)
}

/** Command that deletes exactly this route of ours. */
export function deleteRoute(route: RouteInfo): string {
  const device = route.dev === undefined ? '' : ` dev ${route.dev}`
  const via = route.gateway === undefined ? '' : ` via ${route.gateway}`
  return `route delete ${route.dst}${via}${device} proto ${ROUTE_PROTOCOL}`
}

/** As `ip route` would show it. */
export function describeRoute({ dst, gateway, dev, protocol, metric, type }: RouteInfo): string {
  const parts = [
    type === undefined || type === 'unicast' ? dst : `${type} ${dst}`,
    gateway === undefined ? '' : `via ${gateway}`,
    dev === undefined ? '' : `dev ${dev}`,
    protocol === undefined ? '' : `proto ${protocol}`,
    metric === undefined ? '' : `metric ${metric}`,
  ]
  return parts.filter(Boolean).join(' ')
}

const IN_THE_WAY = 'a route that is not ours is in the way: '
const TAKES_PART = 'a route that is not ours takes a part of it: '

/** Why a subnet is not reached as it should be. `what`: the route, as describeRoute has it. */
export function foreignInTheWay(what: string): string {
  return IN_THE_WAY + what
}

/** Why a subnet is not reached as a whole. `what`: the route, as describeRoute has it. `others`: how many more take a part. */
export function foreignTakesPart(what: string, others = 0): string {
  return TAKES_PART + what + (others === 0 ? '' : `, and ${counted(others, 'other')}`)
}

const OTHERS = /, and \d+ others?$/

/** How many routes of somebody else's a reason speaks of beside the one that it names. */
export function otherRoutesIn(why: string): number {
  return Number(/\d+/.exec(OTHERS.exec(why)?.[0] ?? '')?.[0] ?? 0)
}

/** The route of somebody else's that a reason names, as describeRoute has it; `null` where it names none. */
export function foreignRouteIn(why: string): string | null {
  const prefix = [IN_THE_WAY, TAKES_PART].find((words) => why.startsWith(words))
  return prefix === undefined ? null : why.slice(prefix.length).replace(OTHERS, '')
}

/** Whether a reason is that of a route of somebody else's. */
export function isForeignRoute(why: string): boolean {
  return foreignRouteIn(why) !== null
}

const NO_NEIGHBOUR = ' is no neighbour on '

/** Why the kernel takes no route by way of a peer; `message` is its own word. */
export function noNeighbour(gateway: string, device: string, message: string): string {
  return `${gateway}${NO_NEIGHBOUR}${device} (${message})`
}

/** Whether a reason is that one. */
export function isNoNeighbour(why: string): boolean {
  return why.includes(NO_NEIGHBOUR)
}

/** Whether it is that of one which takes a part, and leaves the rest. */
export function isPartTaken(why: string): boolean {
  return why.startsWith(TAKES_PART)
}

/** What stands in the place of our route to `destination` into `device` and is neither ours nor leads there too. */
export function findForeign(routes: readonly RouteInfo[], destination: string, device: string): RouteInfo | null {
  const isForeign = (route: RouteInfo) =>
    route.dst === destination && isInUsualPlace(route) && route.dev !== device && !isOurPeerRoute(route)
  return routes.find(isForeign) ?? null
}
