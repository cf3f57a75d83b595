// From leases to what the dataplane forwards by. Pure: the same leases give the same peers in the same order.

import {
  containsAddress,
  containsPrefix,
  type ForwardingEntry,
  formatIpv4,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  isUnicast,
  NON_UNICAST_IPV6_PREFIXES,
  overlaps,
  type Prefix,
  parseIpv6,
  type UnderlayAddress,
} from '../../dataplane/index.ts'
import { foreignWords } from '../foreign-words.ts'
import type { VtepOutline } from '../host/dataplane.ts'
import { resultPer } from '../last-result.ts'
import { sortedLeases } from '../lease/diff.ts'
import { identityInWords, identityOf, ipv6HalfOf, type Lease, nameOf, sameSubnet } from '../lease/lease.ts'
import { peerVtep, type TunnelEnd } from '../lease/peer-vtep.ts'
import { vtepMacForIpv6, vtepMacOf } from '../store/flannel-json.ts'

/** Why a lease is not forwarded to; people see these words in the status. */
export type LeftOutReason =
  | 'incompatible-backend'
  | 'undecodable-data'
  | 'other-family'
  | 'outside-network'
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

/** The pod networks that leases are of; `null` for a family that does not cross. */
export type PodNetworks = Pick<VtepOutline, 'network' | 'ipv6Network'>

/** How packets get to them. */
export interface LedNetworks extends PodNetworks {
  /** One route leads all of a network into the tunnel, also what no lease covers. Absent: each lease has its own. */
  readonly isLedWhole?: boolean
}

export interface PeerSelection {
  /** In address order, without IPv6 halves that cannot be forwarded to. */
  readonly peers: readonly Lease[]
  readonly leftOut: readonly LeftOutPeer[]
}

/** Splits the leases, own one included, into peers that can be forwarded to and those that cannot. */
export function selectPeers(leases: readonly Lease[], own: Lease, networks: LedNetworks): PeerSelection {
  const peers: Lease[] = []
  const leftOut: LeftOutPeer[] = []
  for (const lease of sortedLeases(leases)) {
    if (isOwn(lease, own)) continue
    const verdict = whyNot(lease, own, networks)
    if (verdict !== null) {
      leftOut.push({ lease, subnet: nameOf(lease), ...verdict })
      continue
    }
    // Two leases for one subnet come one after the other, the later revision last: it wins.
    const rival = peers.at(-1)
    if (rival !== undefined && sameSubnet(rival, lease)) {
      peers.pop()
      leftOut.push(superseded(rival, lease, nameOf(rival)))
    }
    peers.push(lease)
  }
  return selectIpv6Halves(peers, leftOut, own, networks)
}

/** A half that cannot be used costs its lease nothing else. Without an IPv6 half of our own there is nothing to say. */
function selectIpv6Halves(
  peers: readonly Lease[],
  leftOut: LeftOutPeer[],
  own: Lease,
  networks: LedNetworks,
): PeerSelection {
  if (peers.every(({ ipv6Subnet }) => ipv6Subnet === null)) return { peers, leftOut }
  const ownHalf = ipv6HalfOf(own)
  const holders = new Map<string, Lease>()
  const useless = new Set<Lease>()
  for (const lease of peers) {
    const half = ipv6HalfOf(lease)
    if (half === null || lease.ipv6Subnet === null) continue
    const subnet = formatPrefix(half)
    const verdict = ownHalf === null ? null : whyNotIpv6(lease, half, { own, ownHalf, networks })
    if (ownHalf === null) {
      useless.add(lease)
    } else if (verdict !== null) {
      useless.add(lease)
      leftOut.push({ lease, subnet, ...verdict })
    } else {
      const rival = holders.get(subnet)
      const [loser, winner] = rival === undefined || rival.revision <= lease.revision ? [rival, lease] : [lease, rival]
      holders.set(subnet, winner)
      if (loser === undefined) continue
      useless.add(loser)
      leftOut.push(superseded(loser, winner, subnet))
    }
  }
  return { peers: withoutHalves(peers, useless, own), leftOut }
}

