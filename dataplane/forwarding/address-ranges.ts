// Nested prefixes to ranges that do not overlap, each owned by the longest prefix that covers it: a longest-prefix
// match becomes a binary search over the starts. One algorithm for both families.
import { type Ipv4Prefix, type Ipv6Prefix, lastAddress } from '../wire/prefix.ts'

/** The owner of addresses that no prefix covers. */
export const NOBODY = -1

/** Addresses from `start` up to the next range's start. */
export interface AddressRange<A extends number | bigint> {
  start: A
  owner: number
}

/** A prefix and who owns it; of two owners of one prefix the later in the list wins. */
export interface OwnedPrefix<P> {
  readonly prefix: P
  readonly owner: number
}

/** What the algorithm must know of a family's addresses. */
interface Family<A extends number | bigint> {
  readonly first: A
  /** One past the last address. */
  readonly end: A
  lastOf(prefix: { readonly address: A; readonly length: number }): A
  next(address: A): A
}

const IPV4: Family<number> = {
  first: 0,
  end: 2 ** 32,
  lastOf: (prefix: Ipv4Prefix) => lastAddress(prefix),
  next: (a) => a + 1,
}
const IPV6: Family<bigint> = {
  first: 0n,
  end: 1n << 128n,
  lastOf: (prefix: Ipv6Prefix) => lastAddress(prefix),
  next: (a) => a + 1n,
}

/**
 * Prefixes, nested ones too, as ranges in ascending order that do not overlap: an address belongs to its longest
 * prefix.
 */
export function ipv4Ranges(prefixes: readonly OwnedPrefix<Ipv4Prefix>[]): AddressRange<number>[] {
  return flatten(prefixes, IPV4)
}

/** The same for IPv6. */
export function ipv6Ranges(prefixes: readonly OwnedPrefix<Ipv6Prefix>[]): AddressRange<bigint>[] {
  return flatten(prefixes, IPV6)
}

/** Ranges from the first address on, whatever the order of the prefixes. */
function flatten<A extends number | bigint>(
  prefixes: readonly OwnedPrefix<{ readonly address: A; readonly length: number }>[],
  family: Family<A>,
): AddressRange<A>[] {
  const sorted = [...prefixes].sort(({ prefix: a }, { prefix: b }) => {
    if (a.address !== b.address) return a.address < b.address ? -1 : 1
    return a.length - b.length
  })
  const ranges: AddressRange<A>[] = [{ start: family.first, owner: NOBODY }]
  /** Starts a range; one that starts at the same address is replaced. */
  const begin = (start: A, owner: number): void => {
    const last = ranges.at(-1)!
    if (start >= family.end) return
    if (last.start === start) last.owner = owner
    else ranges.push({ start, owner })
  }
  const open: typeof sorted = [] // prefixes that enclose the present address, outermost first
  const closeBefore = (address: A): void => {
    while (open.length > 0 && family.lastOf(open.at(-1)!.prefix) < address) {
      const closed = open.pop()!
      begin(family.next(family.lastOf(closed.prefix)), open.at(-1)?.owner ?? NOBODY)
    }
  }
  for (const owned of sorted) {
    closeBefore(owned.prefix.address)
    open.push(owned)
    begin(owned.prefix.address, owned.owner)
  }
  closeBefore(family.end)
  return ranges
}
