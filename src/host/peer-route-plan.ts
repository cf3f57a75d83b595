// Routes to peers' subnets by way of the peers themselves: what stands in the kernel's table against what should, and
// the commands in between. Pure, and the same for both families. peer-routes.ts runs them.
import { formatIpv4 } from '../../dataplane/index.ts'
import { halvesInWords, type Lease } from '../lease/lease.ts'
import type { VtepOutline } from './dataplane.ts'
import type { RouteInfo } from './ip.ts'
import { allPending, type Pending } from './pending.ts'
import {
  deleteRoute,
  describeRoute,
  isInUsualPlace,
  isUntagged,
  metricOf,
  usualMetric,
  verbFor,
} from './route-place.ts'
import { isOurPeerRoute, ROUTE_PROTOCOL } from './route-protocol.ts'

/** One route that we want, in iproute2's text forms. */
export interface PeerRoute {
  /** `10.244.2.0/24`, `fd00:2::/64` */
  readonly subnet: string
  /** Public address of the peer, of the same family. */
  readonly gateway: string
  /** The underlay interface, or the tunnel's device. */
  readonly device: string
  /**
   * Into a tunnel, where no link has the gateway. One that flannel left there, the same but for our tag, becomes ours.
   */
  readonly onlink?: boolean
}

/** Of our own end what routes hang on: a family whose network is `null` does not cross here. */
export type RouteEnd = Pick<VtepOutline, 'network' | 'ipv6Network' | 'underlayInterface'>

/** The peer's subnets of the families that cross here, as text. */
export function carriedHalves(peer: Lease, { network, ipv6Network }: Omit<RouteEnd, 'underlayInterface'>): string[] {
  return halvesInWords(peer).filter((subnet) => (subnet.includes(':') ? ipv6Network : network) !== null)
}

/** All that these peers have of what crosses here, pending for one reason. */
export function allCarried(peers: readonly Lease[], end: Omit<RouteEnd, 'underlayInterface'>, why: string): Pending {
  return allPending(
    peers.flatMap((peer) => carriedHalves(peer, end)),
    why,
  )
}

/** The routes to a peer's subnets, but for those whose family the peer has no public address of. */
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
  const left = wanted.onlink === true ? there.find((route) => isLeftByFlannel(route, wanted)) : undefined
  // With a higher metric somebody else's is only asked when ours is gone.
  const rivals = there.filter(
    (route) => !isOurPeerRoute(route) && route !== left && metricOf(route) <= usualMetric(wanted.subnet),
  )
  const shadow = rivals.find((route) => !isInUsualPlace(route))
  const right = ours.find((route) => isTheSame(route, wanted) && isInUsualPlace(route))
  if (right !== undefined && shadow === undefined) {
    return { step: { kind: 'none' }, spare: ours.filter((route) => route !== right) }
  }
  const rival = shadow ?? rivals[0]
  if (rival !== undefined) {
    const step: RouteStep = isTheSame(rival, wanted)
      ? { kind: 'served' }
      : { kind: 'blocked', what: describeRoute(rival) }
    return { step, spare: ours }
  }
  const words = `${wanted.subnet} via ${wanted.gateway} dev ${wanted.device}${wanted.onlink === true ? ' onlink' : ''}`
  const wrong = ours.find(isInUsualPlace)
  const command = `route ${verbFor(wrong !== undefined || left !== undefined)} ${words} proto ${ROUTE_PROTOCOL}`
  const instead = wrong === undefined ? null : removeRoute(wrong)
  return { step: { kind: 'run', command, instead }, spare: ours.filter((route) => route !== wrong) }
}

function isTheSame(route: RouteInfo, { gateway, device }: PeerRoute): boolean {
  return route.gateway === gateway && route.dev === device
}

function isLeftByFlannel(route: RouteInfo, wanted: PeerRoute): boolean {
  return isUntagged(route) && isTheSame(route, wanted) && isInUsualPlace(route)
}

/** Command that deletes this route and no other to the same subnet. */
function removeRoute(route: RouteInfo): string {
  return metricOf(route) === 0 ? deleteRoute(route) : `${deleteRoute(route)} metric ${route.metric}`
}