/** What is left of the peers: a lease of which nothing is goes. A node without IPv4 has no use for that of others. */
function withoutHalves(peers: readonly Lease[], useless: ReadonlySet<Lease>, own: Lease): readonly Lease[] {
  const left = peers.map((lease) => (useless.has(lease) ? { ...lease, ipv6Subnet: null } : lease))
  if (own.subnet !== null) return left.filter(({ subnet, ipv6Subnet }) => subnet !== null || ipv6Subnet !== null)
  const ipv6 = left.filter(({ ipv6Subnet }) => ipv6Subnet !== null)
  return sortedLeases(ipv6.map((lease) => (lease.subnet === null ? lease : { ...lease, subnet: null })))
}

type Verdict = Pick<LeftOutPeer, 'reason' | 'detail'>

/** What a lease is judged by: our own, and that half of it. */
interface OwnHalf<Half extends Prefix> {
  readonly own: Lease
  readonly ownHalf: Half
  readonly networks: LedNetworks
}

function whyNotIpv6(lease: Lease, half: Ipv6Prefix, { own, ownHalf, networks }: OwnHalf<Ipv6Prefix>): Verdict | null {
  const beyond = outside(networks.ipv6Network, half)
  if (beyond !== null) return beyond
  if (overlaps(half, ownHalf)) return { reason: 'overlaps-own-subnet', detail: 'it overlaps our own IPv6 subnet' }
  if (lease.attributes.backendType !== 'vxlan') return null
  const { publicIpv6: ownAddress } = own.attributes
  if (ownAddress === null) {
    return ridesOverIpv4(lease) ? null : { reason: 'undecodable-data', detail: 'its IPv6 VTEP is not the IPv4 one' }
  }
  const { publicIpv6 } = lease.attributes
  const address = parseIpv6(publicIpv6 ?? '')
  if (address === null) return { reason: 'undecodable-data', detail: 'it has no public IPv6 address' }
  if (publicIpv6 === ownAddress) return { reason: 'own-address', detail: 'it carries our own public IPv6 address' }
  const inside = insideOverlay(address, [half, ownHalf], networks.isLedWhole === true ? networks.ipv6Network : null)
  if (inside !== null) return inside
  if (NON_UNICAST_IPV6_PREFIXES.some((prefix) => containsAddress(prefix, address))) {
    return { reason: 'address-not-unicast', detail: `its public address ${publicIpv6} is no host's` }
  }
  if (vtepMacForIpv6(lease.attributes) === null) {
    return { reason: 'undecodable-data', detail: 'it has no usable VtepMAC for IPv6' }
  }
  return null
}

/** Whether the node takes IPv6 packets by its IPv4 device; a real dual-stack node has a second one with its own MAC. */
function ridesOverIpv4({ attributes }: Lease): boolean {
  const mac = vtepMacForIpv6(attributes)
  return mac !== null && mac === vtepMacOf(attributes)
}

function superseded(lease: Lease, winner: Lease, subnet: string): LeftOutPeer {
  const holder = identityInWords(winner.attributes)
  return { lease, subnet, reason: 'superseded', detail: `${holder} holds a later lease for this subnet` }
}

/**
 * Leases without what lies outside the pod networks: nobody forwards to that, so it is in nobody's way. The same list where
 * nothing does.
 */
export function withinNetworks(leases: readonly Lease[], { network, ipv6Network }: PodNetworks): readonly Lease[] {
  const strayed = ({ subnet }: Lease) => subnet !== null && outside(network, subnet) !== null
  const strayedHalf = (lease: Lease) => {
    const half = ipv6HalfOf(lease)
    return half !== null && outside(ipv6Network, half) !== null
  }
  if (!leases.some((lease) => strayed(lease) || strayedHalf(lease))) return leases
  return leases
    .map((lease) => ({
      ...lease,
      subnet: strayed(lease) ? null : lease.subnet,
      ipv6Subnet: strayedHalf(lease) ? null : lease.ipv6Subnet,
    }))
    .filter(({ subnet, ipv6Subnet }) => subnet !== null || ipv6Subnet !== null)
}

type EntriesEnd = TunnelEnd & { readonly port: number; readonly vni: number }

/** By our own end and the lease, neither of which ever changes: one change is a look at ten thousand. */
const entriesFor = resultPer((local: EntriesEnd) => resultPer((peer: Lease) => entriesOf(peer, local)))

