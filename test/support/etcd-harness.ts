// A real etcd under the rules of lease stores: its time is the virtual clock's, its network a wire that can be cut.
// What etcd itself would do when time passes, ending leases, is done here by revoking them.
import type { EtcdOptions } from '../../src/config/etcd-options.ts'
import type { Log } from '../../src/log.ts'
import { silentLog } from '../../src/log.ts'
import type { EtcdCalls } from '../../src/store/etcd/calls.ts'
import { EtcdConnection } from '../../src/store/etcd/connection.ts'
import { EtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { formatLeaseValue, formatSubnetKey } from '../../src/store/flannel-json.ts'
import { EtcdProxy } from './etcd-proxy.ts'
import type { EtcdServer } from './etcd-server.ts'
import { seededRandom } from './seeded-random.ts'
import type { StoreHarness } from './store-harness.ts'
import { VirtualClock } from './virtual-clock.ts'

export function etcdOptionsFor(endpoints: readonly string[], prefix: string): EtcdOptions {
  return { endpoints, prefix, keyFile: null, certFile: null, caFile: null, username: null, password: null }
}

/** Time that also rests at its end, for what falls due at that very instant in the server. */
class RestingClock extends VirtualClock {
  readonly #rest: () => Promise<void>

  constructor(rest: () => Promise<void>) {
    super(undefined, rest)
    this.#rest = rest
  }

  override async advance(ms: number): Promise<void> {
    await super.advance(ms)
    await this.#rest()
  }
}

export class EtcdHarness implements StoreHarness {
  readonly clock: VirtualClock
  readonly prefix: string
  readonly proxy: EtcdProxy
  readonly server: EtcdServer
  readonly #open: EtcdCalls[] = []
  readonly #direct: EtcdCalls
  /** Boot time at which each granted lease ends. */
  readonly #ends = new Map<string, number>()
  readonly #random = seededRandom(1)
  /** Calls whose answer has not come. */
  #underWay = 0

  private constructor(server: EtcdServer, proxy: EtcdProxy, prefix: string) {
    this.server = server
    this.proxy = proxy
    this.prefix = prefix
    this.clock = new RestingClock(async () => {
      await this.#expire()
      do {
        // A server that had no time yet for what was asked of it looks quiet, too: it answers first.
        await this.#direct.range({ from: prefix, to: null }).catch(() => {})
        await proxy.quiet()
      } while (this.#underWay > 0)
    })
    this.#direct = new EtcdConnection(etcdOptionsFor([server.url], prefix), 'direct', silentLog)
  }

  static async make(server: EtcdServer, prefix: string): Promise<EtcdHarness> {
    return new EtcdHarness(server, await EtcdProxy.open(Number(new URL(server.url).port)), prefix)
  }

  /** A property, since tests take it out of the harness. */
  readonly open = (log: Log = silentLog): EtcdStore => {
    const calls = this.#timed(new EtcdConnection(etcdOptionsFor([this.proxy.url], this.prefix), 'etcd', log))
    this.#open.push(calls)
    return new EtcdStore('etcd', this.prefix, calls, { clock: this.clock, log, random: this.#random })
  }

  setConfig(text: string | null): void {
    if (text === null) this.server.ctl('del', `${this.prefix}/config`)
    else this.server.ctl('put', `${this.prefix}/config`, text)
  }

  put(lease: Parameters<StoreHarness['put']>[0]): void {
    this.server.ctl('put', this.#keyOf(formatSubnetKey(lease)), formatLeaseValue(lease.attributes))
  }

  remove(subnet: string): void {
    this.server.ctl('del', this.#keyOf(subnet))
  }

  setOutage(away: boolean): void {
    if (away) this.proxy.cut()
    else this.proxy.join()
  }

  close(): void {
    for (const calls of [...this.#open, this.#direct]) calls.close()
    this.proxy.cut()
  }

  #keyOf(subnet: string): string {
    return `${this.prefix}/subnets/${subnet.replace('/', '-')}`
  }

  /** etcd's leases on the virtual clock, and every call counted while it is under way. */
  #timed(calls: EtcdCalls): EtcdCalls {
    const counted = async <T>(call: Promise<T>): Promise<T> => {
      this.#underWay++
      return await call.finally(() => this.#underWay--)
    }
    return {
      range: (request) => counted(calls.range(request)),
      commit: (change) => counted(calls.commit(change)),
      grant: async (ttlSeconds) => {
        const granted = await counted(calls.grant(ttlSeconds))
        this.#ends.set(granted.id, this.clock.bootMs() + granted.ttlSeconds * 1000)
        return granted
      },
      revoke: (id) => counted(calls.revoke(id)),
      timeToLive: async (id) => {
        if ((await counted(calls.timeToLive(id))) === null) return null
        return ((this.#ends.get(id) ?? 0) - this.clock.bootMs()) / 1000
      },
      watch: (range, fromRevision, listener) => counted(calls.watch(range, fromRevision, listener)),
      close: () => calls.close(),
    }
  }

  async #expire(): Promise<void> {
    for (const [id, endMs] of this.#ends) {
      if (endMs > this.clock.bootMs()) continue
      this.#ends.delete(id)
      await this.#direct.revoke(id).catch(() => {}) // given back already
    }
  }
}
