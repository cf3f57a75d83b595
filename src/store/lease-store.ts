// What the daemon needs of a datastore. Allocation belongs to the store: etcd, file and memory choose a free subnet
// (with the shared, pure `allocate`), Kubernetes hands out the node's podCIDR. test/compliance/lease-store.ts holds
// every implementation to the same behaviour.
import type { Ipv4Prefix, Ipv6Prefix, UnderlayAddress } from '../../dataplane/index.ts'
import type { NetworkConfig } from '../config/network-config.ts'
import type { Halves, Lease, LeaseAttributes } from '../lease/lease.ts'

export interface AcquireRequest {
  readonly network: NetworkConfig
  /** Our identity (`identityOf`): the lease that carries this public IP is ours to adopt. */
  readonly publicIp: UnderlayAddress
  /** The subnet that the state directory or subnet.env remembers; taken only if free or ours. */
  readonly previousSubnet: Ipv4Prefix | null
  /** The same for the IPv6 half. */
  readonly previousIpv6Subnet: Ipv6Prefix | null
  /** What to write, given the lease of ours that is already there (its MAC may have to live on). */
  attributes(existing: Lease | null): LeaseAttributes
}

/** An entry among the leases that holds none, or none that can be read. */
export interface UnreadableEntry {
  /** Of which lease it is the place; `null` where its name says nothing of that kind. */
  readonly key: Halves | null
  /** etcd's key, the path of a file: what stands there may be anybody's words. */
  readonly name: string
  readonly why: string
}

/** Level-triggered: the whole set of leases (own one included) at a revision, or the news that the store is away. */
export type LeaseNews =
  | {
      readonly type: 'snapshot'
      readonly revision: number
      readonly leases: readonly Lease[]
      /** `leases` still has the last lease that was there, if any. Absent: none. */
      readonly unreadable?: readonly UnreadableEntry[]
    }
  | { readonly type: 'disconnected'; readonly why: string }

export interface LeaseStore {
  /** How people name it: `file:/run/…`, `etcd`, `memory`. */
  readonly name: string
  /** `by-margin`: the lease manager renews. `never`: the store keeps leases without us (Kubernetes). */
  readonly renewal: 'by-margin' | 'never'
  /** Reached over a network: a start waits for it, as flanneld does. A local one that is not there is a mistake. */
  readonly remote: boolean
  /** Raw network config JSON. @throws FlanneletteError `config-missing` (retryable), `store-unreadable` (retryable) */
  readNetworkConfig(): Promise<string>
  /**
   * Resolves as soon as the store is known to hold a network config, of whatever content, and when `signal` aborts. Not
   * for who needs to know in any case: a store that is away, or whose watch broke, says nothing before the abort.
   */
  awaitNetworkConfig(signal: AbortSignal): Promise<void>
  /**
   * Own lease by public IP, else previous subnet if free, else a random free one; all writes compare-and-swap, a lost
   * race is tried again. @throws FlanneletteError `out-of-subnets`, `lease-conflict`, `store-unreadable`
   */
  acquire(request: AcquireRequest): Promise<Lease>
  /**
   * Writes the lease again with a fresh lifetime if nobody else wrote its key since (same revision), re-creates it if
   * it is gone or its key holds something that is no lease. Attributes are written as given, a new public IP included. @throws FlanneletteError `lease-conflict`
   * when somebody else holds the key now, `store-unreadable`
   */
  renew(lease: Lease): Promise<Lease>
  /** Gives the lease back; not an error when it is already gone or somebody else's (then nothing is written). */
  release(lease: Lease): Promise<void>
  /** Own lease as the store has it now, `null` when the key is gone. Read first after every reconnect. */
  read(own: Halves): Promise<Lease | null>
  /**
   * First the present state, then one item per change (bursts may be merged). Ends when `signal` aborts. Survives
   * outages.
   */
  watch(signal: AbortSignal): AsyncIterable<LeaseNews>
  /** Called once the node forwards (Kubernetes: node condition). */
  publishReady(): Promise<void>
  close(): Promise<void>
}
