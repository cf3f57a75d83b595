// What carries our name or tag on this host, whoever of us left it there: devices by their alias, routes by their
// protocol, rules by their chains and tables. Read here as commands that take it away; nothing here changes anything.
import type { Prefix } from '../../dataplane/index.ts'
import { deleteBlackhole } from './blackhole-route.ts'
import { attempt, commandFailure, type InNamespace } from './command.ts'
import type { FirewallCommand } from './firewall/firewall.ts'
import { firewallRemovals } from './firewall/keeper.ts'
import { type AddressInfo, batch, batchEach, type LinkInfo, type RouteInfo, showFamilies, showJson } from './ip.ts'
import { liesWithin } from './network-overlap.ts'
import { deleteRoute } from './route-place.ts'
import { DEVICE_ALIAS, isOurPeerRoute, isOurRoute, ROUTE_PROTOCOL } from './route-protocol.ts'

export interface LeftBehind {
  /** In the order in which they work: rules, routes, then the devices. */
  readonly commands: readonly FirewallCommand[]
  /** Addresses of our devices. */
  readonly addresses: readonly AddressInfo[]
}

/** What daemons that run on this host use: it is not left behind. */
export interface InUse {
  readonly seats: ReadonlySet<number>
  readonly devices: ReadonlySet<string>
  readonly networks: readonly Prefix[]
}

const NOTHING: InUse = { seats: new Set(), devices: new Set(), networks: [] }

/** @throws FlanneletteError `host-command`, `not-permitted` */
export async function findLeftBehind(where: InNamespace = {}, inUse = NOTHING): Promise<LeftBehind> {
  const [rules, links, routes] = await Promise.all([
    firewallRemovals(where, inUse.seats),
    showJson<LinkInfo>('ip', ['address', 'show'], where),
    showFamilies<RouteInfo>(['route', 'show', 'table', 'all'], where),
  ])
  const devices = links.filter(({ ifalias, ifname }) => ifalias === DEVICE_ALIAS && !inUse.devices.has(ifname))
  const left = routes.filter(({ dev, dst }) => !inUse.devices.has(dev ?? '') && !liesWithin(inUse.networks, dst))
  const words = [...planRoutes(left), ...devices.map(({ ifname }) => `link delete dev ${ifname}`)]
  return {
    commands: [...rules, ...words.map((line) => ({ argv: ['ip', ...line.split(' ')] }))],
    addresses: devices.flatMap(({ addr_info }) => addr_info ?? []),
  }
}

/** Runs one of the commands. @throws FlanneletteError `host-command`, `not-permitted` */
export async function takeAway({ argv, input }: FirewallCommand, where: InNamespace = {}): Promise<void> {
  const result = await attempt(argv, { ...where, input: input ?? '' })
  // With a device its routes go; with what is gone already nothing is left to do.
  const gone = /No such (process|device|file)|Cannot find device/i.test(result.stderr)
  if (result.exitCode !== 0 && !gone) throw commandFailure(argv, result, where.namespace)
}

/**
 * Takes away devices of ours but these: of a former VNI or backend. Resolves with their names. `kept` must name those of
 * every daemon of the host: they look the same.
 * @throws FlanneletteError `host-command`
 */
export async function removeOtherDevices(kept: readonly string[]): Promise<readonly string[]> {
  const links = await showJson<LinkInfo>('ip', ['link', 'show'])
  const stale = links.filter(({ ifalias, ifname }) => ifalias === DEVICE_ALIAS && !kept.includes(ifname))
  const names = stale.map(({ ifname }) => ifname)
  await batch(
    'ip',
    names.map((name) => `link delete dev ${name}`),
  )
  return names
}

/**
 * Takes away routes of ours to peers that lie in none of these networks: of a former config. Resolves with their
 * destinations. Networks of other daemons are among those that are given.
 * @throws FlanneletteError `host-command`
 */
export async function removeFormerRoutes(networks: readonly Prefix[]): Promise<string[]> {
  const routes = await showFamilies<RouteInfo>(['route', 'show', 'proto', `${ROUTE_PROTOCOL}`])
  const shown = routes.map((route) => ({ ...route, protocol: String(ROUTE_PROTOCOL) }))
  const stale = shown.filter((route) => isOurPeerRoute(route) && !liesWithin(networks, route.dst))
  await batchEach('ip', stale.map(deleteRoute))
  return stale.map(({ dst }) => dst)
}

function planRoutes(routes: readonly RouteInfo[]): string[] {
  const ours = routes.filter(({ protocol }) => isOurRoute(protocol))
  return ours.map((route) => (route.type === 'blackhole' ? deleteBlackhole(route.dst) : deleteRoute(route)))
}
