// From leases to what the dataplane forwards by. Pure: the same leases give the same peers in the same order.

import {
  containsAddress,
  type ForwardingEntry,
  formatIpv4,
  isUnicast,
  overlaps,
  samePrefix,
} from '../../dataplane/index.ts'
import { inAddressOrder } from '../lease/diff.ts'
import type { Lease } from '../lease/lease.ts'
import { vtepMacOf } from '../store/flannel-json.ts'

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
  readonly reason: LeftOutReason
  /** For people: `incompatible: host-gw`. */
  readonly detail: string
}

export interface PeerSelection {
  /** In address order. */
  readonly peers: readonly Lease[]
  readonly leftOut: readonly LeftOutPeer[]
}

/** Splits the leases, own one included, into peers that can be forwarded to and those that cannot. */
export function selectPeers(leases: readonly Lease[], own: Lease): PeerSelection {
  const peers: Lease[] = []
  const leftOut: LeftOutPeer[] = []
  for (const lease of [...leases].sort(inAddressOrder)) {
    if (isOwn(lease, own)) continue
    const verdict = whyNot(lease, own)
    if (verdict !== null) {
      leftOut.push({ lease, ...verdict })
      continue
    }
    // Two leases for one subnet come one after the other, the later revision last: it wins.
    const rival = peers.at(-1)
    if (rival !== undefined && samePrefix(rival.subnet, lease.subnet)) {
      peers.pop()
      const winner = formatIpv4(lease.attributes.publicIp)
      leftOut.push({ lease: rival, reason: 'superseded', detail: `${winner} holds a later lease for this subnet` })
    }
    peers.push(lease)
  }
  return { peers, leftOut }
}

/** Table entries for peers that `selectPeers` let through. All nodes of a network share port and VNI. */
export function forwardingEntries(
  peers: readonly Lease[],
  local: { readonly encapsulation: 'vxlan' | 'udp'; readonly port: number; readonly vni: number },
): ForwardingEntry[] {
  return peers.flatMap(({ subnet, attributes }) => {
    const mac = local.encapsulation === 'udp' ? 0 : vtepMacOf(attributes)
    if (mac === null) return []
    return { prefix: subnet, vtep: { underlayAddress: attributes.publicIp, port: local.port, mac, vni: local.vni } }
  })
}

function isOwn(lease: Lease, own: Lease): boolean {
  return samePrefix(lease.subnet, own.subnet) && lease.attributes.publicIp === own.attributes.publicIp
}

function whyNot(lease: Lease, own: Lease): Omit<LeftOutPeer, 'lease'> | null {
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
  if ([lease.subnet, own.subnet].some((subnet) => containsAddress(subnet, attributes.publicIp))) {
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
  if (attributes.backendType !== '' && vtepMacOf(attributes) === null) {
    return { reason: 'undecodable-data', detail: 'it has no usable VtepMAC' }
  }
  return null
}
