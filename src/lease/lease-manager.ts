// Keeps this node's lease, and keeps watch over everybody's.
//
// Theory of operation. Two activities share one lease and take turns on it (`#inTurn`), so that neither ever sees the
// other's half-done work:
//
// 1. The keeper. A tick at most 30 s long compares deadlines with a clock that counts suspended time; no longer timer
//    is trusted. At `granted lifetime − margin` it renews, and after a failure again at each tick, until it works: the
//    deadline comes from the lifetime that was granted and the boot clock, so steps of the wall clock do not move it. A
//    tick that comes far too late means that the machine slept: then the own key is read again first. Each store call
//    has a deadline of its own. The watch may hang forever without any effect on this.
// 2. The watcher. Each snapshot is first searched for the own lease, then handed on. After an outage the own key is
//    read before anything else.
//
// What the own key can look like, and what follows, is in own-key.ts. What is no lease is written again at most twice in
// half a minute.
// Lost is final: `onLost` runs once and the manager stops. A store that is away is no loss: the lease is `suspect` from
// the first renewal that failed on, and when its lifetime is over, and forwarding goes on with what is known.
import { type Clock, delay, LONGEST_TIMER_MS, type Timer } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import type { Log } from '../log.ts'
import { LEASE_TTL_MS } from '../store/lease-book.ts'
import type { LeaseNews, LeaseStore, UnreadableEntry } from '../store/lease-store.ts'
import { sameAttributes } from './diff.ts'
import { type Lease, type LeaseAttributes, nameOf, sameSubnet } from './lease.ts'
import { isSameKey, judgeOwnKey } from './own-key.ts'
import { withDeadline } from './store-deadline.ts'

/** `suspect`: it could not be renewed when it was time, its lifetime is over, or the kept lease was not yet confirmed. */
export type LeaseState = 'held' | 'suspect' | 'lost'

export interface LeaseManagerOptions {
  readonly store: LeaseStore
  readonly clock: Clock
  readonly log: Log
  /** How long before its expiry a lease is renewed, in milliseconds. */
  readonly renewMarginMs: number
  /** Every validated snapshot, own lease included. */
  onLeases(leases: readonly Lease[]): void
  /** The own lease was written again or taken over: revision and expiry are new. */
  onOwnLease(lease: Lease): void
  /** The store answers, or does not, with the reason. Only changes are told, also those of the reason. */
  onStore(reachable: boolean, why: string): void
  /** The lease is somebody else's. Called once; the manager has stopped. */
  onLost(error: FlanneletteError): void
}

type Snapshot = Extract<LeaseNews, { type: 'snapshot' }>

/** How long the watch rests after it ended by itself. */
const WATCH_RESTART_MS = 1000
/** Shortest time between two ticks: a deadline in the past must not spin. */
const SHORTEST_TICK_MS = 1000

export class LeaseManager {
  readonly #options: LeaseManagerOptions
  readonly #stopped = new AbortController()
  #lease: Lease
  #state: LeaseState
  /** A write of ours may have happened without our knowing its revision. */
  #unsure: boolean
  /** Attributes of a write whose answer never came: they are ours as well. */
  #attempted: LeaseAttributes | null = null
  /** The last renewal failed, or is under way. */
  #refused = false
  /** A renewal has failed, and none has worked since. */
  #overdue = false
  #reachable: boolean | null = null
  #unreadable: readonly UnreadableEntry[] = []
  #why = ''
  #renewAtBootMs = 0
  #expiresAtBootMs = 0
  #lastTickBootMs: number
  #replacedAtBootMs = Number.NEGATIVE_INFINITY
  #lastRenewalWallMs: number | null = null
  #turn: Promise<void> = Promise.resolve()
  #timer: Timer | null = null

  /** `confirmed`: the store just granted it. Otherwise it comes from the state directory and must be validated. */
  constructor(lease: Lease, confirmed: boolean, options: LeaseManagerOptions) {
    this.#options = options
    this.#lease = lease
    this.#state = confirmed ? 'held' : 'suspect'
    this.#unsure = !confirmed
    this.#lastTickBootMs = options.clock.bootMs()
    this.#schedule(lease, confirmed)
  }

  get lease(): Lease {
    return this.#lease
  }

  get state(): LeaseState {
    return this.#state === 'held' && (this.#overdue || this.isExpired) ? 'suspect' : this.#state
  }

  /** Entries of the store that hold no lease, by the last snapshot. */
  get unreadable(): readonly UnreadableEntry[] {
    return this.#unreadable
  }

  /** Wall-clock time of the last successful write in this process, `null` before the first. */
  get lastRenewalWallMs(): number | null {
    return this.#lastRenewalWallMs
  }

  /** Whether its lifetime is over without a renewal: the store may have given the subnet to another. */
  get isExpired(): boolean {
    return this.#options.clock.bootMs() >= this.#expiresAtBootMs
  }

