// What the kernel's three tables should hold for a set of leases, and which commands bring them there. Pure: snapshots
// in, commands out. kernel-vtep.ts runs them.
import { formatIpv4, formatMac, formatPrefix } from '../../dataplane/index.ts'
import type { Lease } from '../lease/lease.ts'
import { vtepMacOf } from '../store/flannel-json.ts'
import type { FdbInfo, NeighborInfo, RouteInfo } from './ip.ts'
import { deleteRoute } from './overlay-link.ts'
import { isOurRoute, ROUTE_PROTOCOL } from './route-protocol.ts'

/** One peer as the kernel needs it, all in iproute2's text forms. */
export interface PeerRow {
  /** `10.244.2.0/24`: destination of the route, and the key of the peer. */
  readonly subnet: string
  /** `10.244.2.0`: the gateway of the route and the neighbour entry's address. */
  readonly gateway: string
  /** VTEP MAC: value of the neighbour entry, key of the FDB entry. */
  readonly mac: string
  /** Underlay address that the FDB entry points to. */
  readonly underlayAddress: string
}

/** What the device's tables hold now. */
export interface PresentRows {
  readonly neighbors: readonly NeighborInfo[]
  readonly fdb: readonly FdbInfo[]
  /** Routes of the main table, any device. */
  readonly routes: readonly RouteInfo[]
}

/** Leases to rows; a lease whose backend data names no MAC is left out. */
export function desiredRows(peers: readonly Lease[]): PeerRow[] {
  const rows: PeerRow[] = []
  for (const lease of peers) {
    const mac = vtepMacOf(lease.attributes)
    if (mac === null) continue
    rows.push({
      subnet: formatPrefix(lease.subnet),
      gateway: formatIpv4(lease.subnet.address),
      mac: formatMac(mac),
      underlayAddress: formatIpv4(lease.attributes.publicIp),
    })
  }
  return rows
}

/** One table's command for one peer. */
export interface PeerCommand {
  readonly subnet: string
  readonly command: string
}

/**
 * The commands that program peers, table by table. The tables are filled in flannel's order, the route last: with the
 * route there and no neighbour entry the kernel would start asking for addresses that nobody answers.
 */
export interface ProgramPlan {
  readonly neighbors: readonly PeerCommand[]
  readonly fdb: readonly PeerCommand[]
  readonly routes: readonly PeerCommand[]
}

/** Commands for the rows that `present` does not hold already. */
export function planProgram(device: string, rows: readonly PeerRow[], present: PresentRows): ProgramPlan {
  const neighbors = new Map(present.neighbors.map((entry) => [entry.dst, entry]))
  const fdb = new Map(present.fdb.map((entry) => [entry.mac, entry]))
  const routes = new Map(present.routes.map((entry) => [entry.dst, entry]))
  const plan = { neighbors: [] as PeerCommand[], fdb: [] as PeerCommand[], routes: [] as PeerCommand[] }
  for (const { subnet, gateway, mac, underlayAddress } of rows) {
    const neighbor = neighbors.get(gateway)
    if (neighbor?.lladdr !== mac || neighbor.state?.includes('PERMANENT') !== true) {
      plan.neighbors.push({ subnet, command: `neigh replace ${gateway} lladdr ${mac} dev ${device} nud permanent` })
    }
    if (fdb.get(mac)?.dst !== underlayAddress) {
      plan.fdb.push({ subnet, command: `fdb replace ${mac} dev ${device} dst ${underlayAddress} self permanent` })
    }
    const route = routes.get(subnet)
    if (route?.dev !== device || route.gateway !== gateway || !isOurRoute(route.protocol)) {
      const command = `route replace ${subnet} via ${gateway} dev ${device} onlink proto ${ROUTE_PROTOCOL}`
      plan.routes.push({ subnet, command })
    }
  }
  return plan
}

/** Commands that take away what no row asks for: routes first, so that nothing is sent towards a half-gone peer. */
export interface RemovalPlan {
  readonly routes: readonly string[]
  readonly fdb: readonly string[]
  readonly neighbors: readonly string[]
}

/**
 * Everything permanent on the device is ours, and so is every route with our protocol tag on any device. An FDB entry
 * whose MAC no peer has any more goes too: that is how an old MAC leaves when a peer gets a new one.
 */
export function planRemoval(device: string, rows: readonly PeerRow[], present: PresentRows): RemovalPlan {
  const subnets = new Set(rows.map((row) => row.subnet))
  const gateways = new Set(rows.map((row) => row.gateway))
  const macs = new Set(rows.map((row) => row.mac))
  const staleRoutes = present.routes.filter((route) => isOurRoute(route.protocol) && !subnets.has(route.dst))
  const staleFdb = present.fdb.filter(
    (entry) => entry.dst !== undefined && entry.state === 'permanent' && !macs.has(entry.mac),
  )
  const staleNeighbors = present.neighbors.filter(
    (entry) => entry.state?.includes('PERMANENT') === true && !gateways.has(entry.dst),
  )
  return {
    routes: staleRoutes.map(deleteRoute),
    fdb: staleFdb.map((entry) => `fdb delete ${entry.mac} dev ${device} dst ${entry.dst} self`),
    neighbors: staleNeighbors.map((entry) => `neigh delete ${entry.dst} dev ${device}`),
  }
}
