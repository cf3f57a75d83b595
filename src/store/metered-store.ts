// A lease store that is counted: how often each operation was asked for and how it went, and when the store last did
// its work. In front of any store, for metrics.
import type { Clock } from '../clock.ts'
import type { Halves, Lease } from '../lease/lease.ts'
import type { AcquireRequest, LeaseNews, LeaseStore } from './lease-store.ts'

export const STORE_OPERATIONS = ['config', 'acquire', 'renew', 'release', 'read', 'watch', 'publish-ready'] as const
export type StoreOperation = (typeof STORE_OPERATIONS)[number]

export interface OperationCount {
  readonly operation: StoreOperation
  readonly ok: number
  readonly failed: number
}

export class MeteredStore implements LeaseStore {
  readonly name: string
  readonly renewal: LeaseStore['renewal']
  readonly remote: boolean
  readonly #store: LeaseStore
  readonly #clock: Clock
  readonly #counts = new Map(STORE_OPERATIONS.map((operation) => [operation, { ok: 0, failed: 0 }]))
  #lastSuccessWallMs: number | null = null

  constructor(store: LeaseStore, clock: Clock) {
    this.name = store.name
    this.renewal = store.renewal
    this.remote = store.remote
    this.#store = store
    this.#clock = clock
  }

  /**
   * Every operation, also those that nobody asked for yet. A watch counts each state it brings, and each loss of
   * contact.
   */
  get operations(): readonly OperationCount[] {
    return [...this.#counts].map(([operation, count]) => ({ operation, ...count }))
  }

  /** Wall clock, milliseconds; `null` before the first. */
  get lastSuccessWallMs(): number | null {
    return this.#lastSuccessWallMs
  }

  readNetworkConfig(): Promise<string> {
    return this.#count('config', this.#store.readNetworkConfig())
  }

  /** A wait, and no request that could fail. */
  awaitNetworkConfig(signal: AbortSignal): Promise<void> {
    return this.#store.awaitNetworkConfig(signal)
  }

  acquire(request: AcquireRequest): Promise<Lease> {
    return this.#count('acquire', this.#store.acquire(request))
  }

  renew(lease: Lease): Promise<Lease> {
    return this.#count('renew', this.#store.renew(lease))
  }

  release(lease: Lease): Promise<void> {
    return this.#count('release', this.#store.release(lease))
  }

  read(own: Halves): Promise<Lease | null> {
    return this.#count('read', this.#store.read(own))
  }

  async *watch(signal: AbortSignal): AsyncIterable<LeaseNews> {
    for await (const news of this.#store.watch(signal)) {
      this.#note('watch', news.type === 'snapshot')
      yield news
    }
  }

  publishReady(): Promise<void> {
    return this.#count('publish-ready', this.#store.publishReady())
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  async #count<T>(operation: StoreOperation, call: Promise<T>): Promise<T> {
    try {
      const result = await call
      this.#note(operation, true)
      return result
    } catch (error) {
      this.#note(operation, false)
      throw error
    }
  }

  #note(operation: StoreOperation, worked: boolean): void {
    this.#counts.get(operation)![worked ? 'ok' : 'failed'] += 1
    if (worked) this.#lastSuccessWallMs = this.#clock.wallMs()
  }
}
