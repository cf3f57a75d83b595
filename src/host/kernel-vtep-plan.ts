// What the kernel's three tables should hold for a set of leases, and which commands bring them there. Pure: snapshots
// in, commands out. kernel-vtep.ts runs them.
import { formatAddress, formatIpv4, formatMac, formatPrefix, type Prefix } from '../../dataplane/index.ts'
import { ipv6HalfOf, type Lease } from '../lease/lease.ts'
import { vtepMacOf } from '../store/flannel-json.ts'
import type { FdbInfo, NeighborInfo, RouteInfo } from './ip.ts'
import { deleteRoute } from './overlay-link.ts'
import { isOurPeerRoute, isOurRoute, ROUTE_PROTOCOL } from './route-protocol.ts'

/** A subnet of a peer and the way into it, in iproute2's text forms. */
export interface SubnetRow {
  /** `10.244.2.0/24`: destination of the route. */
  readonly subnet: string
  /** `10.244.2.0`: the gateway of the route and the neighbour entry's address. */
  readonly gateway: string
}

/** One peer as the kernel needs it. */
export interface PeerRow extends SubnetRow {
  /** The IPv6 half, with the same VTEP behind it; `null` without one. */
  readonly ipv6: SubnetRow | null
  /** VTEP MAC: value of the neighbour entry, key of the FDB entry. */
  readonly mac: string
  /** Underlay address that the FDB entry points to. */
  readonly underlayAddress: string
}

/** What the device's tables hold now. */
export interface PresentRows {
  readonly neighbors: readonly NeighborInfo[]
  readonly fdb: readonly FdbInfo[]
  /** Routes of the main tables of both families, any device. */
  readonly routes: readonly RouteInfo[]
}

/** Leases to rows; a lease whose backend data names no MAC is left out. */
export function desiredRows(peers: readonly Lease[]): PeerRow[] {
  const rows: PeerRow[] = []
  for (const lease of peers) {
    const mac = vtepMacOf(lease.attributes)
    if (mac === null) continue
    const half = ipv6HalfOf(lease)
    rows.push({
      ...subnetRow(lease.subnet),
      ipv6: half === null ? null : subnetRow(half),
      mac: formatMac(mac),
      underlayAddress: formatIpv4(lease.attributes.publicIp),
    })
  }
  return rows
}

function subnetRow(subnet: Prefix): SubnetRow {
  return { subnet: formatPrefix(subnet), gateway: formatAddress(subnet.address) }
}

/** Its one or two subnets: each is programmed for itself, so that trouble with IPv6 costs IPv4 nothing. */
export function subnetRowsOf(row: PeerRow): SubnetRow[] {
  return row.ipv6 === null ? [row] : [row, row.ipv6]
}

/** One table's command for one subnet of a peer; the FDB, which both share, goes with the IPv4 one. */
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
  for (const row of rows) {
    const { mac, underlayAddress } = row
    if (fdb.get(mac)?.dst !== underlayAddress) {
      const command = `fdb replace ${mac} dev ${device} dst ${underlayAddress} self permanent`
      plan.fdb.push({ subnet: row.subnet, command })
    }
    for (const { subnet, gateway } of subnetRowsOf(row)) {
      const neighbor = neighbors.get(gateway)
      if (neighbor?.lladdr !== mac || neighbor.state?.includes('PERMANENT') !== true) {
        const command = `neigh replace ${gateway} lladdr ${mac} dev ${device} nud permanent`
        plan.neighbors.push({ subnet, command })
      }
      const route = routes.get(subnet)
      if (route?.dev !== device || route.gateway !== gateway || !isOurRoute(route.protocol)) {
        const command = `route replace ${subnet} via ${gateway} dev ${device} onlink proto ${ROUTE_PROTOCOL}`
        plan.routes.push({ subnet, command })
      }
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
 * Everything permanent on the device is ours, and so is every route into it with our protocol tag. An FDB entry
 * whose MAC no peer has any more goes too: that is how an old MAC leaves when a peer gets a new one.
 */
export function planRemoval(device: string, rows: readonly PeerRow[], present: PresentRows): RemovalPlan {
  const wanted = rows.flatMap(subnetRowsOf)
  const subnets = new Set(wanted.map((row) => row.subnet))
  const gateways = new Set(wanted.map((row) => row.gateway))
  const macs = new Set(rows.map((row) => row.mac))
  const staleRoutes = present.routes.filter(
    (route) => isOurPeerRoute(route) && route.dev === device && !subnets.has(route.dst),
  )
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
