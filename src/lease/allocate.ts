// Which subnet a node takes: a pure function of the range, the leases that exist, and chance. Shared by every store
// that allocates itself, so that all of them choose alike.
import {
  containsAddress,
  formatIpv4,
  formatPrefix,
  type Ipv4Prefix,
  overlaps,
  prefixAround,
  samePrefix,
  sizeOf,
} from '../../dataplane/index.ts'
import type { SubnetRange } from '../config/network-config.ts'
import { FlanneletteError } from '../errors.ts'
import type { Lease } from './lease.ts'

/** Free subnets that are collected before one is drawn, as flannel does: nodes that start together rarely collide. */
export const MAX_CANDIDATES = 100

export interface SubnetWish {
  readonly range: SubnetRange
  readonly publicIp: number
  readonly previousSubnet: Ipv4Prefix | null
}

export type SubnetChoice =
  /** The lease carries our public IP and still fits: take it over as it stands. */
  | { readonly action: 'adopt'; readonly lease: Lease; readonly discard: readonly Lease[] }
  /** Create a lease for this subnet. `note` says why a remembered subnet was not taken, for the log. */
  | {
      readonly action: 'create'
      readonly subnet: Ipv4Prefix
      readonly discard: readonly Lease[]
      readonly note: string | null
    }

/**
 * Own lease by public IP, else the previous subnet if nobody holds any of it, else a random free one. `discard` are
 * leases of ours that no longer fit the network config and must be deleted. `blocked` are subnets that must not be given
 * out although no readable lease holds them. `random` gives numbers in [0, 1).
 * @throws FlanneletteError `out-of-subnets` (retryable)
 */
export function chooseSubnet(
  wish: SubnetWish,
  leases: readonly Lease[],
  blocked: readonly Ipv4Prefix[],
  random: () => number,
): SubnetChoice {
  const own = leases.filter((lease) => lease.attributes.publicIp === wish.publicIp)
  const fitting = own.find((lease) => lease.ipv6Subnet === null && fitsRange(wish.range, lease.subnet))
  const discard = own.filter((lease) => !fitsRange(wish.range, lease.subnet) || lease.ipv6Subnet !== null)
  if (fitting !== undefined) return { action: 'adopt', lease: fitting, discard }
  const { previousSubnet } = wish
  let note: string | null = null
  if (previousSubnet !== null) {
    note = whyNotAgain(wish, previousSubnet, leases, blocked)
    if (note === null) return { action: 'create', subnet: previousSubnet, discard, note }
  }
  const taken = [...leases.map((lease) => lease.subnet), ...blocked]
  const subnet = allocate(wish.range, taken, random)
  if (subnet === null) throw outOfSubnets(wish.range, leases)
  return { action: 'create', subnet, discard, note }
}

/** A random one of the first {@link MAX_CANDIDATES} subnets of the range that overlap nothing taken; `null` when full. */
export function allocate(range: SubnetRange, taken: readonly Ipv4Prefix[], random: () => number): Ipv4Prefix | null {
  const size = sizeOf(range.subnetLength)
  // A taken prefix as large as a subnet, or smaller, blocks exactly one; larger ones are few and are looked at singly.
  const blocked = new Set<number>()
  const large: Ipv4Prefix[] = []
  for (const prefix of taken) {
    if (prefix.length < range.subnetLength) large.push(prefix)
    else blocked.add(prefixAround(prefix.address, range.subnetLength).address)
  }
  const candidates: number[] = []
  for (let address = range.subnetMin; address <= range.subnetMax; address += size) {
    if (blocked.has(address) || large.some((prefix) => containsAddress(prefix, address))) continue
    candidates.push(address)
    if (candidates.length === MAX_CANDIDATES) break
  }
  const chosen = candidates[Math.floor(random() * candidates.length)]
  return chosen === undefined ? null : { address: chosen, length: range.subnetLength }
}

/** Whether a subnet is one that the range could have given out. */
export function fitsRange(range: SubnetRange, subnet: Ipv4Prefix): boolean {
  const inside = subnet.address >= range.subnetMin && subnet.address <= range.subnetMax
  return inside && subnet.length === range.subnetLength
}

function whyNotAgain(
  wish: SubnetWish,
  previous: Ipv4Prefix,
  leases: readonly Lease[],
  blocked: readonly Ipv4Prefix[],
): string | null {
  const text = formatPrefix(previous)
  if (!fitsRange(wish.range, previous)) return `remembered subnet ${text} does not fit the network config any more`
  const holder = leases.find((lease) => overlaps(lease.subnet, previous))
  if (holder === undefined) {
    const unreadable = blocked.some((prefix) => overlaps(prefix, previous))
    return unreadable ? `remembered subnet ${text} has a lease that cannot be read` : null
  }
  const which = samePrefix(holder.subnet, previous) ? '' : ` (its lease ${formatPrefix(holder.subnet)} overlaps it)`
  const other = formatIpv4(holder.attributes.publicIp)
  return `remembered subnet ${text} now belongs to ${other}${which}, not to us (${formatIpv4(wish.publicIp)})`
}

function outOfSubnets(range: SubnetRange, leases: readonly Lease[]): FlanneletteError {
  const expiries = leases.flatMap((lease) => lease.expiresAtMs ?? [])
  const soonest = expiries.length === 0 ? 'none expires' : `soonest expiry ${isoTime(Math.min(...expiries))}`
  const bounds = `${formatIpv4(range.subnetMin)}-${formatIpv4(range.subnetMax)}`
  const message = `out of subnets: all /${range.subnetLength} of ${bounds} are taken (${leases.length} leases, ${soonest})`
  const remedy = 'remove leases of dead nodes, or enlarge Network'
  return new FlanneletteError('out-of-subnets', message, { remedy, retryable: true })
}

function isoTime(wallMs: number): string {
  return new Date(wallMs).toISOString()
}
