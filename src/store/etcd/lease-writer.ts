// What changes leases in etcd: acquire, renew, release. Each write holds only if nothing it was decided on has changed.
import { formatPrefix } from '../../../dataplane/index.ts'
import type { Clock } from '../../clock.ts'
import { FlanneletteError } from '../../errors.ts'
import { chooseSubnet, type SubnetChoice } from '../../lease/allocate.ts'
import { collide } from '../../lease/diff.ts'
import type { Lease, LeaseAttributes } from '../../lease/lease.ts'
import type { Log } from '../../log.ts'
import { formatLeaseValue, type SubnetKey } from '../flannel-json.ts'
import { LEASE_TTL_MS, leaseConflict } from '../lease-book.ts'
import type { AcquireRequest } from '../lease-store.ts'
import type { Change, ChangeAnswer, Condition, EtcdCalls, KeyValue } from './calls.ts'
import type { LeasePairs } from './lease-pairs.ts'
import { LeaseTable } from './lease-table.ts'

/** Races that may be lost before acquiring fails, as with flannel. */
const RACE_RETRIES = 10

export interface LeaseWriterOptions {
  readonly clock: Clock
  readonly log: Log
  /** Numbers in [0, 1). */
  readonly random: () => number
}

/** What hangs on a key: the etcd lease, and when it ends by the wall clock. `null`: a reservation. */
type Lifetime = { readonly leaseId: string; readonly expiresAtMs: number } | null

interface Listing {
  readonly table: LeaseTable
  readonly pairs: readonly KeyValue[]
}

/** All that one write does: the new content of a key, and keys that go with it. */
interface Write {
  readonly key: SubnetKey
  readonly attributes: LeaseAttributes
  readonly when: readonly Condition[]
  readonly deletes?: readonly string[]
  readonly reservation: boolean
  /** What else was written from that revision on is wanted in the answer. */
  readonly readSince?: number
}

interface Written {
  /** `null`: a condition did not hold. */
  readonly lease: Lease | null
  readonly answer: ChangeAnswer
  readonly lifetime: Lifetime
}

export class LeaseWriter {
  readonly #calls: EtcdCalls
  readonly #pairs: LeasePairs
  readonly #options: LeaseWriterOptions

  constructor(calls: EtcdCalls, pairs: LeasePairs, options: LeaseWriterOptions) {
    this.#calls = calls
    this.#pairs = pairs
    this.#options = options
  }

  /** See `LeaseStore.acquire`. */
  async acquire(request: AcquireRequest): Promise<Lease> {
    for (let attempt = 1; attempt <= RACE_RETRIES; attempt++) {
      const listing = await this.#list()
      const choice = await this.#choose(request, listing)
      const lease =
        choice.action === 'adopt'
          ? await this.#adopt(request, choice, listing)
          : await this.#create(request, choice, listing)
      if (lease !== null) return lease
    }
    const message = `other nodes were faster ${RACE_RETRIES} times in a row: no lease`
    throw new FlanneletteError('lease-conflict', message, { remedy: 'it is tried again', retryable: true })
  }

