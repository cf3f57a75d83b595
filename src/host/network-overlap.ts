// Whether the pod network can have its one route on this host. What is there already is never replaced: a host that
// loses the route to its own neighbours is lost itself.
import {
  containsAddress,
  containsPrefix,
  formatIpv4,
  formatPrefix,
  type Ipv4Prefix,
  parsePrefix,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { CommandOptions } from './command.ts'
import { type RouteInfo, showJson } from './ip.ts'
import { isOurRoute } from './route-protocol.ts'

/** Where the network is to be led, and what must stay reachable beside it. */
export interface NetworkPlace {
  readonly network: Ipv4Prefix
  /** Our overlay device: routes into it are ours to replace. */
  readonly deviceName: string
  readonly underlayInterface: string
  /** Unsigned 32-bit. */
  readonly underlayAddress: number
}

/** Says in one phrase what stands in the network's way, `null` when nothing does. `routes` is the main table. */
export function findNetworkOverlap(place: NetworkPlace, routes: readonly RouteInfo[]): string | null {
  const { network, deviceName, underlayInterface, underlayAddress } = place
  if (containsAddress(network, underlayAddress)) return `covers this host's own address ${formatIpv4(underlayAddress)}`
  for (const route of routes) {
    if (route.dev === deviceName || isOurRoute(route.protocol)) continue
    const prefix = parsePrefix(route.dst.includes('/') ? route.dst : `${route.dst}/32`)
    if (prefix === null) continue
    const where = [route.gateway === undefined ? '' : ` via ${route.gateway}`, ` dev ${route.dev ?? 'none'}`].join('')
    if (formatPrefix(prefix) === formatPrefix(network)) return `has a route already that is not ours:${where}`
    // The prefix that the kernel added with the underlay's address: all neighbours are in it.
    const connected = route.protocol === 'kernel' && route.dev === underlayInterface
    if (connected && containsPrefix(network, prefix)) return `covers the underlay ${formatPrefix(prefix)}${where}`
  }
  return null
}

/** Looks at the host's routes. @throws FlanneletteError `network-overlap`, `host-command` */
export async function refuseNetworkOverlap(place: NetworkPlace, where: Pick<CommandOptions, 'namespace'> = {}) {
  const overlap = findNetworkOverlap(place, await showJson<RouteInfo>('ip', ['-4', 'route', 'show'], where))
  if (overlap === null) return
  const message = `the pod network ${formatPrefix(place.network)} ${overlap}`
  const remedy = 'choose another Network that this host does not use yet, or delete that route if nothing needs it'
  throw new FlanneletteError('network-overlap', message, { remedy })
}
