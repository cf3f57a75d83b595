// What changed between two sets of leases, and which of them contradict each other. Pure: the same sets give the same
// answer whatever their order, however often, and after a restart.
import {
  formatIpv4,
  formatPrefix,
  type Ipv4Prefix,
  lastAddress,
  overlaps,
  type Prefix,
  samePrefix,
} from '../../dataplane/index.ts'
import { ipv6HalfOf, type Lease, type LeaseAttributes } from './lease.ts'

export interface LeaseDiff {
  readonly added: readonly Lease[]
  /** New state of leases whose attributes or IPv6 half differ; a mere renewal is no change. */
  readonly updated: readonly Lease[]
  /** Last known state of leases that are gone. */
  readonly removed: readonly Lease[]
}

/**
 * Compares by IPv4 subnet over all attributes. `own`, when given, is left out on both sides. Results are in address
 * order.
 */
export function diffLeases(before: readonly Lease[], after: readonly Lease[], own: Ipv4Prefix | null): LeaseDiff {
  const old = bySubnet(before, own)
  const now = bySubnet(after, own)
  const added: Lease[] = []
  const updated: Lease[] = []
  for (const [key, lease] of now) {
    const known = old.get(key)
    if (known === undefined) added.push(lease)
    else if (known === lease) continue
    else if (known.ipv6Subnet !== lease.ipv6Subnet || !sameAttributes(known.attributes, lease.attributes)) {
      updated.push(lease)
    }
  }
  const removed = [...old].filter(([key]) => !now.has(key)).map(([, lease]) => lease)
  return { added, updated, removed }
}

/** Whether two leases say the same of their node, backend data included; order of JSON keys does not count. */
export function sameAttributes(a: LeaseAttributes, b: LeaseAttributes): boolean {
  return (
    a.publicIp === b.publicIp &&
    a.publicIpv6 === b.publicIpv6 &&
    a.backendType === b.backendType &&
    sameData(a.backendData, b.backendData) &&
    sameData(a.backendV6Data, b.backendV6Data)
  )
}

export interface LeaseConflict {
  readonly a: Lease
  readonly b: Lease
}

/** Pairs of leases of different nodes whose subnets of a family are equal or overlap. Empty in a healthy network. */
export function findConflicts(leases: readonly Lease[]): LeaseConflict[] {
  const sorted = [...leases].sort(inAddressOrder)
  const conflicts = overlapping(sorted, (lease) => lease.subnet)
  const dual = sorted.filter((lease) => lease.ipv6Subnet !== null)
  const ipv6Conflicts = overlapping(dual, ipv6HalfOf).filter(({ a, b }) => !overlaps(a.subnet, b.subnet))
  return [...conflicts, ...ipv6Conflicts]
}

/** Pairs whose prefixes overlap; one sweep over them in address order, larger ones first. */
function overlapping(leases: readonly Lease[], prefixOf: (lease: Lease) => Prefix | null): LeaseConflict[] {
  const prefixed = leases.flatMap((lease) => {
    const prefix = prefixOf(lease)
    return prefix === null ? [] : [{ lease, prefix }]
  })
  prefixed.sort((a, b) => byAddress(a.prefix, b.prefix))
  const conflicts: LeaseConflict[] = []
  const open: typeof prefixed = []
  for (const next of prefixed) {
    while (open.length > 0 && lastAddress(open.at(-1)!.prefix) < next.prefix.address) open.pop()
    for (const outer of open) {
      if (outer.lease.attributes.publicIp !== next.lease.attributes.publicIp) {
        conflicts.push({ a: outer.lease, b: next.lease })
      }
    }
    open.push(next)
  }
  return conflicts
}

/** Whether two leases cannot both be: they hold some of the same subnet, in either family. */
export function collide(a: Pick<Lease, 'subnet' | 'ipv6Subnet'>, b: Pick<Lease, 'subnet' | 'ipv6Subnet'>): boolean {
  const [halfOfA, halfOfB] = [ipv6HalfOf(a), ipv6HalfOf(b)]
  return overlaps(a.subnet, b.subnet) || (halfOfA !== null && halfOfB !== null && overlaps(halfOfA, halfOfB))
}

/** One sentence with both keys and both addresses. */
export function describeConflict({ a, b }: LeaseConflict): string {
  const half = overlaps(a.subnet, b.subnet) ? (lease: Lease) => formatPrefix(lease.subnet) : ipv6Text
  const name = (lease: Lease) => `${half(lease)} of ${formatIpv4(lease.attributes.publicIp)}`
  return `${name(a)} and ${name(b)} ${half(a) === half(b) ? 'are the same subnet' : 'overlap'}`
}

function ipv6Text({ ipv6Subnet }: Lease): string {
  return ipv6Subnet ?? 'no IPv6 subnet'
}

/** By address, larger prefixes first, then by revision: the order of every list of leases that we make. */
export function inAddressOrder(a: Lease, b: Lease): number {
  return byAddress(a.subnet, b.subnet) || a.revision - b.revision
}

function byAddress(a: Prefix, b: Prefix): number {
  if (a.address !== b.address) return a.address < b.address ? -1 : 1
  return a.length - b.length
}

/** Of several leases for one subnet the latest revision counts. */
function bySubnet(leases: readonly Lease[], own: Ipv4Prefix | null): Map<number, Lease> {
  const others = leases.filter((lease) => own === null || !samePrefix(lease.subnet, own))
  return new Map(others.sort(inAddressOrder).map((lease) => [numberOf(lease.subnet), lease]))
}

/** A number for each prefix; text would cost most of the time where there are ten thousand. */
function numberOf({ address, length }: Ipv4Prefix): number {
  return address * 64 + length
}

function sameData(a: unknown, b: unknown): boolean {
  return a === b || canonical(a) === canonical(b)
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part
    return Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}
