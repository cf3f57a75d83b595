// A lease store inside the process: for tests and simulations. Several stores opened on one `MemoryLeases` are several
// nodes; the whole can be made unreadable.
import { type Clock, LONGEST_TIMER_MS } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import type { Halves, Lease } from '../lease/lease.ts'
import { awaitConfig } from './config-wait.ts'
import { LeaseBook, leaseOf } from './lease-book.ts'
import type { AcquireRequest, LeaseNews, LeaseStore } from './lease-store.ts'
import { watchSnapshots } from './snapshot-watch.ts'

/** The data that several stores share. */
export class MemoryLeases {
  readonly clock: Clock
  #config: string | null
  #leases: readonly Lease[] = []
  /** Wall clock minus boot clock when `#leases` was last looked at: lifetimes run on the boot clock. */
  #wallOffsetMs: number
  #revision = 0
  #outage: string | null = null
  readonly #watchers = new Set<() => void>()

  constructor(clock: Clock, config: string | null) {
    this.clock = clock
    this.#config = config
    this.#wallOffsetMs = clock.wallMs() - clock.bootMs()
  }

  /** Raw network config, `null` for none. */
  get config(): string | null {
    return this.#config
  }

  set config(config: string | null) {
    this.#config = config
    this.#wake()
  }

  /** From now on every call fails with this reason; `null` ends the outage. */
  setOutage(why: string | null): void {
    this.#outage = why
    this.#wake()
  }

  /** Writes or deletes behind everybody's back, as an operator would. */
  edit(change: (leases: readonly Lease[]) => readonly Lease[]): void {
    this.#leases = change(this.#leases)
    this.#revision = Math.max(this.#revision + 1, ...this.#leases.map((lease) => lease.revision))
    this.#wake()
  }

  open(random: () => number, note: (sentence: string) => void = () => {}): LeaseStore {
    return new MemoryStore(this, random, note)
  }

  /** @throws FlanneletteError `store-unreadable` during an outage */
  book(): LeaseBook {
    this.requireReadable()
    this.#followWallClock()
    return new LeaseBook(this.#leases, this.#revision, this.clock.wallMs())
  }

  commit(book: LeaseBook): void {
    if (book.changes.length === 0) return
    this.#leases = book.leases()
    this.#revision = book.revision
    this.#wake()
  }

  requireReadable(): void {
    if (this.#outage === null) return
    const remedy = 'end the outage'
    throw new FlanneletteError('store-unreadable', `memory store: ${this.#outage}`, { remedy, retryable: true })
  }

  subscribe(wake: () => void): () => void {
    this.#watchers.add(wake)
    return () => this.#watchers.delete(wake)
  }

  /** Every change is told to watchers; only an expiry comes by itself. */
  untilNextExpiryMs(): number {
    const lifetimes = this.#leases.map((lease) => (lease.expiresAtMs ?? Number.POSITIVE_INFINITY) - this.clock.wallMs())
    return Math.min(LONGEST_TIMER_MS, ...lifetimes.filter((ms) => ms > 0))
  }

  /** A step of the wall clock moves the expiries along: it must not end a lease. */
  #followWallClock(): void {
    const offset = this.clock.wallMs() - this.clock.bootMs()
    const step = offset - this.#wallOffsetMs
    if (step === 0) return
    this.#wallOffsetMs = offset
    this.#leases = this.#leases.map((lease) => {
      return lease.expiresAtMs === null ? lease : { ...lease, expiresAtMs: lease.expiresAtMs + step }
    })
  }

  #wake(): void {
    for (const wake of this.#watchers) wake()
  }
}

class MemoryStore implements LeaseStore {
  readonly name = 'memory'
  readonly renewal = 'by-margin'
  readonly remote = false
  readonly #shared: MemoryLeases
  readonly #random: () => number
  readonly #note: (sentence: string) => void

  constructor(shared: MemoryLeases, random: () => number, note: (sentence: string) => void) {
    this.#shared = shared
    this.#random = random
    this.#note = note
  }

  async readNetworkConfig(): Promise<string> {
    this.#shared.requireReadable()
    const { config } = this.#shared
    if (config !== null) return config
    const remedy = 'set one'
    throw new FlanneletteError('config-missing', 'the memory store holds no network config', {
      remedy,
      retryable: true,
    })
  }

  awaitNetworkConfig(signal: AbortSignal): Promise<void> {
    const shared = this.#shared
    const source = {
      clock: shared.clock,
      nextLookMs: LONGEST_TIMER_MS,
      subscribe: (wake: () => void) => shared.subscribe(wake),
      isThere: () => shared.config !== null,
    }
    return awaitConfig(source, signal)
  }

  async acquire(request: AcquireRequest): Promise<Lease> {
    return this.#change((book) => book.acquire(request, this.#random, this.#note))
  }

  async renew(lease: Lease): Promise<Lease> {
    return this.#change((book) => book.renew(lease))
  }

  async release(lease: Lease): Promise<void> {
    this.#change((book) => book.release(lease))
  }

  async read(own: Halves): Promise<Lease | null> {
    return leaseOf(this.#shared.book().leases(), own)
  }

  watch(signal: AbortSignal): AsyncIterable<LeaseNews> {
    const shared = this.#shared
    const source = {
      clock: shared.clock,
      nextLookMs: () => shared.untilNextExpiryMs(),
      subscribe: (wake: () => void) => shared.subscribe(wake),
      snapshot: () => {
        const book = shared.book()
        return { revision: book.revision, leases: book.leases() }
      },
    }
    return watchSnapshots(source, signal)
  }

  async publishReady(): Promise<void> {}

  async close(): Promise<void> {}

  #change<T>(operation: (book: LeaseBook) => T): T {
    const book = this.#shared.book()
    const result = operation(book)
    this.#shared.commit(book)
    return result
  }
}
