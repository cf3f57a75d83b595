// Which subnet a node takes: a pure function of the range, the leases that exist, and chance. Shared by every store
// that allocates itself, so that all of them choose alike.
import {
  containsAddress,
  formatAddress,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  overlaps,
  type Prefix,
  prefixAround,
  prefixBehind,
  samePrefix,
  type UnderlayAddress,
} from '../../dataplane/index.ts'
import type { Ipv6SubnetRange, SubnetRange } from '../config/subnet-range.ts'
import { FlanneletteError } from '../errors.ts'
import { type Halves, halvesOf, identityInWords, identityOf, ipv6HalfOf, type Lease } from './lease.ts'

/** Free subnets that are collected before one is drawn, as flannel does: nodes that start together rarely collide. */
export const MAX_CANDIDATES = 100

/** What a network gives out: subnets of one family, or of both. */
export interface DualRange {
  readonly ipv4: SubnetRange | null
  readonly ipv6: Ipv6SubnetRange | null
}

export interface SubnetWish {
  readonly range: DualRange
  /** By what we are known, see `identityOf`. */
  readonly publicIp: UnderlayAddress
  readonly previousSubnet: Ipv4Prefix | null
  readonly previousIpv6Subnet: Ipv6Prefix | null
}

export type SubnetChoice =
  /** The lease carries our public IP and still fits: take it over as it stands. */
  | { readonly action: 'adopt'; readonly lease: Lease; readonly discard: readonly Lease[] }
  /** Create a lease for these subnets. `note` says why a remembered subnet was not taken, for the log. */
  | {
      readonly action: 'create'
      readonly subnet: Ipv4Prefix | null
      readonly ipv6Subnet: Ipv6Prefix | null
      readonly discard: readonly Lease[]
      readonly note: string | null
    }

/**
 * Own lease by public IP, else the previous subnet if nobody holds any of it, else a random free one; each family for
 * itself. `discard` are leases of ours that no longer fit the network config and must be deleted; a half of them that
 * does fit is taken again, as when the network gained or lost IPv6. `blocked` are subnets of either
 * family that must not be given out although no readable lease holds them. `random` gives numbers in [0, 1).
 * @throws FlanneletteError `out-of-subnets` (retryable)
 */
export function chooseSubnet(
  wish: SubnetWish,
  leases: readonly Lease[],
  blocked: readonly Prefix[],
  random: () => number,
): SubnetChoice {
  const { range } = wish
  const own = leases.filter((lease) => identityOf(lease.attributes) === wish.publicIp)
  const fitting = own.find((lease) => fitsNetwork(range, lease))
  const discard = own.filter((lease) => lease !== fitting && !fitsNetwork(range, lease))
  if (fitting !== undefined) return { action: 'adopt', lease: fitting, discard }
  const search = { wish, leases, blocked, random, notes: [] as string[] }
  const subnet = range.ipv4 === null ? null : chooseIpv4Half(search, range.ipv4, own)
  const ipv6Subnet = range.ipv6 === null ? null : chooseIpv6Half(search, range.ipv6, own)
  return { action: 'create', subnet, ipv6Subnet, discard, note: search.notes.join('; ') || null }
}

interface Search {
  readonly wish: SubnetWish
  readonly leases: readonly Lease[]
  readonly blocked: readonly Prefix[]
  readonly random: () => number
  readonly notes: string[]
}

function chooseIpv4Half(search: Search, range: SubnetRange, own: readonly Lease[]): Ipv4Prefix {
  const held = own.map(({ subnet }) => subnet).find((subnet) => subnet !== null && fitsRange(range, subnet))
  return held ?? chooseHalf(search, range, search.wish.previousSubnet)
}

function chooseIpv6Half(search: Search, range: Ipv6SubnetRange, own: readonly Lease[]): Ipv6Prefix {
  const held = own.map(ipv6HalfOf).find((half) => half !== null && fitsRange(range, half))
  return held ?? chooseHalf(search, range, search.wish.previousIpv6Subnet)
}

/** The remembered subnet of a family, else a free one. @throws FlanneletteError `out-of-subnets` */
function chooseHalf(search: Search, range: SubnetRange, previous: Ipv4Prefix | null): Ipv4Prefix
function chooseHalf(search: Search, range: Ipv6SubnetRange, previous: Ipv6Prefix | null): Ipv6Prefix
function chooseHalf(search: Search, range: SubnetRange | Ipv6SubnetRange, previous: Prefix | null): Prefix {
  const { leases, blocked, random } = search
  if (previous !== null) {
    const note = whyNotAgain(search, range, previous)
    if (note === null) return previous
    search.notes.push(note)
  }
  const subnet = allocate(range, [...leases.flatMap(halvesOf), ...blocked], random)
  if (subnet === null) throw outOfSubnets(range, leases)
  return subnet
}

