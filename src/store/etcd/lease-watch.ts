// The watch over all leases, through outages of any length.
//
// Theory of operation. A listing gives a table at a revision; a stream from the revision behind it brings what changes.
// When a stream fails the next one begins where the table ends, so nothing is missed and nothing is listed again. Only
// if the server has forgotten that revision meanwhile (compaction) all is listed anew. Consumers get whole tables; what
// differs between two of them is their business.
//
// Between streams time passes: more and more while they fail, longer still when they are opened and break at once.
// A progress message says that there is nothing new up to its revision, but servers before 3.4.25 and 3.5.8 may say so
// while events are still under way: it counts only when the next one has come.
import { type Clock, delay } from '../../clock.ts'
import { FlanneletteError } from '../../errors.ts'
import type { LeaseNews } from '../lease-store.ts'
import { CompactedError, type EtcdCalls, type WatchMessage } from './calls.ts'
import type { LeasePairs } from './lease-pairs.ts'
import { LeaseTable } from './lease-table.ts'
import { WatchSession } from './watch-session.ts'

export const FIRST_BACKOFF_MS = 100
export const LONGEST_BACKOFF_MS = 5000
/** For streams that are opened and break within {@link STEADY_MS}. */
export const LONGEST_FLAP_BACKOFF_MS = 20_000
const STEADY_MS = 10_000

export interface LeaseWatchOptions {
  readonly calls: EtcdCalls
  readonly pairs: LeasePairs
  readonly clock: Clock
  /** Numbers in [0, 1). */
  readonly random: () => number
  /** How messages call the store. */
  readonly name: string
}

export class LeaseWatch {
  readonly #options: LeaseWatchOptions
  readonly #table: LeaseTable
  #listed = false
  #listedAtMs = Number.NEGATIVE_INFINITY
  #connected = false
  /** The reason in the latest news, when that was `disconnected`. */
  #toldAway: string | null = null
  #progressRevision = 0
  #backoffMs = FIRST_BACKOFF_MS

  constructor(options: LeaseWatchOptions) {
    this.#options = options
    this.#table = new LeaseTable(options.pairs)
  }

  /** See `LeaseStore.watch`. */
  async *run(signal: AbortSignal): AsyncGenerator<LeaseNews> {
    const { clock, name } = this.#options
    while (!signal.aborted) {
      const session = new WatchSession(clock, name)
      const abort = () => session.fail(new FlanneletteError('interrupted', 'the watch was ended'))
      signal.addEventListener('abort', abort)
      let failure: unknown
      try {
        yield* this.#follow(session)
      } catch (error) {
        failure = error
      } finally {
        signal.removeEventListener('abort', abort)
        abort()
      }
      if (signal.aborted) return
      const pauseMs = this.#afterFailure(failure, session)
      const why = failure instanceof Error ? failure.message : String(failure)
      // The reason that comes first is seldom the one that lasts: a stream breaks, then nobody may log in any more.
      const isNews = this.#toldAway !== why && !(failure instanceof CompactedError)
      if (this.#connected || isNews) yield this.#disconnected(why)
      if (pauseMs > 0) await delay(clock, pauseMs, signal)
    }
  }

  /** Lists if need be, then follows one stream until it fails. */
  async *#follow(session: WatchSession): AsyncGenerator<LeaseNews> {
    const { calls, pairs } = this.#options
    if (!this.#listed) {
      await this.#table.list(calls)
      this.#listed = true
      this.#listedAtMs = this.#options.clock.bootMs()
      yield this.#snapshot()
    }
    this.#progressRevision = 0
    await session.open(calls, pairs.range, this.#table.revision + 1)
    for (;;) {
      const changed = this.#take(await session.next())
      // The consumer learns that the store is back, though perhaps nothing has changed.
      if (changed || !this.#connected) yield this.#snapshot()
    }
  }

  #take(messages: readonly WatchMessage[]): boolean {
    let changed = false
    for (const message of messages) {
      if (this.#table.apply(message)) changed = true
      if (message.events.length > 0) continue
      this.#table.reach(this.#progressRevision)
      this.#progressRevision = message.revision
    }
    return changed
  }

  #snapshot(): LeaseNews {
    this.#connected = true
    this.#toldAway = null
    const { revision, leases, unreadable } = this.#table
    return { type: 'snapshot', revision, leases, ...(unreadable.length === 0 ? {} : { unreadable }) }
  }

  #disconnected(why: string): LeaseNews {
    this.#connected = false
    this.#toldAway = why
    return { type: 'disconnected', why }
  }

  /** Milliseconds to wait before the next stream. */
  #afterFailure(failure: unknown, session: WatchSession): number {
    if (session.ageMs >= STEADY_MS) this.#backoffMs = FIRST_BACKOFF_MS
    if (failure instanceof CompactedError && this.#listed) {
      this.#listed = false
      // At once, unless that is what happens all the time.
      if (this.#options.clock.bootMs() - this.#listedAtMs >= STEADY_MS) return 0
    }
    const flapping = this.#connected && session.ageMs < STEADY_MS
    const longest = flapping ? LONGEST_FLAP_BACKOFF_MS : LONGEST_BACKOFF_MS
    const pauseMs = Math.min(this.#backoffMs, longest)
    return this.#lengthen(longest, pauseMs * (1 - this.#options.random() / 2))
  }

  #lengthen(longestMs: number, result: number): number {
    this.#backoffMs = Math.min(2 * this.#backoffMs, longestMs)
    return result
  }
}
