// Routes to peers' subnets by way of the peers themselves: what stands in the kernel's table against what should, and
// the commands in between. Pure, and the same for both families. peer-routes.ts runs them.
import { formatIpv4, formatPrefix, type Prefix } from '../../dataplane/index.ts'
import { halvesOf, type Lease } from '../lease/lease.ts'
import type { VtepOutline } from './dataplane.ts'
import type { RouteInfo } from './ip.ts'
import { deleteRoute } from './overlay-link.ts'
import { isOurPeerRoute, ROUTE_PROTOCOL } from './route-protocol.ts'

/** One route that we want, in iproute2's text forms. */
export interface PeerRoute {
  /** `10.244.2.0/24`, `fd00:2::/64` */
  readonly subnet: string
  /** Public address of the peer, of the same family. */
  readonly gateway: string
  /** The underlay interface. */
  readonly device: string
}

/** Of our own end what routes hang on: a family whose network is `null` does not cross here. */
export type RouteEnd = Pick<VtepOutline, 'network' | 'ipv6Network' | 'underlayInterface'>

/** The peer's subnets of the families that cross here, as text. */
export function carriedHalves(peer: Lease, { network, ipv6Network }: Omit<RouteEnd, 'underlayInterface'>): string[] {
  const crosses = ({ address }: Prefix) => (typeof address === 'number' ? network : ipv6Network) !== null
  return halvesOf(peer).filter(crosses).map(formatPrefix)
}

/** The routes to them, but for those whose family the peer has no public address of. */
export function routesTo(peer: Lease, end: RouteEnd): PeerRoute[] {
  const { publicIp, publicIpv6 } = peer.attributes
  return carriedHalves(peer, end).flatMap((subnet) => {
    const gateway = subnet.includes(':') ? publicIpv6 : publicIp === 0 ? null : formatIpv4(publicIp)
    return gateway === null ? [] : [{ subnet, gateway, device: end.underlayInterface }]
  })
}

/** What there is to do for one route. */
export type RouteStep =
  | { readonly kind: 'none' }
  /** Somebody else's route leads the same way: it serves, and is left alone. */
  | { readonly kind: 'served' }
  /** Somebody else's route leads another way and is left alone: `what` names it. */
  | { readonly kind: 'blocked'; readonly what: string }
  /** `instead`: what deletes the wrong route of ours should the command not work. */
  | { readonly kind: 'run'; readonly command: string; readonly instead: string | null }

export interface RoutePlan {
  /** By subnet, for every route that is wanted. */
  readonly steps: ReadonlyMap<string, RouteStep>
  /** Commands that delete exactly what is ours and nobody wants. */
  readonly removals: readonly string[]
}

/**
 * `present`: main tables, of all devices. `isStray`: whether a route of ours to a subnet that nobody wants is for this
 * plan to delete.
 */
export function planPeerRoutes(
  wanted: readonly PeerRoute[],
  present: readonly RouteInfo[],
  isStray: (route: RouteInfo) => boolean,
): RoutePlan {
  const bySubnet = new Map<string, RouteInfo[]>()
  for (const route of present) bySubnet.set(route.dst, [...(bySubnet.get(route.dst) ?? []), route])
  const steps = new Map<string, RouteStep>()
  const removals: string[] = []
  for (const route of wanted) {
    const there = bySubnet.get(route.subnet) ?? []
    bySubnet.delete(route.subnet)
    const { step, spare } = planOne(route, there)
    steps.set(route.subnet, step)
    removals.push(...spare.map(removeRoute))
  }
  for (const routes of bySubnet.values()) {
    removals.push(...routes.filter((route) => isOurPeerRoute(route) && isStray(route)).map(removeRoute))
  }
  return { steps, removals }
}

/** `spare`: routes of ours that are too many. */
function planOne(wanted: PeerRoute, there: readonly RouteInfo[]): { step: RouteStep; spare: readonly RouteInfo[] } {
  const ours = there.filter(isOurPeerRoute)
  // With a higher metric somebody else's is only asked when ours is gone.
  const rivals = there.filter((route) => !isOurPeerRoute(route) && metricOf(route) <= usualMetric(wanted.subnet))
  const shadow = rivals.find((route) => metricOf(route) < usualMetric(wanted.subnet))
  const right = ours.find((route) => isTheSame(route, wanted) && metricOf(route) === usualMetric(wanted.subnet))
  if (right !== undefined && shadow === undefined) {
    return { step: { kind: 'none' }, spare: ours.filter((route) => route !== right) }
  }
  const rival = shadow ?? rivals[0]
  if (rival !== undefined) {
    const step: RouteStep = isTheSame(rival, wanted) ? { kind: 'served' } : { kind: 'blocked', what: inWords(rival) }
    return { step, spare: ours }
  }
  const words = `${wanted.subnet} via ${wanted.gateway} dev ${wanted.device} proto ${ROUTE_PROTOCOL}`
  // `replace` takes the place of whatever has this metric: only where that is known to be ours.
  const wrong = ours.find((route) => metricOf(route) === usualMetric(wanted.subnet))
  const command = `route ${wrong === undefined ? 'add' : 'replace'} ${words}`
  const instead = wrong === undefined ? null : removeRoute(wrong)
  return { step: { kind: 'run', command, instead }, spare: ours.filter((route) => route !== wrong) }
}

function isTheSame(route: RouteInfo, { gateway, device }: PeerRoute): boolean {
  return route.gateway === gateway && route.dev === device
}

/** What `ip route add` takes when it is not told: none for IPv4, IP6_RT_PRIO_USER (net/ipv6_route.h) for IPv6. */
function usualMetric(subnet: string): number {
  return subnet.includes(':') ? 1024 : 0
}

function metricOf({ metric = 0 }: RouteInfo): number {
  return metric
}

/** Command that deletes this route and no other to the same subnet. */
function removeRoute(route: RouteInfo): string {
  return metricOf(route) === 0 ? deleteRoute(route) : `${deleteRoute(route)} metric ${route.metric}`
}

/** As `ip route` would show it. */
function inWords({ dst, gateway, dev, protocol, metric, type }: RouteInfo): string {
  const parts = [
    type === undefined || type === 'unicast' ? dst : `${type} ${dst}`,
    gateway === undefined ? '' : `via ${gateway}`,
    dev === undefined ? '' : `dev ${dev}`,
    protocol === undefined ? '' : `proto ${protocol}`,
    metric === undefined ? '' : `metric ${metric}`,
  ]
  return parts.filter(Boolean).join(' ')
}
