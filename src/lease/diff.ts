// What changed between two sets of leases, and which of them contradict each other. Pure: the same sets give the same
// answer whatever their order, however often, and after a restart.
import { lastAddress, overlaps, type Prefix, type UnderlayAddress } from '../../dataplane/index.ts'
import {
  type Halves,
  identityInWords,
  identityOf,
  ipv6HalfOf,
  type Lease,
  type LeaseAttributes,
  leadingHalf,
  nameOf,
  sameSubnet,
} from './lease.ts'

export interface LeaseDiff {
  readonly added: readonly Lease[]
  /** New state of leases whose attributes or IPv6 half differ; a mere renewal is no change. */
  readonly updated: readonly Lease[]
  /** Last known state of leases that are gone. */
  readonly removed: readonly Lease[]
}

/**
 * Compares by subnet over all attributes. `own`, when given, is left out on both sides. Results are in address order.
 */
export function diffLeases(before: readonly Lease[], after: readonly Lease[], own: Halves | null): LeaseDiff {
  const [old, now] = [latestOfEach(before, own), latestOfEach(after, own)]
  const diff = { added: [] as Lease[], updated: [] as Lease[], removed: [] as Lease[] }
  let [left, right] = [0, 0]
  while (left < old.length || right < now.length) {
    const [known, lease] = [old[left], now[right]]
    if (known === lease) {
      left += 1
      right += 1
      continue
    }
    const order = known === undefined ? 1 : lease === undefined ? -1 : byAddress(leadingHalf(known), leadingHalf(lease))
    if (order < 0) diff.removed.push(known!)
    else if (order > 0) diff.added.push(lease!)
    else if (!saysTheSame(known!, lease!)) diff.updated.push(lease!)
    if (order <= 0) left += 1
    if (order >= 0) right += 1
  }
  return diff
}

function saysTheSame(a: Lease, b: Lease): boolean {
  return a.ipv6Subnet === b.ipv6Subnet && sameAttributes(a.attributes, b.attributes)
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

/** As many contradictions of leases as anybody reads: n leases for one subnet have n² of them. */
export const MOST_CONFLICTS = 1000

/**
 * Pairs of leases of different nodes whose subnets of a family are equal or overlap, {@link MOST_CONFLICTS} of each
 * family at most. Empty in a healthy network.
 */
export function findConflicts(leases: readonly Lease[]): LeaseConflict[] {
  const sorted = sortedLeases(leases)
  const halves: { readonly lease: Lease; readonly prefix: Prefix }[] = []
  const subnets: { readonly lease: Lease; readonly prefix: Prefix }[] = []
  let [last, apart] = [-1, true] // what nearly always holds is found out without a search
  for (const lease of sorted) {
    const { subnet } = lease
    if (subnet !== null) {
      apart &&= subnet.address > last
      last = lastAddress(subnet)
      subnets.push({ lease, prefix: subnet })
    }
    const prefix = ipv6HalfOf(lease)
    if (prefix !== null) halves.push({ lease, prefix })
  }
  const conflicts = apart ? [] : overlapping(subnets)
  halves.sort((a, b) => byAddress(a.prefix, b.prefix))
  const ipv6Conflicts = overlapping(halves).filter(({ a, b }) => !overlapInIpv4(a, b))
  return [...conflicts, ...ipv6Conflicts]
}

/** Leases of one node for one subnet: many keys of a store may name it, with other IPv6 halves. */
interface Claim {
  readonly prefix: Prefix
  readonly owner: UnderlayAddress
  readonly leases: Lease[]
}

/** Pairs whose prefixes overlap; one sweep over them in address order, larger ones first. */
function overlapping(prefixed: readonly { readonly lease: Lease; readonly prefix: Prefix }[]): LeaseConflict[] {
  const conflicts: LeaseConflict[] = []
  const open: Claim[] = []
  for (const { lease, prefix } of prefixed) {
    while (open.length > 0 && lastAddress(open.at(-1)!.prefix) < prefix.address) open.pop()
    const owner = identityOf(lease.attributes)
    for (const outer of open) {
      if (outer.owner === owner) continue
      for (const a of outer.leases) {
        conflicts.push({ a, b: lease })
        if (conflicts.length === MOST_CONFLICTS) return conflicts
      }
    }
    const last = open.at(-1)
    if (last?.owner === owner && last.prefix.length === prefix.length) last.leases.push(lease)
    else open.push({ prefix, owner, leases: [lease] })
  }
  return conflicts
}

/** Whether two leases cannot both be: they hold some of the same subnet, in either family. */
export function collide(a: Halves, b: Halves): boolean {
  const [halfOfA, halfOfB] = [ipv6HalfOf(a), ipv6HalfOf(b)]
  return overlapInIpv4(a, b) || (halfOfA !== null && halfOfB !== null && overlaps(halfOfA, halfOfB))
}

function overlapInIpv4(a: Halves, b: Halves): boolean {
  return a.subnet !== null && b.subnet !== null && overlaps(a.subnet, b.subnet)
}

/** One sentence with both keys and both addresses. */
export function describeConflict({ a, b }: LeaseConflict): string {
  const half = overlapInIpv4(a, b) ? nameOf : ipv6Text
  const name = (lease: Lease) => `${half(lease)} of ${identityInWords(lease.attributes)}`
  return `${name(a)} and ${name(b)} ${half(a) === half(b) ? 'are the same subnet' : 'overlap'}`
}

function ipv6Text({ ipv6Subnet }: Halves): string {
  return ipv6Subnet ?? 'no IPv6 subnet'
}

/** By address, larger prefixes first, then by revision: the order of every list of leases that we make. */
export function inAddressOrder(a: Lease, b: Lease): number {
  return byAddress(leadingHalf(a), leadingHalf(b)) || a.revision - b.revision
}

/** Lists that are known to be in address order; nobody changes a list of leases. */
const inOrder = new WeakSet<readonly Lease[]>()

/** In address order. What is in order already, as nearly always, is the answer itself: ten thousand are not sorted. */
export function sortedLeases(leases: readonly Lease[]): readonly Lease[] {
  if (inOrder.has(leases)) return leases
  const isSorted = leases.every((lease, index) => index === 0 || inAddressOrder(leases[index - 1]!, lease) <= 0)
  const sorted = isSorted ? leases : [...leases].sort(inAddressOrder)
  inOrder.add(sorted)
  return sorted
}

/** Any IPv6 address that a subnet may have is larger than every IPv4 one. */
function byAddress(a: Prefix, b: Prefix): number {
  if (a.address !== b.address) return a.address < b.address ? -1 : 1
  return a.length - b.length
}

/** Lists of which {@link latestOfEach} is known: that of the last comparison is in the next one as well. */
const knownLatest = new WeakMap<readonly Lease[], readonly Lease[]>()

/** In address order; of several leases for one subnet the latest revision counts. */
function latestOfEach(leases: readonly Lease[], own: Halves | null): readonly Lease[] {
  const latest = knownLatest.get(leases) ?? withoutFormer(sortedLeases(leases))
  knownLatest.set(leases, latest)
  return own === null ? latest : latest.filter((lease) => !sameSubnet(lease, own))
}

function withoutFormer(sorted: readonly Lease[]): readonly Lease[] {
  return sorted.filter((lease, index) => {
    const next = sorted[index + 1]
    return next === undefined || !sameSubnet(lease, next)
  })
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