  /** Milliseconds until a renewal is due, negative when it is overdue; `null` for a lease that needs none. */
  get renewalDueInMs(): number | null {
    const dueMs = this.#renewAtBootMs - this.#options.clock.bootMs()
    return Number.isFinite(dueMs) ? dueMs : null
  }

  start(): void {
    this.#armTick()
    void this.#watch()
  }

  /**
   * Writes the own lease with other attributes, by compare-and-swap. Resolves when they are in the store, or the lease
   * is lost. @throws FlanneletteError `store-unreadable` and whatever else keeps them out: to be called again then
   */
  rewrite(attributes: LeaseAttributes): Promise<void> {
    return new Promise((resolve, reject) => {
      const work = async () => {
        if (sameAttributes(this.#lease.attributes, attributes)) return
        this.#attempted = attributes
        await this.#write({ ...this.#lease, attributes })
        if (this.#done || sameAttributes(this.#lease.attributes, attributes)) return
        throw new FlanneletteError('lease-conflict', 'the own lease was written meanwhile', { retryable: true })
      }
      // What fails here is the caller's, not the keeper's.
      void this.#inTurn(() => work().then(resolve, reject)).then(() => resolve())
    })
  }

  /**
   * Somebody noticed that the machine slept: the own key is read before anything else is done, and not at the next
   * tick. Resolves with whether the lease is not lost; a store that does not answer takes nothing away.
   */
  async wake(): Promise<boolean> {
    this.#lastTickBootMs = this.#options.clock.bootMs()
    await this.#inTurn(() => this.#lookAgain())
    return this.#state !== 'lost'
  }

  /** Ends both activities at once; what the store is still doing is not waited for. The lease stays. */
  stop(): void {
    this.#stopped.abort()
    this.#timer?.cancel()
  }

  get #done(): boolean {
    return this.#stopped.signal.aborted
  }

  // --- the keeper ---

  #armTick(): void {
    if (this.#done) return
    const { clock } = this.#options
    // Due and refused: the next tick is soon enough, a store in trouble is not helped by haste.
    const untilDue = this.#refused ? LONGEST_TIMER_MS : Math.max(SHORTEST_TICK_MS, this.#renewAtBootMs - clock.bootMs())
    this.#timer = clock.after(Math.min(LONGEST_TIMER_MS, untilDue), () => {
      const now = clock.bootMs()
      const slept = now - this.#lastTickBootMs > 2 * LONGEST_TIMER_MS
      this.#lastTickBootMs = now
      void this.#inTurn(() => this.#tick(now, slept)).finally(() => this.#armTick())
    })
  }

  async #tick(now: number, slept: boolean): Promise<void> {
    try {
      if (slept) await this.#lookAgain()
      if (!this.#done && now >= this.#renewAtBootMs) await this.#renew()
    } catch (error) {
      this.#failed(error)
    }
  }

