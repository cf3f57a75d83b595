// Which node a person means: by public address, by subnet, by overlay address or any address in the subnet, or by the
// name of a lab's host.
import {
  containsAddress,
  formatAddress,
  type Prefix,
  parseIpv4,
  parseIpv6,
  parseIpv6Prefix,
  parsePrefix,
  samePrefix,
} from '../../dataplane/index.ts'
import type { LeaseStatus } from '../daemon/lease-status.ts'
import type { NodeView, PeerView } from './node-view.ts'

/** Name → public address, as text. */
export type NodeNames = ReadonlyMap<string, string>

export type Target =
  | { readonly kind: 'peer'; readonly lease: PeerView; readonly subnet: Prefix }
  | { readonly kind: 'self'; readonly lease: LeaseStatus }
  /** A node that the daemon knows of and does not use, and why. */
  | { readonly kind: 'left-out'; readonly subnet: string; readonly publicIp: string; readonly why: string }
  /** `nearest`: what comes closest among the leases, in words; empty without any. */
  | { readonly kind: 'unknown'; readonly publicIp: string | null; readonly nearest: string }

interface Candidate {
  readonly publicIp: string
  readonly publicIpv6?: string | null
  readonly subnet: string
  readonly ipv6Subnet?: string | null
}

function isIpv6(wanted: number | bigint | Prefix): boolean {
  return typeof (typeof wanted === 'object' ? wanted.address : wanted) === 'bigint'
}

/** @returns `null` when the word is neither a name nor an address */
export function findTarget(word: string, view: NodeView, names: NodeNames = new Map()): Target | null {
  const text = names.get(word) ?? word
  const wanted = parseIpv4(text) ?? parseIpv6(text) ?? parsePrefix(text) ?? parseIpv6Prefix(text)
  if (wanted === null) return null
  const matches = ({ publicIp, publicIpv6, subnet, ipv6Subnet = null }: Candidate): boolean => {
    if (publicIp === text || publicIpv6 === text) return true
    const prefix = isIpv6(wanted) ? parseIpv6Prefix(ipv6Subnet ?? subnet) : parsePrefix(subnet)
    if (prefix === null) return false
    return typeof wanted === 'object' ? samePrefix(prefix, wanted) : containsAddress(prefix, wanted)
  }
  const own = view.status?.lease ?? null
  if (own !== null && matches(own)) return { kind: 'self', lease: own }
  for (const lease of view.peers) {
    const subnet = subnetOf(lease)
    if (subnet !== null && matches(lease)) return { kind: 'peer', lease, subnet }
  }
  for (const one of view.status?.leftOut ?? []) {
    if (!matches(one)) continue
    return { kind: 'left-out', subnet: one.subnet, publicIp: one.publicIp, why: `${one.reason}: ${one.detail}` }
  }
  const single = typeof wanted === 'object' ? null : wanted
  const inNetwork = single !== null && isInNetwork(view, single)
  return {
    kind: 'unknown',
    publicIp: single === null || inNetwork ? null : text,
    nearest: single === null || !inNetwork ? '' : nearestOf(view.peers, single),
  }
}

/** The subnet that a lease goes by, of either family. */
export function subnetOf({ subnet }: Pick<LeaseStatus, 'subnet'>): Prefix | null {
  return parsePrefix(subnet) ?? parseIpv6Prefix(subnet)
}

/** First address of the peer's subnet: its VTEP. */
export function vtepAddress(subnet: Prefix): string {
  return formatAddress(subnet.address)
}

/** Who answers for a peer by the way that its pods' packets take: its VTEP; without a tunnel, surely the host alone. */
export function answeringAddress(peer: Pick<LeaseStatus, 'publicIp' | 'subnet'>, overlayDevice: string): string {
  const subnet = subnetOf(peer)
  return subnet === null || overlayDevice === '' ? peer.publicIp : vtepAddress(subnet)
}

/** The VTEP of its IPv6 half, `null` without one beside IPv4. */
export function ipv6VtepAddress({ subnet, ipv6Subnet }: Pick<LeaseStatus, 'subnet' | 'ipv6Subnet'>): string | null {
  const prefix = parseIpv6Prefix(ipv6Subnet ?? '')
  return prefix === null || ipv6Subnet === subnet ? null : formatAddress(prefix.address)
}

/** The address behind it: the bridge of its pods. */
export function gatewayAddress({ address }: Prefix): string {
  return formatAddress(typeof address === 'number' ? address + 1 : address + 1n)
}

function isInNetwork({ status }: NodeView, address: number | bigint): boolean {
  const { network = '', ipv6Network = null } = status?.node ?? {}
  const networks = [parsePrefix(network), parseIpv6Prefix(ipv6Network ?? '')]
  return networks.some((prefix) => prefix !== null && containsAddress(prefix, address))
}

function nearestOf(peers: readonly LeaseStatus[], address: number | bigint): string {
  const subnets = peers.flatMap(({ publicIp, subnet, ipv6Subnet }) => {
    const text = typeof address === 'number' ? subnet : (ipv6Subnet ?? '')
    const prefix = typeof address === 'number' ? parsePrefix(text) : parseIpv6Prefix(text)
    return prefix === null ? [] : [{ words: `${text} of ${publicIp}`, at: prefix.address }]
  })
  const inOrder = subnets.sort((a, b) => (a.at < b.at ? -1 : 1))
  const below = inOrder.findLast(({ at }) => at <= address)
  const above = inOrder.find(({ at }) => at > address)
  return [below, above].flatMap((one) => one?.words ?? []).join(', ')
}