/**
 * A random one of the first {@link MAX_CANDIDATES} subnets of the range that overlap nothing taken; `null` when full.
 * What is taken in the other family does not count.
 */
export function allocate(range: SubnetRange, taken: readonly Prefix[], random: () => number): Ipv4Prefix | null
export function allocate(range: Ipv6SubnetRange, taken: readonly Prefix[], random: () => number): Ipv6Prefix | null
export function allocate(
  range: SubnetRange | Ipv6SubnetRange,
  taken: readonly Prefix[],
  random: () => number,
): Prefix | null
export function allocate(
  { subnetMin, subnetMax, subnetLength }: SubnetRange | Ipv6SubnetRange,
  taken: readonly Prefix[],
  random: () => number,
): Prefix | null {
  // A taken prefix as large as a subnet, or smaller, blocks exactly one; larger ones are few and are looked at singly.
  const blocked = new Set<number | bigint>()
  const large: Prefix[] = []
  for (const prefix of taken) {
    if (typeof prefix.address !== typeof subnetMin) continue
    if (prefix.length < subnetLength) large.push(prefix)
    else blocked.add(prefixAround(prefix.address, subnetLength).address)
  }
  const candidates: Prefix[] = []
  let subnet = prefixAround(subnetMin, subnetLength)
  while (subnet.address <= subnetMax && candidates.length < MAX_CANDIDATES) {
    const { address } = subnet
    const cover = large.find((prefix) => containsAddress(prefix, address))
    if (cover === undefined && !blocked.has(address)) candidates.push(subnet)
    // Behind a larger prefix in one step: one of IPv6 holds more subnets than anybody could look at.
    subnet = { ...prefixBehind(cover ?? subnet), length: subnetLength }
  }
  return candidates[Math.floor(random() * candidates.length)] ?? null
}

/** Whether a subnet is one that the range could have given out. */
export function fitsRange(
  { subnetMin, subnetMax, subnetLength }: SubnetRange | Ipv6SubnetRange,
  subnet: Prefix,
): boolean {
  if (typeof subnet.address !== typeof subnetMin) return false
  return subnet.address >= subnetMin && subnet.address <= subnetMax && subnet.length === subnetLength
}

/** Whether a lease has the halves that the network gives out, and no other. */
export function fitsNetwork({ ipv4, ipv6 }: DualRange, lease: Halves): boolean {
  return fitsOrIsAbsent(ipv4, lease.subnet) && fitsOrIsAbsent(ipv6, ipv6HalfOf(lease))
}

function fitsOrIsAbsent(range: SubnetRange | Ipv6SubnetRange | null, half: Prefix | null): boolean {
  if (range === null || half === null) return range === null && half === null
  return fitsRange(range, half)
}

function whyNotAgain(
  { wish, leases, blocked }: Search,
  range: SubnetRange | Ipv6SubnetRange,
  previous: Prefix,
): string | null {
  const text = formatPrefix(previous)
  if (!fitsRange(range, previous)) return `remembered subnet ${text} does not fit the network config any more`
  const holder = leases.find((lease) => holding(lease, previous) !== undefined)
  if (holder === undefined) {
    const unreadable = blocked.some((prefix) => overlaps(prefix, previous))
    return unreadable ? `remembered subnet ${text} has a lease that cannot be read` : null
  }
  const held = holding(holder, previous)!
  const which = samePrefix(held, previous) ? '' : ` (its lease ${formatPrefix(held)} overlaps it)`
  const other = identityInWords(holder.attributes)
  return `remembered subnet ${text} now belongs to ${other}${which}, not to us (${formatAddress(wish.publicIp)})`
}

/** The half of a lease that holds some of the subnet. */
function holding(lease: Lease, subnet: Prefix): Prefix | undefined {
  return halvesOf(lease).find((half) => overlaps(half, subnet))
}

function outOfSubnets(
  { subnetMin, subnetMax, subnetLength }: SubnetRange | Ipv6SubnetRange,
  leases: readonly Lease[],
): FlanneletteError {
  const firstMs = leases.reduce(
    (least, { expiresAtMs }) => Math.min(least, expiresAtMs ?? least),
    Number.POSITIVE_INFINITY,
  )
  const soonest = firstMs === Number.POSITIVE_INFINITY ? 'none expires' : `soonest expiry ${isoTime(firstMs)}`
  const bounds = `${formatAddress(subnetMin)}-${formatAddress(subnetMax)}`
  const message = `out of subnets: all /${subnetLength} of ${bounds} are taken (${leases.length} leases, ${soonest})`
  const remedy = `remove leases of dead nodes, or enlarge ${typeof subnetMin === 'number' ? 'Network' : 'IPv6Network'}`
  return new FlanneletteError('out-of-subnets', message, { remedy, retryable: true })
}

function isoTime(wallMs: number): string {
  return new Date(wallMs).toISOString()
}
