// Which node a person means: by public address, by subnet, by overlay address or any address in the subnet, or by the
// name of a lab's host.
import {
  containsAddress,
  formatAddress,
  type Ipv4Prefix,
  type Prefix,
  parseIpv4,
  parseIpv6,
  parseIpv6Prefix,
  parsePrefix,
  samePrefix,
} from '../../dataplane/index.ts'
import type { LeaseStatus } from '../daemon/status-file.ts'
import type { NodeView, PeerView } from './node-view.ts'

/** Name → public address, as text. */
export type NodeNames = ReadonlyMap<string, string>

export type Target =
  | { readonly kind: 'peer'; readonly lease: PeerView; readonly subnet: Ipv4Prefix }
  | { readonly kind: 'self'; readonly lease: LeaseStatus }
  /** A node that the daemon knows of and does not use, and why. */
  | { readonly kind: 'left-out'; readonly subnet: string; readonly publicIp: string; readonly why: string }
  /** `nearest`: what comes closest among the leases, in words; empty without any. */
  | { readonly kind: 'unknown'; readonly publicIp: string | null; readonly nearest: string }

interface Candidate {
  readonly publicIp: string
  readonly subnet: string
  readonly ipv6Subnet?: string | null
}

function isIpv6(wanted: number | bigint | Prefix): boolean {
  return typeof (typeof wanted === 'object' ? wanted.address : wanted) === 'bigint'
}

/** @returns `null` when the word is neither a name nor an address */
export function findTarget(word: string, view: NodeView, names: NodeNames = new Map()): Target | null {
  const text = names.get(word) ?? word
  const address = parseIpv4(text)
  const wanted = address ?? parseIpv6(text) ?? parsePrefix(text) ?? parseIpv6Prefix(text)
  if (wanted === null) return null
  const matches = ({ publicIp, subnet, ipv6Subnet = null }: Candidate): boolean => {
    if (publicIp === text) return true
    const prefix = isIpv6(wanted) ? parseIpv6Prefix(ipv6Subnet ?? '') : parsePrefix(subnet)
    if (prefix === null) return false
    return typeof wanted === 'object' ? samePrefix(prefix, wanted) : containsAddress(prefix, wanted)
  }
  const own = view.status?.lease ?? null
  if (own !== null && matches(own)) return { kind: 'self', lease: own }
  for (const lease of view.peers) {
    const subnet = parsePrefix(lease.subnet)
    if (subnet !== null && matches(lease)) return { kind: 'peer', lease, subnet }
  }
  for (const one of view.status?.leftOut ?? []) {
    if (!matches(one)) continue
    return { kind: 'left-out', subnet: one.subnet, publicIp: one.publicIp, why: `${one.reason}: ${one.detail}` }
  }
  const inNetwork = isInNetwork(view, address)
  return {
    kind: 'unknown',
    publicIp: address === null || inNetwork ? null : text,
    nearest: address === null || !inNetwork ? '' : nearestOf(view.peers, address),
  }
}

/** First address of the peer's subnet: its VTEP. */
export function vtepAddress(subnet: Ipv4Prefix): string {
  return formatAddress(subnet.address)
}

/** The same of its IPv6 half, `null` without one. */
export function ipv6VtepAddress({ ipv6Subnet }: Pick<LeaseStatus, 'ipv6Subnet'>): string | null {
  const prefix = parseIpv6Prefix(ipv6Subnet ?? '')
  return prefix === null ? null : formatAddress(prefix.address)
}

/** The address behind it: the bridge of its pods. */
export function gatewayAddress(subnet: Ipv4Prefix): string {
  return formatAddress(subnet.address + 1)
}

function isInNetwork({ status }: NodeView, address: number | null): boolean {
  const network = parsePrefix(status?.node?.network ?? '')
  return address !== null && network !== null && containsAddress(network, address)
}

function nearestOf(peers: readonly LeaseStatus[], address: number): string {
  const subnets = peers.flatMap((lease) => {
    const prefix = parsePrefix(lease.subnet)
    return prefix === null ? [] : [{ lease, at: prefix.address }]
  })
  const below = subnets.filter(({ at }) => at <= address).sort((a, b) => b.at - a.at)[0]
  const above = subnets.filter(({ at }) => at > address).sort((a, b) => a.at - b.at)[0]
  return [below, above]
    .flatMap((one) => (one === undefined ? [] : `${one.lease.subnet} of ${one.lease.publicIp}`))
    .join(', ')
}