/** Table entries for peers that `selectPeers` let through. All nodes of a network share port and VNI. */
export function forwardingEntries(peers: readonly Lease[], local: EntriesEnd): ForwardingEntry[] {
  const entriesTo = entriesFor(local)
  return peers.flatMap((peer) => entriesTo(peer))
}

function entriesOf(peer: Lease, local: EntriesEnd): readonly ForwardingEntry[] {
  const behind = peerVtep(peer, local)
  if (behind === null) return []
  const vtep = { underlayAddress: behind.underlayAddress, port: local.port, mac: behind.mac, vni: local.vni }
  return behind.subnets.map((prefix) => ({ prefix, vtep }))
}

function isOwn(lease: Lease, own: Lease): boolean {
  return sameSubnet(lease, own) && identityOf(lease.attributes) === identityOf(own.attributes)
}

/** Whatever keeps a lease as a whole from being used. */
function whyNot(lease: Lease, own: Lease, networks: LedNetworks): Verdict | null {
  const { attributes } = lease
  if (attributes.backendType !== own.attributes.backendType) {
    // udp and alloc leave the type out of their leases.
    const detail = `incompatible: ${foreignWords(attributes.backendType, 40) || 'udp or alloc'}`
    return { reason: 'incompatible-backend', detail }
  }
  if (identityOf(attributes) === identityOf(own.attributes)) {
    return { reason: 'own-address', detail: 'it carries our own public address' }
  }
  if (own.subnet === null) {
    return lease.ipv6Subnet === null
      ? { reason: 'other-family', detail: 'it has no IPv6 subnet, and we no IPv4' }
      : null
  }
  if (lease.subnet !== null) return whyNotIpv4(lease, lease.subnet, { own, ownHalf: own.subnet, networks })
  if (own.attributes.publicIpv6 !== null) return null
  return { reason: 'other-family', detail: 'it has no IPv4 address, and we no tunnel over IPv6' }
}

/** A route to it would take what is not of pods: somebody's DNS server, or the hosts themselves. */
function outside(network: Prefix | null, subnet: Prefix): Verdict | null {
  if (network === null || containsPrefix(network, subnet)) return null
  return { reason: 'outside-network', detail: `it lies outside the pod network ${formatPrefix(network)}` }
}

/** What is sent there would be encapsulated again, without end. `ledWhole`: a network whose every address is led there. */
function insideOverlay(address: UnderlayAddress, subnets: readonly Prefix[], ledWhole: Prefix | null): Verdict | null {
  const isPod = subnets.some((subnet) => containsAddress(subnet, address))
  if (!isPod && (ledWhole === null || !containsAddress(ledWhole, address))) return null
  const where = isPod || ledWhole === null ? 'a pod subnet' : `the pod network ${formatPrefix(ledWhole)}`
  const which = typeof address === 'number' ? 'address' : 'IPv6 address'
  return { reason: 'address-inside-overlay', detail: `its public ${which} lies inside ${where}` }
}

function whyNotIpv4({ attributes }: Lease, subnet: Ipv4Prefix, own: OwnHalf<Ipv4Prefix>): Verdict | null {
  const { ownHalf, networks } = own
  const beyond = outside(networks.network, subnet)
  if (beyond !== null) return beyond
  const { publicIp } = attributes
  if (overlaps(subnet, ownHalf)) return { reason: 'overlaps-own-subnet', detail: 'it overlaps our own subnet' }
  const inside = insideOverlay(publicIp, [subnet, ownHalf], networks.isLedWhole === true ? networks.network : null)
  if (inside !== null) return inside
  if (publicIp === 0) return { reason: 'undecodable-data', detail: 'it has no IPv4 address' }
  if (!isUnicast(publicIp)) {
    return { reason: 'address-not-unicast', detail: `its public address ${formatIpv4(publicIp)} is no host's` }
  }
  if (attributes.backendType === 'vxlan' && vtepMacOf(attributes) === null) {
    return { reason: 'undecodable-data', detail: 'it has no usable VtepMAC' }
  }
  if (attributes.backendType === 'extension' && !['string', 'undefined'].includes(typeof attributes.backendData)) {
    return { reason: 'undecodable-data', detail: 'its data is no string, as commands write it' }
  }
  return null
}
