// Leases in etcd v3, where flannel keeps them and as it writes them: `<prefix>/config` is the network config,
// `<prefix>/subnets/<key>` one lease, which dies with the etcd lease of 24 h that it hangs on. A key without an etcd
// lease is a reservation: it never expires, and stays one.
//
// Every write is a transaction on what was read before. One that loses gives its etcd lease back and looks again.

import type { Clock } from '../../clock.ts'
import type { EtcdOptions } from '../../config/etcd-options.ts'
import { FlanneletteError } from '../../errors.ts'
import type { Halves, Lease } from '../../lease/lease.ts'
import type { Log } from '../../log.ts'
import { leaseOf } from '../lease-book.ts'
import type { AcquireRequest, LeaseNews, LeaseStore } from '../lease-store.ts'
import type { EtcdCalls, KeyRange, WatchMessage } from './calls.ts'
import { EtcdConnection } from './connection.ts'
import { LeasePairs } from './lease-pairs.ts'
import { LeaseWatch } from './lease-watch.ts'
import { LeaseWriter } from './lease-writer.ts'
import { WatchSession } from './watch-session.ts'

export interface EtcdStoreOptions {
  readonly clock: Clock
  readonly log: Log
  /** Numbers in [0, 1), for the choice among free subnets and for pauses. */
  readonly random: () => number
}

/** @throws FlanneletteError `usage` when a file of the TLS side cannot be read */
export function openEtcdStore(etcd: EtcdOptions, options: EtcdStoreOptions): LeaseStore {
  const name = etcdStoreName(etcd)
  return new EtcdStore(name, etcd.prefix, new EtcdConnection(etcd, name, options.log), options)
}

/** `etcd:http://10.0.0.1:2379,http://10.0.0.2:2379/coreos.com/network`; the order of the endpoints does not count. */
function etcdStoreName({ endpoints, prefix }: Pick<EtcdOptions, 'endpoints' | 'prefix'>): string {
  return `etcd:${[...endpoints].sort().join(',')}${prefix}`
}

export class EtcdStore implements LeaseStore {
  readonly name: string
  readonly renewal = 'by-margin'
  readonly remote = true
  readonly #prefix: string
  readonly #configKey: KeyRange
  readonly #calls: EtcdCalls
  readonly #options: EtcdStoreOptions
  readonly #pairs: LeasePairs
  readonly #writer: LeaseWriter

  constructor(name: string, prefix: string, calls: EtcdCalls, options: EtcdStoreOptions) {
    this.name = name
    // One character a byte, as keys are everywhere below.
    this.#prefix = Buffer.from(prefix).toString('latin1')
    this.#configKey = { from: `${this.#prefix}/config`, to: null }
    this.#calls = calls
    this.#options = options
    this.#pairs = new LeasePairs(this.#prefix, options.clock, options.log)
    this.#writer = new LeaseWriter(calls, this.#pairs, options)
  }

  async readNetworkConfig(): Promise<string> {
    const { pairs } = await this.#calls.range(this.#configKey)
    return pairs[0]?.value ?? this.#missingConfig(this.#configKey.from)
  }

  async awaitNetworkConfig(signal: AbortSignal): Promise<void> {
    const session = new WatchSession(this.#options.clock, this.name)
    const end = () => session.fail(new FlanneletteError('interrupted', 'the wait was ended'))
    signal.addEventListener('abort', end)
    try {
      const { pairs, revision } = await this.#calls.range(this.#configKey)
      if (pairs.length > 0 || signal.aborted) return
      await session.open(this.#calls, this.#configKey, revision + 1)
      const isPut = ({ events }: WatchMessage) => events.some(({ type }) => type === 'put')
      while (!(await session.next()).some(isPut));
    } catch {
      // Whoever waits looks again by itself after a while, and hears then what is wrong.
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve))
    } finally {
      signal.removeEventListener('abort', end)
      end()
    }
  }

  acquire(request: AcquireRequest): Promise<Lease> {
    return this.#writer.acquire(request)
  }

  renew(lease: Lease): Promise<Lease> {
    return this.#writer.renew(lease)
  }

  release(lease: Lease): Promise<void> {
    return this.#writer.release(lease)
  }

  async read(own: Halves): Promise<Lease | null> {
    const { pairs } = await this.#calls.range(this.#pairs.rivalsOf(own))
    const leases = pairs.map((pair) => ({ pair, lease: this.#pairs.read(pair, undefined).lease }))
    const newestFirst = leases.sort((a, b) => b.pair.modRevision - a.pair.modRevision)
    const lease = leaseOf(
      newestFirst.flatMap((read) => read.lease ?? []),
      own,
    )
    const found = newestFirst.find((read) => read.lease === lease)
    return lease === null || found === undefined ? null : await this.#writer.dated(lease, found.pair)
  }

  watch(signal: AbortSignal): AsyncIterable<LeaseNews> {
    const { clock, random } = this.#options
    return new LeaseWatch({ calls: this.#calls, pairs: this.#pairs, clock, random, name: this.name }).run(signal)
  }

  async publishReady(): Promise<void> {}

  async close(): Promise<void> {
    this.#calls.close()
  }

  /** Says what flanneld does not: which key, which API, and whether the config stands one level too high. */
  async #missingConfig(key: string): Promise<never> {
    const above = (await this.#holdsJson(this.#prefix)) ? ` (but ${this.#prefix} itself holds JSON: move it)` : ''
    const message = `there is no network config at ${key} of ${this.name}, by etcd's API v3${above}`
    const example = `{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}`
    const remedy = `write one, for example: ETCDCTL_API=3 etcdctl put ${key} '${example}'`
    throw new FlanneletteError('config-missing', message, { remedy, retryable: true })
  }

  /** A guess for a message: a user without rights up there has none. */
  async #holdsJson(key: string): Promise<boolean> {
    if (key === '') return false
    try {
      const { pairs } = await this.#calls.range({ from: key, to: null })
      return pairs[0]?.value.trim().startsWith('{') === true
    } catch {
      return false
    }
  }
}
