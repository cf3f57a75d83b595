// The blackhole route to this node's own subnet: packets to pods that are not there end here, in place of going out by
// the default route and coming back by the tunnel.
import { formatPrefix, type Prefix } from '../../dataplane/index.ts'
import { batch, type RouteInfo, showFamilies } from './ip.ts'
import { isOurRoute, ROUTE_PROTOCOL } from './route-protocol.ts'

/**
 * Above every metric that others use: the bridge's own route to the same subnet must win whenever there is one,
 * whichever of the two came first (with equal metrics the older one wins).
 */
const METRIC = 4_000_000

/** Our blackhole routes of both families. @throws FlanneletteError `host-command` */
async function readBlackholeRoutes(): Promise<RouteInfo[]> {
  const routes = await showFamilies<RouteInfo>(['route', 'show', 'type', 'blackhole'])
  return routes.filter((route) => isOurRoute(route.protocol))
}

/** Commands that bring our blackhole routes to these subnets. */
export function planBlackholeRoutes(wanted: readonly Prefix[], present: readonly RouteInfo[]): string[] {
  const subnets = wanted.map(formatPrefix)
  const known = present.map(({ dst }) => dst)
  return [
    ...present.filter(({ dst }) => !subnets.includes(dst)).map(({ dst }) => deleteBlackhole(dst)),
    ...subnets
      .filter((subnet) => !known.includes(subnet))
      .map((subnet) => `route add blackhole ${subnet} proto ${ROUTE_PROTOCOL} metric ${METRIC}`),
  ]
}

/** Command that deletes one of ours. */
export function deleteBlackhole(subnet: string): string {
  return `route delete blackhole ${subnet} proto ${ROUTE_PROTOCOL}`
}

/**
 * Puts them right; resolves with the commands that it took. `isMine`: whether one of ours is this daemon's to delete, and
 * not another's on the same host. @throws FlanneletteError `host-command`
 */
export async function keepBlackholeRoutes(
  wanted: readonly Prefix[],
  isMine: (dst: string) => boolean,
): Promise<string[]> {
  const present = await readBlackholeRoutes()
  const subnets = wanted.map(formatPrefix)
  const commands = planBlackholeRoutes(
    wanted,
    present.filter(({ dst }) => subnets.includes(dst) || isMine(dst)),
  )
  await batch('ip', commands)
  return commands
}
