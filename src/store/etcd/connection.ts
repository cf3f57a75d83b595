// Calls to a cluster by way of a list of endpoints. One of them is in use; when it does not answer, the next one is,
// and what hangs on the old one is thrown away with its sockets. A call goes round the list once and then fails.
import type { Etcd3 } from 'etcd3'
import type { EtcdOptions } from '../../config/etcd-options.ts'
import { FlanneletteError } from '../../errors.ts'
import type { Log } from '../../log.ts'
import {
  type Change,
  type ChangeAnswer,
  CompactedError,
  type EtcdCalls,
  type GrantedLease,
  type KeyRange,
  type RangeAnswer,
  type RangeRequest,
  type WatchListener,
  type WatchStream,
} from './calls.ts'
import { keyValueOf, newClient, rangeRequest, transactionOf, watchMessageOf, watchRequest } from './client.ts'
import { type EtcdFailure, failureOf, storeError } from './failure.ts'

interface Link {
  readonly endpoint: string
  readonly client: Etcd3
}

export class EtcdConnection implements EtcdCalls {
  readonly #options: EtcdOptions
  readonly #name: string
  readonly #log: Log
  #index = 0
  #link: Link | null = null
  #withAuth = true
  #closed = false

  /** `name` is how messages call the store. @throws FlanneletteError `usage` when a TLS file cannot be read */
  constructor(options: EtcdOptions, name: string, log: Log) {
    this.#options = options
    this.#name = name
    this.#log = log
    this.#current()
  }

  async range(request: RangeRequest): Promise<RangeAnswer> {
    const answer = await this.#call(({ kv }) => kv.range(rangeRequest(request)))
    return { revision: Number(answer.header.revision), pairs: answer.kvs.map(keyValueOf), more: answer.more }
  }

  async commit(change: Change): Promise<ChangeAnswer> {
    const answer = await this.#call(({ kv }) => kv.txn(transactionOf(change)))
    const pairs = answer.responses.flatMap((response) => response.response_range?.kvs ?? []).map(keyValueOf)
    return { done: answer.succeeded, revision: Number(answer.header.revision), pairs }
  }

  async grant(ttlSeconds: number): Promise<GrantedLease> {
    const { ID, TTL } = await this.#call(({ leaseClient }) => leaseClient.leaseGrant({ TTL: ttlSeconds }))
    return { id: ID, ttlSeconds: Number(TTL) }
  }

  async revoke(id: string): Promise<void> {
    await this.#call(({ leaseClient }) => leaseClient.leaseRevoke({ ID: id }))
  }

  async timeToLive(id: string): Promise<number | null> {
    const { TTL } = await this.#call(({ leaseClient }) => leaseClient.leaseTimeToLive({ ID: id }))
    return Number(TTL) < 0 ? null : Number(TTL)
  }

  async watch(range: KeyRange, fromRevision: number, listener: WatchListener): Promise<WatchStream> {
    const link = this.#current()
    let over = false
    const end = (error: Error) => {
      if (over) return
      over = true
      this.#leave(link)
      const failure = failureOf(error, link.endpoint, this.#options)
      listener.onEnd(failure.kind === 'compacted' ? new CompactedError(0) : this.#errorFor([failure], error))
    }
    try {
      const stream = await link.client.watchClient.watch()
      stream.on('data', (response) => {
        if (!over) listener.onMessage(watchMessageOf(response))
      })
      stream.on('error', end)
      stream.on('end', () => end(new Error('the server ended the watch')))
      stream.write(watchRequest(range, fromRevision))
      return {
        requestProgress: () => void (over || stream.write({ progress_request: {} })),
        cancel: () => {
          over = true
          this.#leave(link) // whoever cancels does so because it is silent, or because all ends
          stream.cancel()
        },
      }
    } catch (error) {
      end(error as Error)
      return { requestProgress() {}, cancel() {} }
    }
  }

  close(): void {
    this.#closed = true
    this.#link?.client.close()
    this.#link = null
  }

  async #call<T>(perform: (client: Etcd3) => Promise<T>): Promise<T> {
    const failures: EtcdFailure[] = []
    // With one endpoint twice: its connection may have died unnoticed.
    let left = Math.max(2, this.#options.endpoints.length)
    for (;;) {
      const link = this.#current()
      try {
        return await perform(link.client)
      } catch (error) {
        const failure = failureOf(error, link.endpoint, this.#options)
        if (failure.kind === 'compacted') throw new CompactedError(0)
        failures.push(failure)
        this.#leave(link)
        left--
        if (failure.kind === 'no-auth-here' && this.#withAuth) this.#goWithoutAuth()
        else if (!failure.elsewhere || left <= 0) throw this.#errorFor(failures, error)
      }
    }
  }

  #current(): Link {
    if (this.#closed) throw new FlanneletteError('interrupted', `store ${this.#name} has been closed`)
    const endpoint = this.#options.endpoints[this.#index % this.#options.endpoints.length]!
    this.#link ??= { endpoint, client: newClient(endpoint, this.#options, this.#withAuth) }
    return this.#link
  }

  /** The next call uses another endpoint, and in any case another connection. */
  #leave(link: Link): void {
    if (this.#link !== link) return
    this.#link = null
    this.#index++
    link.client.close()
  }

  /** As flannel: user and password are left out where the server knows no users. */
  #goWithoutAuth(): void {
    this.#withAuth = false
    this.#log.info(
      'etcd-auth-off',
      `store ${this.#name} has authentication switched off: user and password are not used`,
    )
  }

  #errorFor(failures: readonly EtcdFailure[], cause: unknown): FlanneletteError {
    return storeError(failures, this.#name, cause)
  }
}
