// All leases at one revision, by key: listed page by page, then kept up to date by events.
import type { Prefix } from '../../../dataplane/index.ts'
import { sortedLeases } from '../../lease/diff.ts'
import type { Lease } from '../../lease/lease.ts'
import type { UnreadableEntry } from '../lease-store.ts'
import { CompactedError, type EtcdCalls, type KeyValue, type WatchMessage } from './calls.ts'
import type { KnownPair, LeasePairs } from './lease-pairs.ts'

/** Keys that are asked for at once. */
const PAGE_KEYS = 1000
/** Listings that are begun again because the server forgot the revision of the first page meanwhile. */
const MAX_LISTINGS = 3

export class LeaseTable {
  readonly #pairs: LeasePairs
  #known = new Map<string, KnownPair>()
  #revision = 0
  /** What the table comes to; `null` once something has changed, until it is asked for. */
  #current: { readonly leases: readonly Lease[]; readonly unreadable: readonly UnreadableEntry[] } | null = null

  constructor(pairs: LeasePairs) {
    this.#pairs = pairs
  }

  /** That of the last listing or message; everything up to it is in. */
  get revision(): number {
    return this.#revision
  }

  /** In address order. The same array until something changes. */
  get leases(): readonly Lease[] {
    return this.#read().leases
  }

  /** Keys whose content is no lease. */
  get unreadable(): readonly UnreadableEntry[] {
    return this.#read().unreadable
  }

  #read() {
    if (this.#current !== null) return this.#current
    const [leases, unreadable]: [Lease[], UnreadableEntry[]] = [[], []]
    for (const known of this.#known.values()) {
      if (known.lease !== null) leases.push(known.lease)
      if (known.unreadable !== null) unreadable.push(known.unreadable)
    }
    this.#current = { leases: sortedLeases(leases), unreadable }
    return this.#current
  }

  get blocked(): Prefix[] {
    return [...this.#known.values()].flatMap(({ blocked }) => blocked)
  }

  /** Reads everything anew, all pages at the revision of the first. */
  async list(calls: EtcdCalls): Promise<readonly KeyValue[]> {
    for (let listing = 1; ; listing++) {
      try {
        const { pairs, revision } = await readAll(calls, this.#pairs)
        const known = new Map(pairs.map((pair) => [pair.key, this.#pairs.read(pair, this.#known.get(pair.key))]))
        for (const key of this.#known.keys()) if (!known.has(key)) this.#pairs.forget(key)
        this.#known = known
        this.#revision = revision
        this.#current = null
        return pairs
      } catch (error) {
        if (!(error instanceof CompactedError) || listing === MAX_LISTINGS) throw error
      }
    }
  }

  /** Takes what a message tells. Whether it told anything. */
  apply({ events }: WatchMessage): boolean {
    for (const { type, pair } of events) {
      if (type === 'put') {
        this.#known.set(pair.key, this.#pairs.read(pair, this.#known.get(pair.key)))
      } else {
        this.#known.delete(pair.key)
        this.#pairs.forget(pair.key)
      }
    }
    const last = events.at(-1)
    if (last === undefined) return false
    this.#current = null
    // Not the message's own revision: that of a watch that is catching up is ahead of what it has told so far.
    this.reach(last.pair.modRevision)
    return true
  }

  /** Nothing up to that revision is missing here. */
  reach(revision: number): void {
    this.#revision = Math.max(this.#revision, revision)
  }
}

async function readAll(calls: EtcdCalls, { range }: LeasePairs): Promise<{ pairs: KeyValue[]; revision: number }> {
  const pairs: KeyValue[] = []
  let answer = await calls.range({ ...range, limit: PAGE_KEYS })
  const { revision } = answer
  for (;;) {
    pairs.push(...answer.pairs)
    const last = answer.pairs.at(-1)
    if (!answer.more || last === undefined) return { pairs, revision }
    answer = await calls.range({ from: `${last.key}\0`, to: range.to, limit: PAGE_KEYS, revision })
  }
}