  /** See `LeaseStore.renew`. */
  async renew(lease: Lease): Promise<Lease> {
    const reservation = lease.expiresAtMs === null
    const when = [{ from: this.#pairs.keyOf(lease), to: null, modRevision: lease.revision }]
    const written = await this.#write({ key: lease, attributes: lease.attributes, when, reservation })
    if (written.lease !== null) return written.lease
    const held = this.#inForce(written.answer.pairs, lease)
    if (held !== null) throw leaseConflict(lease, held)
    return this.#putBack(lease)
  }

  /** See `LeaseStore.release`. */
  async release(lease: Lease): Promise<void> {
    const own = { from: this.#pairs.keyOf(lease), to: null }
    const when = [{ ...own, modRevision: lease.revision }]
    await this.#calls.commit({ when, deletes: [own.from], readOtherwise: own })
  }

  /** The lease with its expiry as the server has it: asked for own leases only. */
  async dated(lease: Lease, { leaseId }: KeyValue): Promise<Lease> {
    if (leaseId === null) return lease
    const left = await this.#calls.timeToLive(leaseId)
    return { ...lease, expiresAtMs: this.#options.clock.wallMs() + (left ?? 0) * 1000 }
  }

  async #list(): Promise<Listing> {
    const table = new LeaseTable(this.#pairs)
    return { table, pairs: await table.list(this.#calls) }
  }

  /** @throws FlanneletteError `out-of-subnets` */
  async #choose(request: AcquireRequest, { table, pairs }: Listing): Promise<SubnetChoice> {
    const { network, publicIp, previousSubnet, previousIpv6Subnet } = request
    const wish = { range: network, publicIp, previousSubnet, previousIpv6Subnet }
    const choose = (leases: readonly Lease[]) => chooseSubnet(wish, leases, table.blocked, this.#options.random)
    try {
      return choose(table.leases)
    } catch (error) {
      if (!(error instanceof FlanneletteError) || error.code !== 'out-of-subnets') throw error
      // All lifetimes are equal: what was written longest ago ends soonest. One question tells the people when.
      const mortal = table.leases.filter((lease) => lease.expiresAtMs !== null)
      const oldest = mortal.reduce<Lease | null>((a, b) => (a === null || b.revision < a.revision ? b : a), null)
      const pair = pairs.find(({ modRevision }) => modRevision === oldest?.revision)
      if (oldest === null || pair === undefined) throw error
      const dated = await this.dated(oldest, pair)
      return choose(table.leases.map((lease) => (lease === oldest ? dated : lease)))
    }
  }

  async #adopt(
    request: AcquireRequest,
    { lease, discard }: Extract<SubnetChoice, { action: 'adopt' }>,
    { pairs }: Listing,
  ): Promise<Lease | null> {
    const pair = pairs.find(
      ({ modRevision, key }) => modRevision === lease.revision && key === this.#pairs.keyOf(lease),
    )
    const existing = pair === undefined ? lease : await this.dated(lease, pair)
    const written = await this.#write({
      key: lease,
      attributes: request.attributes(existing),
      when: [lease, ...discard].map((old) => this.#unchanged(old)),
      deletes: discard.map((old) => this.#pairs.keyOf(old)),
      reservation: lease.expiresAtMs === null,
    })
    return written.lease
  }

  async #create(
    request: AcquireRequest,
    { subnet, ipv6Subnet, discard, note }: Extract<SubnetChoice, { action: 'create' }>,
    { table }: Listing,
  ): Promise<Lease | null> {
    if (note !== null) this.#options.log.warn('previous-subnet-unavailable', note)
    const key = { subnet, ipv6Subnet: ipv6Subnet === null ? null : formatPrefix(ipv6Subnet) }
    const replaced = discard.filter((old) => collide(old, key))
    const free = replaced.length > 0 ? { from: this.#pairs.keyOf(key), to: null } : this.#pairs.rivalsOf(key)
    const written = await this.#write({
      key,
      attributes: request.attributes(discard[0] ?? null),
      when: [{ ...free, version: 0 }, ...discard.map((old) => this.#unchanged(old))],
      deletes: discard.map((old) => this.#pairs.keyOf(old)),
      reservation: false,
      readSince: table.revision + 1,
    })
    return written.lease === null ? null : this.#yieldToEarlier(written.lease, written)
  }

  /** No condition of a transaction speaks of IPv6 halves, or of overlaps: of two that collide the later one goes. */
  async #yieldToEarlier(lease: Lease, { answer, lifetime }: Written): Promise<Lease | null> {
    const own = this.#pairs.keyOf(lease)
    const earlier = answer.pairs.some((pair) => {
      const other = pair.key === own ? null : this.#pairs.read(pair, undefined).lease
      return other !== null && collide(other, lease) && pair.createRevision < lease.revision
    })
    if (!earlier) return lease
    await this.release(lease)
    await this.#giveUp(lifetime)
    return null
  }

  /** The key is gone, or holds no lease. Puts it back unless somebody took some of the subnet meanwhile. */
  async #putBack(lease: Lease): Promise<Lease> {
    const { table, pairs } = await this.#list()
    const other = table.leases.find((candidate) => collide(candidate, lease))
    if (other !== undefined) throw leaseConflict(lease, other)
    const key = this.#pairs.keyOf(lease)
    const rubbish = pairs.find((pair) => pair.key === key)
    const written = await this.#write({
      key: lease,
      attributes: lease.attributes,
      when: [
        rubbish === undefined
          ? { ...this.#pairs.rivalsOf(lease), version: 0 }
          : { from: key, to: null, modRevision: rubbish.modRevision },
      ],
      reservation: lease.expiresAtMs === null,
      readSince: table.revision + 1,
    })
    const kept = written.lease === null ? null : await this.#yieldToEarlier(written.lease, written)
    if (kept !== null) return kept
    const winner = this.#inForce(written.answer.pairs, lease)
    throw winner === null ? this.#unreadable(lease) : leaseConflict(lease, winner)
  }

  #unreadable(lease: Lease): FlanneletteError {
    const message = `the own lease ${this.#pairs.keyOf(lease)} cannot be put back: something that is no lease stands there`
    return new FlanneletteError('store-unreadable', message, { remedy: 'delete that key', retryable: true })
  }

  #unchanged(lease: Lease): Condition {
    return { from: this.#pairs.keyOf(lease), to: null, modRevision: lease.revision }
  }

  /** The lease among these that some of the subnet belongs to; of several the latest. */
  #inForce(pairs: readonly KeyValue[], lease: Lease): Lease | null {
    const held = pairs.flatMap((pair) => this.#pairs.read(pair, undefined).lease ?? [])
    const rivals = held.filter((other) => collide(other, lease) && other.revision !== lease.revision)
    return rivals.sort((a, b) => b.revision - a.revision)[0] ?? null
  }

  async #write(write: Write): Promise<Written> {
    const lifetime = write.reservation ? null : await this.#grant()
    const { answer, done } = await this.#commit(write, lifetime).catch(async (error: unknown) => {
      // It may have happened all the same: an etcd lease that is given back now would take a renewed key along.
      if (write.readSince !== undefined) await this.#giveUp(lifetime)
      throw error
    })
    if (!done) await this.#giveUp(lifetime)
    const { subnet, ipv6Subnet } = write.key
    const expiresAtMs = lifetime?.expiresAtMs ?? null
    const revision = this.#revisionOf(write, answer)
    const lease = done ? { subnet, ipv6Subnet, attributes: write.attributes, expiresAtMs, revision } : null
    return { lease, answer, lifetime }
  }

  async #commit(write: Write, lifetime: Lifetime): Promise<{ answer: ChangeAnswer; done: boolean }> {
    const key = this.#pairs.keyOf(write.key)
    const value = formatLeaseValue(write.attributes)
    const change: Change = {
      when: write.when,
      puts: [{ key, value, leaseId: lifetime?.leaseId ?? null }],
      deletes: write.deletes ?? [],
      ...(write.readSince === undefined
        ? {}
        : { readAfter: { ...this.#pairs.range, minModRevision: write.readSince } }),
      readOtherwise: this.#pairs.rivalsOf(write.key),
    }
    const answer = await this.#calls.commit(change)
    // A first attempt whose answer got lost makes the second one fail: then what stands there hangs on our etcd lease.
    const mine = answer.pairs.find(
      (pair) => pair.key === key && pair.value === value && pair.leaseId === lifetime?.leaseId,
    )
    return { answer, done: answer.done || mine !== undefined }
  }

  #revisionOf(write: Write, answer: ChangeAnswer): number {
    if (answer.done) return answer.revision
    const key = this.#pairs.keyOf(write.key)
    return answer.pairs.find((pair) => pair.key === key)?.modRevision ?? answer.revision
  }

  async #grant(): Promise<Lifetime> {
    const grantedAtMs = this.#options.clock.wallMs()
    const { id, ttlSeconds } = await this.#calls.grant(LEASE_TTL_MS / 1000)
    return { leaseId: id, expiresAtMs: grantedAtMs + ttlSeconds * 1000 }
  }

  /** Best effort: what stays behind ends by itself. */
  async #giveUp(lifetime: Lifetime): Promise<void> {
    if (lifetime === null) return
    await this.#calls.revoke(lifetime.leaseId).catch((error: unknown) => {
      this.#options.log.debug('etcd-lease-left', `etcd lease ${lifetime.leaseId} was not given back: ${String(error)}`)
    })
  }
}
