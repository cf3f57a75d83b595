// Whether the pod network can have its one route on this host. What is there already is never replaced: a host that
// loses the route to its own neighbours is lost itself.
import {
  containsAddress,
  containsPrefix,
  formatAddress,
  formatPrefix,
  type Prefix,
  parseIpv6Prefix,
  parsePrefix,
  samePrefix,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { InNamespace } from './command.ts'
import type { VtepOutline } from './dataplane.ts'
import { type RouteInfo, showJson } from './ip.ts'
import { isOurRoute } from './route-protocol.ts'

/** Where the network is to be led, and what must stay reachable beside it. */
export interface NetworkPlace {
  readonly network: Prefix
  /** Our overlay device: routes into it are ours to replace. */
  readonly deviceName: string
  readonly underlayInterface: string
  readonly underlayAddress: number | bigint
}

/** Says in one phrase what stands in the network's way, `null` when nothing does. `routes` is the main table. */
export function findNetworkOverlap(place: NetworkPlace, routes: readonly RouteInfo[]): string | null {
  const { network, deviceName, underlayInterface, underlayAddress } = place
  if (containsAddress(network, underlayAddress))
    return `covers this host's own address ${formatAddress(underlayAddress)}`
  for (const route of routes) {
    if (route.dev === deviceName || isOurRoute(route.protocol)) continue
    const prefix = parseDestination(route.dst)
    if (prefix === null) continue
    const where = [route.gateway === undefined ? '' : ` via ${route.gateway}`, ` dev ${route.dev ?? 'none'}`].join('')
    if (samePrefix(prefix, network)) return `has a route already that is not ours:${where}`
    // The prefix that the kernel added with the underlay's address: all neighbours are in it.
    const connected = route.protocol === 'kernel' && route.dev === underlayInterface
    if (connected && containsPrefix(network, prefix)) return `covers the underlay ${formatPrefix(prefix)}${where}`
  }
  return null
}

/** `10.244.1.0/24`, or an address without a length for a single host; `null` for `default` and the like. */
export function parseDestination(dst: string): Prefix | null {
  if (dst.includes('/')) return parsePrefix(dst) ?? parseIpv6Prefix(dst)
  return parsePrefix(`${dst}/32`) ?? parseIpv6Prefix(`${dst}/128`)
}

/** Whether a route's destination lies inside one of these networks. */
export function liesWithin(networks: readonly Prefix[], dst: string): boolean {
  const prefix = parseDestination(dst)
  return prefix !== null && networks.some((network) => containsPrefix(network, prefix))
}

/** Looks at the host's routes for both networks. @throws FlanneletteError `network-overlap`, `host-command` */
export async function refuseNetworkOverlap(outline: VtepOutline, where: InNamespace = {}) {
  await forEachNetwork(outline, async (place, family, key) => {
    const overlap = findNetworkOverlap(place, await showJson<RouteInfo>('ip', [family, 'route', 'show'], where))
    const remedy = `choose another ${key} that this host does not use yet, or delete that route if nothing needs it`
    refuse(place, overlap, remedy)
  })
}

/**
 * The same for a backend whose networks have no route of their own: only what the kernel keeps by the interfaces'
 * addresses can be in the way. @throws FlanneletteError `network-overlap`, `host-command`
 */
export async function refuseConnectedOverlap(outline: VtepOutline) {
  await forEachNetwork(outline, async (place, family, key) => {
    const connected = await showJson<RouteInfo>('ip', [family, 'route', 'show', 'proto', 'kernel'])
    // What was asked for is not told.
    const routes = connected.map((route) => ({ ...route, protocol: 'kernel' }))
    refuse(place, findNetworkOverlap(place, routes), `choose another ${key} that this host does not use yet`)
  })
}

async function forEachNetwork(
  outline: VtepOutline,
  look: (place: NetworkPlace, family: '-4' | '-6', key: string) => Promise<void>,
): Promise<void> {
  const { network, ipv6Network } = outline
  if (network !== null) await look({ ...outline, network }, '-4', 'Network')
  if (ipv6Network !== null) await look({ ...outline, network: ipv6Network }, '-6', 'IPv6Network')
}

function refuse({ network }: NetworkPlace, overlap: string | null, remedy: string): void {
  if (overlap === null) return
  throw new FlanneletteError('network-overlap', `the pod network ${formatPrefix(network)} ${overlap}`, { remedy })
}

/** The networks whose packets cross, of both families. */
export function networksOf({ network, ipv6Network }: VtepOutline): Prefix[] {
  return [network, ipv6Network].filter((one) => one !== null)
}
