// What the kernel's three tables should hold for a set of leases, and which commands bring them there. Pure: snapshots
// in, commands out. kernel-vtep.ts runs them.
import { formatAddress, formatMac, formatPrefix, type Prefix } from '../../dataplane/index.ts'
import type { Lease } from '../lease/lease.ts'
import { peerVtep, type TunnelEnd } from '../lease/peer-vtep.ts'
import type { FdbInfo, NeighborInfo, RouteInfo } from './ip.ts'
import { planPeerRoutes, type RouteStep } from './peer-route-plan.ts'
import { deleteRoute, foreignInTheWay, verbFor } from './route-place.ts'
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

/** Leases to rows; a lease with nothing behind this tunnel is left out. */
export function desiredRows(peers: readonly Lease[], local: TunnelEnd): PeerRow[] {
  return peers.flatMap((lease) => {
    const behind = peerVtep(lease, local)
    const [subnet, ipv6] = behind?.subnets ?? []
    if (behind === null || subnet === undefined) return []
    return [
      {
        ...subnetRow(subnet),
        ipv6: ipv6 === undefined ? null : subnetRow(ipv6),
        mac: formatMac(behind.mac),
        underlayAddress: formatAddress(behind.underlayAddress),
      },
    ]
  })
}

/**
 * Subnets, by their rows, that cannot be programmed because a row before them has the same MAC for another address, as
 * copied machines do; with the reason. An FDB entry of the kernel's leads one MAC to one address.
 */
export function twinsAmong(rows: readonly PeerRow[]): ReadonlyMap<string, string> {
  const holders = new Map<string, PeerRow>()
  const twins = new Map<string, string>()
  for (const row of rows) {
    const holder = holders.get(row.mac) ?? row
    holders.set(row.mac, holder)
    if (holder.underlayAddress === row.underlayAddress) continue
    const why = `its VTEP has the MAC of ${holder.underlayAddress}, ${row.mac}: each node needs its own state directory`
    for (const { subnet } of subnetRowsOf(row)) twins.set(subnet, why)
  }
  return twins
}

function subnetRow(subnet: Prefix): SubnetRow {
  return { subnet: formatPrefix(subnet), gateway: formatAddress(subnet.address) }
}

/** Its one or two subnets: each is programmed for itself, so that trouble with IPv6 costs IPv4 nothing. */
export function subnetRowsOf(row: PeerRow): SubnetRow[] {
  return row.ipv6 === null ? [row] : [row, row.ipv6]
}

/** All that these peers have. */
export function subnetsOf(rows: readonly PeerRow[]): string[] {
  return rows.flatMap(subnetRowsOf).map(({ subnet }) => subnet)
}

/** One table's command for one subnet of a peer; the FDB, which both share, goes with the IPv4 one. */
export interface PeerCommand {
  readonly subnet: string
  readonly command: string
  /**
   * What to do should the kernel refuse: take a wrong one of ours away first. For IPv6 it does, since it looks for the gateway
   * of the new route by way of the old one (ip6_route_check_nh_onlink in net/ipv6/route.c).
   */
  readonly instead?: { readonly removal: string; readonly command: string }
}

/**
 * The commands that program peers, table by table. The tables are filled in flannel's order, the route last: with the
 * route there and no neighbour entry the kernel would start asking for addresses that nobody answers.
 */
export interface ProgramPlan {
  readonly neighbors: readonly PeerCommand[]
  readonly fdb: readonly PeerCommand[]
  readonly routes: readonly PeerCommand[]
  /** Subnet → why it has no command although its route is not there: somebody else's is in its place, and stays. */
  readonly blocked: ReadonlyMap<string, string>
}

