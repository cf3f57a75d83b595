// What the store needs of an etcd server, in its own terms: the seam at which tests put a server of their own making.
// Revisions are numbers (they stay far below 2^53), ids of etcd's leases are text (63 bits).

/** A key as the server has it. */
export interface KeyValue {
  readonly key: string
  /** Empty in an event that tells of a deletion. */
  readonly value: string
  readonly createRevision: number
  readonly modRevision: number
  /** The etcd lease that the key dies with, `null` for none. */
  readonly leaseId: string | null
}

/** All keys from `from` up to and without `to`; with `to` null just the one. */
export interface KeyRange {
  readonly from: string
  readonly to: string | null
}

export interface RangeRequest extends KeyRange {
  readonly limit?: number
  /** The state at that revision in place of the present one. */
  readonly revision?: number
  /** Only keys written at or after that revision. */
  readonly minModRevision?: number
}

export interface RangeAnswer {
  /** Of the whole server, at the instant of the read. */
  readonly revision: number
  readonly pairs: readonly KeyValue[]
  readonly more: boolean
}

/** For every key of the range; a range without keys has version and revision 0. */
export type Condition = KeyRange & ({ readonly version: number } | { readonly modRevision: number })

/** Writes that happen all together, and only if all conditions hold. */
export interface Change {
  readonly when: readonly Condition[]
  readonly puts?: readonly { readonly key: string; readonly value: string; readonly leaseId: string | null }[]
  readonly deletes?: readonly string[]
  /** Read in the same instant after the writes. */
  readonly readAfter?: RangeRequest
  /** Read in the same instant when a condition does not hold. */
  readonly readOtherwise: RangeRequest
}

export interface ChangeAnswer {
  readonly done: boolean
  readonly revision: number
  /** What `readAfter` or `readOtherwise` found. */
  readonly pairs: readonly KeyValue[]
}

export interface GrantedLease {
  readonly id: string
  readonly ttlSeconds: number
}

export interface WatchMessage {
  readonly revision: number
  readonly created: boolean
  readonly canceled: boolean
  readonly reason: string
  /** Not 0: what was asked for is no longer there, only what came at or after this revision. */
  readonly compactRevision: number
  readonly events: readonly { readonly type: 'put' | 'delete'; readonly pair: KeyValue }[]
}

export interface WatchListener {
  onMessage(message: WatchMessage): void
  /** The stream is over. Called once; nothing follows. */
  onEnd(error: Error): void
}

export interface WatchStream {
  /** Asks the server to say something, at whatever revision it is. */
  requestProgress(): void
  cancel(): void
}

/**
 * Every call ends within a bounded time. @throws FlanneletteError `store-unreadable`, `store-refused`; CompactedError
 */
export interface EtcdCalls {
  range(request: RangeRequest): Promise<RangeAnswer>
  commit(change: Change): Promise<ChangeAnswer>
  grant(ttlSeconds: number): Promise<GrantedLease>
  /** Ends an etcd lease and deletes the keys that hang on it. */
  revoke(id: string): Promise<void>
  /** Seconds that an etcd lease has left; `null` when it is gone. */
  timeToLive(id: string): Promise<number | null>
  /** Tells of every change in the range from that revision on. */
  watch(range: KeyRange, fromRevision: number, listener: WatchListener): Promise<WatchStream>
  close(): void
}

/** The revision that was asked for has been compacted away. */
export class CompactedError extends Error {
  constructor(revision: number) {
    super(`the server has compacted its history up to revision ${revision || 'unknown'}`)
    this.name = 'CompactedError'
  }
}

/** Keys that begin with `prefix`. */
export function keysUnder(prefix: string): KeyRange {
  return { from: prefix, to: behind(prefix) }
}

/** The first key behind all that begin with `prefix`; ASCII, which all our keys are. */
function behind(prefix: string): string {
  return prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
}
