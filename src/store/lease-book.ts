// What stores that allocate themselves have in common: all leases at one instant, and what acquiring, renewing and
// releasing changes in them. It holds no lock and writes nothing: the store runs it under its own exclusion and then
// makes `changes` permanent.
import { formatPrefix, type Prefix } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { chooseSubnet } from '../lease/allocate.ts'
import { collide, inAddressOrder } from '../lease/diff.ts'
import {
  type Halves,
  identityInWords,
  identityOf,
  type Lease,
  type LeaseAttributes,
  nameOf,
  sameSubnet,
} from '../lease/lease.ts'
import { formatSubnetKey, type SubnetKey } from './flannel-json.ts'
import type { AcquireRequest } from './lease-store.ts'

/** How long a lease lives without renewal, in milliseconds: flannel's 24 h. */
export const LEASE_TTL_MS = 24 * 3600 * 1000

export type LeaseChange =
  | { readonly type: 'put'; readonly key: string; readonly lease: Lease }
  | { readonly type: 'delete'; readonly key: string }

export class LeaseBook {
  readonly #leases: Map<string, Lease>
  readonly #nowMs: number
  readonly #blocked: readonly Prefix[]
  #revision: number
  /** What to write, in order. */
  readonly changes: LeaseChange[] = []

  /**
   * `leases` may hold expired ones; they are deleted here and now. `nowMs` is the wall clock of the expiries, `blocked`
   * what must not be given out besides.
   */
  constructor(leases: readonly Lease[], revision: number, nowMs: number, blocked: readonly Prefix[] = []) {
    this.#blocked = blocked
    this.#leases = new Map(leases.map((lease) => [formatSubnetKey(lease), lease]))
    this.#revision = leases.reduce((highest, lease) => Math.max(highest, lease.revision), revision)
    this.#nowMs = nowMs
    for (const lease of leases) {
      if (!isLive(lease, nowMs)) this.#delete(lease)
    }
  }

  /** Highest revision given out so far. */
  get revision(): number {
    return this.#revision
  }

  /** Live leases in address order. */
  leases(): Lease[] {
    return [...this.#leases.values()].sort(inAddressOrder)
  }

  /**
   * See `LeaseStore.acquire`. `note` takes a sentence about a remembered subnet that could not be had.
   * @throws FlanneletteError `out-of-subnets`
   */
  acquire(request: AcquireRequest, random: () => number, note: (sentence: string) => void): Lease {
    const { network, publicIp, previousSubnet, previousIpv6Subnet } = request
    const wish = { range: network, publicIp, previousSubnet, previousIpv6Subnet }
    const choice = chooseSubnet(wish, this.leases(), this.#blocked, random)
    for (const lease of choice.discard) this.#delete(lease)
    if (choice.action === 'adopt') {
      const expiresAtMs = choice.lease.expiresAtMs === null ? null : this.#nowMs + LEASE_TTL_MS
      return this.#put(choice.lease, request.attributes(choice.lease), expiresAtMs)
    }
    if (choice.note !== null) note(choice.note)
    const discarded = choice.discard[0] ?? null
    const ipv6Subnet = choice.ipv6Subnet === null ? null : formatPrefix(choice.ipv6Subnet)
    const key = { subnet: choice.subnet, ipv6Subnet }
    return this.#put(key, request.attributes(discarded), this.#nowMs + LEASE_TTL_MS)
  }

  /** See `LeaseStore.renew`. @throws FlanneletteError `lease-conflict` */
  renew(lease: Lease): Lease {
    const held = this.#leases.get(formatSubnetKey(lease))
    if (held === undefined) {
      const other = this.leases().find((candidate) => collide(candidate, lease))
      if (other !== undefined) throw leaseConflict(lease, other)
    } else if (held.revision !== lease.revision) {
      throw leaseConflict(lease, held)
    }
    const expiresAtMs = (held ?? lease).expiresAtMs === null ? null : this.#nowMs + LEASE_TTL_MS
    return this.#put(lease, lease.attributes, expiresAtMs)
  }

  /** See `LeaseStore.release`. */
  release(lease: Lease): void {
    const held = this.#leases.get(formatSubnetKey(lease))
    if (held !== undefined && isSameHolding(held, lease)) this.#delete(held)
  }

  #put({ subnet, ipv6Subnet }: SubnetKey, attributes: LeaseAttributes, expiresAtMs: number | null): Lease {
    this.#revision++
    const lease: Lease = { subnet, ipv6Subnet, attributes, expiresAtMs, revision: this.#revision }
    const key = formatSubnetKey(lease)
    this.#leases.set(key, lease)
    this.changes.push({ type: 'put', key, lease })
    return lease
  }

  #delete(lease: Lease): void {
    const key = formatSubnetKey(lease)
    this.#revision++
    this.#leases.delete(key)
    this.changes.push({ type: 'delete', key })
  }
}

/** Whether a lease still counts at that wall-clock time. */
export function isLive(lease: Lease, nowMs: number): boolean {
  return lease.expiresAtMs === null || lease.expiresAtMs > nowMs
}

/** The live lease of exactly that subnet, `null` without one. */
export function leaseOf(leases: readonly Lease[], own: Halves): Lease | null {
  return leases.find((lease) => sameSubnet(lease, own)) ?? null
}

/** The compare of every compare-and-swap: same node, and nobody wrote since. */
function isSameHolding(held: Lease, expected: Lease): boolean {
  return identityOf(held.attributes) === identityOf(expected.attributes) && held.revision === expected.revision
}

/** The `lease-conflict` of a node that finds another's lease where its own should be. */
export function leaseConflict(lease: Lease, held: Lease): FlanneletteError {
  const ours = `${nameOf(lease)} (ours: ${identityInWords(lease.attributes)}, revision ${lease.revision})`
  const theirs = `${nameOf(held)} of ${identityInWords(held.attributes)}, revision ${held.revision}`
  const remedy = 'give each node an address of its own with --iface or --public-ip'
  return new FlanneletteError('lease-conflict', `lease ${ours} is now ${theirs}`, { remedy })
}
