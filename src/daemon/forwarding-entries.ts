// From leases to what the dataplane forwards by. Pure: the same leases give the same peers in the same order.

import {
  containsAddress,
  type ForwardingEntry,
  formatIpv4,
  formatPrefix,
  isUnicast,
  overlaps,
  samePrefix,
} from '../../dataplane/index.ts'
import type { Encapsulation } from '../config/mtu.ts'
import { sortedLeases } from '../lease/diff.ts'
import { ipv6HalfOf, type Lease } from '../lease/lease.ts'
import { vtepMacForIpv6, vtepMacOf } from '../store/flannel-json.ts'

/** Why a lease is not forwarded to; people see these words in the status. */
export type LeftOutReason =
  | 'incompatible-backend'
  | 'undecodable-data'
  | 'overlaps-own-subnet'
  | 'own-address'
  | 'address-not-unicast'
  | 'address-inside-overlay'
  | 'superseded'

export interface LeftOutPeer {
  readonly lease: Lease
  /** What is not forwarded to: the lease's IPv4 subnet stands for all of it, its IPv6 subnet for that half alone. */
  readonly subnet: string
  readonly reason: LeftOutReason
  /** For people: `incompatible: host-gw`. */
  readonly detail: string
}

export interface PeerSelection {
  /** In address order, without IPv6 halves that cannot be forwarded to. */
  readonly peers: readonly Lease[]
  readonly leftOut: readonly LeftOutPeer[]
}

/** Splits the leases, own one included, into peers that can be forwarded to and those that cannot. */
export function selectPeers(leases: readonly Lease[], own: Lease): PeerSelection {
  const peers: Lease[] = []
  const leftOut: LeftOutPeer[] = []
  for (const lease of sortedLeases(leases)) {
    if (isOwn(lease, own)) continue
    const verdict = whyNot(lease, own)
    if (verdict !== null) {
      leftOut.push({ lease, subnet: formatPrefix(lease.subnet), ...verdict })
      continue
    }
    // Two leases for one subnet come one after the other, the later revision last: it wins.
    const rival = peers.at(-1)
    if (rival !== undefined && samePrefix(rival.subnet, lease.subnet)) {
      peers.pop()
      leftOut.push(superseded(rival, lease, formatPrefix(rival.subnet)))
    }
    peers.push(lease)
  }
  return selectIpv6Halves(peers, leftOut, own)
}

/** A half that cannot be used costs its lease nothing else. Without an IPv6 half of our own there is nothing to say. */
function selectIpv6Halves(peers: readonly Lease[], leftOut: LeftOutPeer[], own: Lease): PeerSelection {
  if (peers.every(({ ipv6Subnet }) => ipv6Subnet === null)) return { peers, leftOut }
  const ownHalf = ipv6HalfOf(own)
  const holders = new Map<string, Lease>()
  const useless = new Set<Lease>()
  for (const lease of peers) {
    const half = ipv6HalfOf(lease)
    if (half === null || lease.ipv6Subnet === null) continue
    const subnet = formatPrefix(half)
    if (ownHalf === null) {
      useless.add(lease)
    } else if (overlaps(half, ownHalf)) {
      useless.add(lease)
      leftOut.push({ lease, subnet, reason: 'overlaps-own-subnet', detail: 'it overlaps our own IPv6 subnet' })
    } else if (lease.attributes.backendType === 'vxlan' && !ridesOverIpv4(lease)) {
      useless.add(lease)
      leftOut.push({ lease, subnet, reason: 'undecodable-data', detail: 'its IPv6 VTEP is not the IPv4 one' })
    } else {
      const rival = holders.get(subnet)
      const [loser, winner] = rival === undefined || rival.revision <= lease.revision ? [rival, lease] : [lease, rival]
      holders.set(subnet, winner)
      if (loser === undefined) continue
      useless.add(loser)
      leftOut.push(superseded(loser, winner, subnet))
    }
  }
  return { peers: peers.map((lease) => (useless.has(lease) ? { ...lease, ipv6Subnet: null } : lease)), leftOut }
}

/** Whether the node takes IPv6 packets by its IPv4 device; a real dual-stack node has a second one with its own MAC. */
function ridesOverIpv4({ attributes }: Lease): boolean {
  const mac = vtepMacForIpv6(attributes)
  return mac !== null && mac === vtepMacOf(attributes)
}

function superseded(lease: Lease, winner: Lease, subnet: string): LeftOutPeer {
  const holder = formatIpv4(winner.attributes.publicIp)
  return { lease, subnet, reason: 'superseded', detail: `${holder} holds a later lease for this subnet` }
}

/** Table entries for peers that `selectPeers` let through. All nodes of a network share port and VNI. */
export function forwardingEntries(
  peers: readonly Lease[],
  local: { readonly encapsulation: Encapsulation; readonly port: number; readonly vni: number },
): ForwardingEntry[] {
  const entries: ForwardingEntry[] = []
  for (const peer of peers) {
    const { subnet, attributes } = peer
    const mac = local.encapsulation === 'udp' ? 0 : vtepMacOf(attributes)
    if (mac === null) continue
    const vtep = { underlayAddress: attributes.publicIp, port: local.port, mac, vni: local.vni }
    entries.push({ prefix: subnet, vtep })
    const half = ipv6HalfOf(peer)
    if (half !== null) entries.push({ prefix: half, vtep })
  }
  return entries
}

function isOwn(lease: Lease, own: Lease): boolean {
  return samePrefix(lease.subnet, own.subnet) && lease.attributes.publicIp === own.attributes.publicIp
}

function whyNot(lease: Lease, own: Lease): Omit<LeftOutPeer, 'lease' | 'subnet'> | null {
  const { attributes } = lease
  if (attributes.backendType !== own.attributes.backendType) {
    // udp and alloc leave the type out of their leases.
    const detail = `incompatible: ${attributes.backendType || 'udp or alloc'}`
    return { reason: 'incompatible-backend', detail }
  }
  if (attributes.publicIp === own.attributes.publicIp) {
    return { reason: 'own-address', detail: 'it carries our own public address' }
  }
  if (overlaps(lease.subnet, own.subnet)) return { reason: 'overlaps-own-subnet', detail: 'it overlaps our own subnet' }
  if (containsAddress(lease.subnet, attributes.publicIp) || containsAddress(own.subnet, attributes.publicIp)) {
    // What is sent there would be encapsulated again, without end.
    return { reason: 'address-inside-overlay', detail: 'its public address lies inside a pod subnet' }
  }
  if (attributes.publicIp === 0) return { reason: 'undecodable-data', detail: 'it has no IPv4 address' }
  if (!isUnicast(attributes.publicIp)) {
    return {
      reason: 'address-not-unicast',
      detail: `its public address ${formatIpv4(attributes.publicIp)} is no host's`,
    }
  }
  if (attributes.backendType === 'vxlan' && vtepMacOf(attributes) === null) {
    return { reason: 'undecodable-data', detail: 'it has no usable VtepMAC' }
  }
  if (attributes.backendType === 'extension' && !['string', 'undefined'].includes(typeof attributes.backendData)) {
    return { reason: 'undecodable-data', detail: 'its data is no string, as commands write it' }
  }
  return null
}