/** Commands for the rows that `present` does not hold already. */
export function planProgram(device: string, rows: readonly PeerRow[], present: PresentRows): ProgramPlan {
  const neighbors = new Map(present.neighbors.map((entry) => [entry.dst, entry]))
  const fdb = new Map(present.fdb.map((entry) => [entry.mac, entry]))
  const plan = { neighbors: [] as PeerCommand[], fdb: [] as PeerCommand[] }
  for (const row of rows) {
    const { mac, underlayAddress } = row
    const forwarding = fdb.get(mac)
    if (forwarding?.dst !== underlayAddress || forwarding.state !== 'permanent') {
      const command = `fdb replace ${mac} dev ${device} dst ${underlayAddress} self permanent`
      plan.fdb.push({ subnet: row.subnet, command })
    }
    for (const { subnet, gateway } of subnetRowsOf(row)) {
      const neighbor = neighbors.get(gateway)
      if (neighbor?.lladdr !== mac || !isOurNeighbor(neighbor)) {
        const command = `neigh replace ${gateway} lladdr ${mac} dev ${device} nud permanent protocol ${ROUTE_PROTOCOL}`
        plan.neighbors.push({ subnet, command })
      }
    }
  }
  return { ...plan, ...planRoutes(device, rows, present.routes) }
}

function planRoutes(
  device: string,
  rows: readonly PeerRow[],
  present: readonly RouteInfo[],
): Pick<ProgramPlan, 'routes' | 'blocked'> {
  const wanted = rows.flatMap(subnetRowsOf).map((row) => ({ ...row, device, onlink: true }))
  const routes: PeerCommand[] = []
  const blocked = new Map<string, string>()
  // What is ours and nobody wants is for planRemoval.
  for (const [subnet, step] of planPeerRoutes(wanted, present, () => false).steps) {
    if (step.kind === 'run') routes.push({ subnet, ...withoutReplacing(step) })
    if (step.kind === 'blocked') blocked.set(subnet, foreignInTheWay(step.what))
  }
  return { routes, blocked }
}

function withoutReplacing({ command, instead }: RouteStep & { kind: 'run' }): Omit<PeerCommand, 'subnet'> {
  if (instead === null) return { command }
  return { command, instead: { removal: instead, command: command.replace(verbFor(true), verbFor(false)) } }
}

/** Commands that take away what no row asks for: routes first, so that nothing is sent towards a half-gone peer. */
export interface RemovalPlan {
  readonly routes: readonly string[]
  readonly fdb: readonly string[]
  readonly neighbors: readonly string[]
}

/**
 * Ours are the routes into the device and neighbours that carry our protocol tag, and the FDB entries, which can carry
 * none, of MACs that such a neighbour names or that we know to have put there (`macs`). An FDB entry whose MAC no peer
 * has any more goes too: that is how an old MAC leaves when a peer gets a new one.
 */
export function planRemoval(
  device: string,
  rows: readonly PeerRow[],
  present: PresentRows,
  macs: ReadonlySet<string> = new Set(),
): RemovalPlan {
  const wanted = rows.flatMap(subnetRowsOf)
  const subnets = new Set(wanted.map((row) => row.subnet))
  const gateways = new Set(wanted.map((row) => row.gateway))
  const wantedMacs = new Set(rows.map((row) => row.mac))
  const ownNeighbors = present.neighbors.filter(isOurNeighbor)
  const ownMacs = new Set([...macs, ...ownNeighbors.map(({ lladdr }) => lladdr)])
  const staleRoutes = present.routes.filter(
    (route) => isOurPeerRoute(route) && route.dev === device && !subnets.has(route.dst),
  )
  const staleFdb = present.fdb.filter(
    ({ dst, state, mac }) => dst !== undefined && state === 'permanent' && ownMacs.has(mac) && !wantedMacs.has(mac),
  )
  const staleNeighbors = ownNeighbors.filter(({ dst }) => !gateways.has(dst))
  return {
    routes: staleRoutes.map(deleteRoute),
    fdb: staleFdb.map((entry) => `fdb delete ${entry.mac} dev ${device} dst ${entry.dst} self`),
    neighbors: staleNeighbors.map((entry) => `neigh delete ${entry.dst} dev ${device}`),
  }
}

/** Somebody else's replacement leaves our tag in place, and maybe not our state. */
function isOurNeighbor({ protocol, state }: NeighborInfo): boolean {
  return isOurRoute(protocol) && state?.includes('PERMANENT') === true
}
