// What changed between two sets of leases, and which of them contradict each other. Pure: the same sets give the same
// answer whatever their order, however often, and after a restart.
import { formatIpv4, formatPrefix, type Ipv4Prefix, lastAddress, samePrefix } from '../../dataplane/index.ts'
import type { Lease, LeaseAttributes } from './lease.ts'

export interface LeaseDiff {
  readonly added: readonly Lease[]
  /** New state of leases whose attributes differ; a mere renewal is no change. */
  readonly updated: readonly Lease[]
  /** Last known state of leases that are gone. */
  readonly removed: readonly Lease[]
}

/** Compares by subnet over all attributes. `own`, when given, is left out on both sides. Results are in address order. */
export function diffLeases(before: readonly Lease[], after: readonly Lease[], own: Ipv4Prefix | null): LeaseDiff {
  const old = bySubnet(before, own)
  const now = bySubnet(after, own)
  const added: Lease[] = []
  const updated: Lease[] = []
  for (const [key, lease] of now) {
    const known = old.get(key)
    if (known === undefined) added.push(lease)
    else if (!sameAttributes(known.attributes, lease.attributes)) updated.push(lease)
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
    canonical(a.backendData) === canonical(b.backendData) &&
    canonical(a.backendV6Data) === canonical(b.backendV6Data)
  )
}

export interface LeaseConflict {
  readonly a: Lease
  readonly b: Lease
}

/** Pairs of leases of different nodes whose subnets are equal or overlap. Empty in a healthy network. */
export function findConflicts(leases: readonly Lease[]): LeaseConflict[] {
  const sorted = [...leases].sort(inAddressOrder)
  const conflicts: LeaseConflict[] = []
  const open: Lease[] = []
  for (const lease of sorted) {
    while (open.length > 0 && lastAddress(open.at(-1)!.subnet) < lease.subnet.address) open.pop()
    for (const outer of open) {
      if (outer.attributes.publicIp !== lease.attributes.publicIp) conflicts.push({ a: outer, b: lease })
    }
    open.push(lease)
  }
  return conflicts
}

/** One sentence with both keys and both addresses. */
export function describeConflict({ a, b }: LeaseConflict): string {
  const name = (lease: Lease) => `${formatPrefix(lease.subnet)} of ${formatIpv4(lease.attributes.publicIp)}`
  return `${name(a)} and ${name(b)} ${samePrefix(a.subnet, b.subnet) ? 'are the same subnet' : 'overlap'}`
}

/** By address, larger prefixes first, then by revision: the order of every list of leases that we make. */
export function inAddressOrder(a: Lease, b: Lease): number {
  return a.subnet.address - b.subnet.address || a.subnet.length - b.subnet.length || a.revision - b.revision
}

/** Of several leases for one subnet the latest revision counts. */
function bySubnet(leases: readonly Lease[], own: Ipv4Prefix | null): Map<string, Lease> {
  const others = leases.filter((lease) => own === null || !samePrefix(lease.subnet, own))
  return new Map(others.sort(inAddressOrder).map((lease) => [formatPrefix(lease.subnet), lease]))
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part
    return Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}