  async #lookAgain(): Promise<void> {
    const { log, store } = this.#options
    log.warn('woke-up', 'the machine or this process was asleep: reading the own lease again')
    await this.#validate(await this.#ask(store.read(this.#lease)), null)
  }

  async #renew(): Promise<void> {
    const { store, log } = this.#options
    if (store.renewal === 'never') return
    this.#refused = true
    const written = await this.#write(this.#lease)
    if (written) log.info('lease-renewed', `lease ${nameOf(this.#lease)} renewed`, { revision: this.#lease.revision })
  }

  /** Whether it was written; a key that others wrote is judged. @throws FlanneletteError of the store */
  async #write(lease: Lease): Promise<boolean> {
    const { store, clock } = this.#options
    this.#unsure = true
    try {
      this.#take(await this.#ask(store.renew(lease)))
      this.#lastRenewalWallMs = clock.wallMs()
      return true
    } catch (error) {
      if (!(error instanceof FlanneletteError) || error.code !== 'lease-conflict') throw error
      const seen = await this.#ask(store.read(lease))
      if (seen === null) this.#lose(error)
      else await this.#validate(seen, null)
      return false
    }
  }

  #failed(error: unknown): void {
    const { log, clock } = this.#options
    const message = error instanceof FlanneletteError ? error.oneLine : String(error)
    if (this.#refused) this.#overdue = true
    if (clock.bootMs() >= this.#expiresAtBootMs && this.#state === 'held') {
      this.#state = 'suspect'
      log.error('lease-suspect', 'the lease could not be renewed in its lifetime: others may take the subnet')
    }
    log.warn('store-call-failed', `the lease store did not do its work, trying again: ${message}`)
  }

  // --- the watcher ---

  async #watch(): Promise<void> {
    const { store, clock } = this.#options
    const { signal } = this.#stopped
    while (!this.#done) {
      try {
        for await (const news of store.watch(signal)) {
          if (this.#done) return
          if (news.type === 'disconnected') this.#tellStore(false, news.why)
          else await this.#inTurn(() => this.#receive(news))
        }
      } catch (error) {
        this.#failed(error)
      }
      await delay(clock, WATCH_RESTART_MS, signal)
    }
  }

  async #receive({ leases, revision, unreadable = [] }: Snapshot): Promise<void> {
    const { store } = this.#options
    this.#unreadable = unreadable
    const mine = leases.find((lease) => sameSubnet(lease, this.#lease)) ?? null
    try {
      // A snapshot from before the reconnection, or from before our last write, says nothing of the own key.
      const outdated = revision < this.#lease.revision
      const seen = outdated || this.#reachable === false ? await this.#ask(store.read(this.#lease)) : mine
      const isRubbish = unreadable.some(({ key }) => key !== null && isSameKey(key, this.#lease))
      if (isRubbish && (seen === null || !outdated)) await this.#replaceRubbish(seen ?? mine, revision)
      else await this.#validate(seen, revision)
    } catch (error) {
      return this.#failed(error)
    }
    if (this.#done) return
    this.#tellStore(true, '')
    this.#options.onLeases(leases)
  }

  #tellStore(reachable: boolean, why: string): void {
    if (this.#reachable === reachable && this.#why === why) return
    this.#reachable = reachable
    this.#why = why
    this.#options.onStore(reachable, why)
  }

  // --- the own key ---

  /** `seen` is the own key as the store has it now; `storeRevision` is for the log only. */
  async #validate(seen: Lease | null, storeRevision: number | null): Promise<void> {
    const { log, clock } = this.#options
    const own = this.#lease
    if (this.#done) return
    if (seen === null) {
      const cause = clock.bootMs() >= this.#expiresAtBootMs ? 'expired' : 'deleted by someone'
      const fields = storeRevision === null ? { cause } : { cause, revision: storeRevision }
      log.error('lease-gone', `own lease ${nameOf(own)} is gone (${cause}): putting it back`, fields)
      return this.#renew()
    }
    const [isHeld, isUnsure] = [this.#state === 'held', this.#unsure]
    const verdict = judgeOwnKey(seen, { own, isHeld, isUnsure, attempted: this.#attempted })
    if (verdict === 'ours') this.#take(seen)
    else if (verdict !== 'same') this.#lose(verdict)
  }

  /** `before`: the last lease that stood there, `null` when nobody knows of one. */
  async #replaceRubbish(before: Lease | null, storeRevision: number): Promise<void> {
    const { log, clock, store } = this.#options
    if (before !== null) await this.#validate(before, storeRevision)
    if (this.#done) return
    const message = `own lease ${nameOf(this.#lease)} was overwritten with something that is no lease: writing it again`
    log.warn('lease-overwritten', message, { revision: storeRevision })
    if (store.renewal === 'never') return
    const now = clock.bootMs()
    // Whoever does that again and again is answered by the keeper, at its next tick.
    const isAgain = now - this.#replacedAtBootMs < LONGEST_TIMER_MS
    this.#renewAtBootMs = Math.min(this.#renewAtBootMs, now)
    if (isAgain) return
    this.#replacedAtBootMs = now
    await this.#renew().catch((error) => this.#failed(error))
  }

  #take(lease: Lease): void {
    this.#lease = lease
    this.#state = 'held'
    this.#unsure = false
    this.#attempted = null
    this.#refused = false
    this.#overdue = false
    this.#schedule(lease, true)
    this.#options.onOwnLease(lease)
  }

  #lose(error: FlanneletteError): void {
    if (this.#done) return
    this.#state = 'lost'
    this.stop()
    this.#options.onLost(error)
  }

  #schedule(lease: Lease, confirmed: boolean): void {
    const { clock, renewMarginMs, store } = this.#options
    const now = clock.bootMs()
    // The wall clock may have been set since the store gave that time: at boot it often is, by hours.
    const leftMs = (expiresAtMs: number) => Math.min(expiresAtMs - clock.wallMs(), LEASE_TTL_MS)
    const lifetime = lease.expiresAtMs === null ? Number.POSITIVE_INFINITY : leftMs(lease.expiresAtMs)
    this.#expiresAtBootMs = now + lifetime
    // A lease from the state directory has an unknown rest of its lifetime: due at once.
    this.#renewAtBootMs = confirmed ? now + lifetime - renewMarginMs : now
    if (store.renewal === 'never') this.#renewAtBootMs = Number.POSITIVE_INFINITY
  }

  // --- calls ---

  #inTurn(work: () => Promise<void>): Promise<void> {
    this.#turn = this.#turn.then(() => (this.#done ? undefined : work())).catch((error) => this.#failed(error))
    return this.#turn
  }

  #ask<T>(call: Promise<T>): Promise<T> {
    return withDeadline(this.#options.clock, call, this.#options.store.name)
  }
}
