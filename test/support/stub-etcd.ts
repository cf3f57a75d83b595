// An etcd in memory behind the seam of the store's calls: keys, revisions, history with compaction, leases, and watch
// streams that a test can hold, break and fill with words of its own.

import type { Clock } from '../../src/clock.ts'
import { FlanneletteError } from '../../src/errors.ts'
import type {
  Change,
  ChangeAnswer,
  Condition,
  EtcdCalls,
  GrantedLease,
  KeyRange,
  KeyValue,
  RangeAnswer,
  RangeRequest,
  WatchListener,
  WatchMessage,
  WatchStream,
} from '../../src/store/etcd/calls.ts'

interface Event {
  readonly type: 'put' | 'delete'
  readonly pair: KeyValue
}

interface Watcher {
  readonly range: KeyRange
  readonly listener: WatchListener
}

export class StubEtcd implements EtcdCalls {
  revision = 1
  compacted = 0
  /** Every call from now on fails. */
  away = false
  /** What is said of it then. */
  why = 'the stub is away'
  /** Streams are opened, and say nothing: not even that they are open. */
  mute = false
  /** Streams do not answer when they are asked to say something. */
  silent = false
  /** What was asked, by name, and from which revision streams were opened. */
  readonly asked: string[] = []
  readonly grants = new Map<string, number>()
  readonly #clock: Clock
  readonly #pairs = new Map<string, KeyValue>()
  readonly #history: Event[] = []
  readonly #watchers = new Set<Watcher>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Streams that are open now. */
  get streams(): number {
    return this.#watchers.size
  }

  put(key: string, value: string, leaseId: string | null = null): void {
    this.revision++
    this.#put(key, value, leaseId)
  }

  delete(key: string): void {
    this.revision++
    this.#delete(key)
  }

  compact(): void {
    this.compacted = this.revision
  }

  /** Ends all streams, as a server that goes away does. */
  breakStreams(): void {
    const watchers = [...this.#watchers]
    this.#watchers.clear()
    for (const { listener } of watchers) listener.onEnd(this.#gone())
  }

  /** Says something on all streams. */
  say(message: Partial<WatchMessage>): void {
    for (const { listener } of [...this.#watchers]) listener.onMessage(this.#message(message))
  }

  async range(request: RangeRequest): Promise<RangeAnswer> {
    this.#ask(`range${request.revision === undefined ? '' : ` at ${request.revision}`}`)
    const found = this.#within(request).filter((pair) => pair.modRevision >= (request.minModRevision ?? 0))
    const pairs = found.slice(0, request.limit ?? found.length)
    return { revision: this.revision, pairs, more: pairs.length < found.length }
  }

  async commit(change: Change): Promise<ChangeAnswer> {
    this.#ask('commit')
    const done = change.when.every((condition) => this.#holds(condition))
    if (done) {
      this.revision++
      for (const { key, value, leaseId } of change.puts ?? []) this.#put(key, value, leaseId)
      for (const key of change.deletes ?? []) this.#delete(key)
    }
    const read = done ? change.readAfter : change.readOtherwise
    const found = read === undefined ? [] : this.#within(read)
    const pairs = found.filter((pair) => pair.modRevision >= (read?.minModRevision ?? 0))
    return { done, revision: this.revision, pairs }
  }

  async grant(ttlSeconds: number): Promise<GrantedLease> {
    this.#ask('grant')
    const id = String(1000 + this.asked.length)
    this.grants.set(id, this.#clock.bootMs() + ttlSeconds * 1000)
    return { id, ttlSeconds }
  }

  async revoke(id: string): Promise<void> {
    this.#ask('revoke')
    this.grants.delete(id)
    for (const pair of [...this.#pairs.values()]) if (pair.leaseId === id) this.delete(pair.key)
  }

  async timeToLive(id: string): Promise<number | null> {
    this.#ask('timeToLive')
    const end = this.grants.get(id)
    return end === undefined ? null : Math.floor((end - this.#clock.bootMs()) / 1000)
  }

  async watch(range: KeyRange, fromRevision: number, listener: WatchListener): Promise<WatchStream> {
    this.#ask(`watch from ${fromRevision}`)
    const watcher = { range, listener }
    if (!this.mute) queueMicrotask(() => this.#begin(watcher, fromRevision))
    this.#watchers.add(watcher)
    return {
      requestProgress: () => {
        if (!this.silent && this.#watchers.has(watcher)) listener.onMessage(this.#message({}))
      },
      cancel: () => void this.#watchers.delete(watcher),
    }
  }

  close(): void {
    this.breakStreams()
  }

  #begin({ listener }: Watcher, fromRevision: number): void {
    listener.onMessage(this.#message({ created: true }))
    const events = this.#history.filter(({ pair }) => pair.modRevision >= fromRevision)
    if (fromRevision <= this.compacted) {
      listener.onMessage(this.#message({ canceled: true, compactRevision: this.compacted }))
    } else if (events.length > 0) {
      listener.onMessage(this.#message({ events }))
    }
  }

  #ask(what: string): void {
    this.asked.push(what)
    if (this.away) throw this.#gone()
  }

  #gone(): FlanneletteError {
    return new FlanneletteError('store-unreadable', this.why, { retryable: true })
  }

  #put(key: string, value: string, leaseId: string | null): void {
    const createRevision = this.#pairs.get(key)?.createRevision ?? this.revision
    const pair = { key, value, leaseId, createRevision, modRevision: this.revision }
    this.#pairs.set(key, pair)
    this.#tell({ type: 'put', pair })
  }

  #delete(key: string): void {
    if (!this.#pairs.delete(key)) return
    const pair = { key, value: '', leaseId: null, createRevision: 0, modRevision: this.revision }
    this.#tell({ type: 'delete', pair })
  }

  #tell(event: Event): void {
    this.#history.push(event)
    for (const { range, listener } of [...this.#watchers]) {
      if (isWithin(range, event.pair.key)) listener.onMessage(this.#message({ events: [event] }))
    }
  }

  #within(range: KeyRange): KeyValue[] {
    const found = [...this.#pairs.values()].filter(({ key }) => isWithin(range, key))
    return found.sort((a, b) => (a.key < b.key ? -1 : 1))
  }

  #holds(condition: Condition): boolean {
    const found = this.#within(condition)
    if ('version' in condition) return condition.version === 0 && found.length === 0
    return found.length > 0 && found.every(({ modRevision }) => modRevision === condition.modRevision)
  }

  #message(part: Partial<WatchMessage>): WatchMessage {
    return {
      revision: this.revision,
      created: false,
      canceled: false,
      reason: '',
      compactRevision: 0,
      events: [],
      ...part,
    }
  }
}

function isWithin({ from, to }: KeyRange, key: string): boolean {
  return to === null ? key === from : key >= from && key < to
}
