// Keys and values of etcd as leases. One that cannot be read costs no other: it is warned about once, and the last good
// content of its key stays valid until the key is gone.
import type { Prefix } from '../../../dataplane/index.ts'
import type { Clock } from '../../clock.ts'
import { foreignWords } from '../../foreign-words.ts'
import { halvesOf, type Lease } from '../../lease/lease.ts'
import type { Log } from '../../log.ts'
import { formatIpv4Half, formatSubnetKey, parseLeaseValue, parseSubnetKey, type SubnetKey } from '../flannel-json.ts'
import { LEASE_TTL_MS } from '../lease-book.ts'
import type { UnreadableEntry } from '../lease-store.ts'
import { type KeyRange, type KeyValue, keysUnder } from './calls.ts'

/** What is known of one key. */
export interface KnownPair {
  /** `null`: it is no lease, or none that can be read. */
  readonly lease: Lease | null
  readonly modRevision: number
  /** `null` when it holds a lease now. */
  readonly unreadable: UnreadableEntry | null
  /** A subnet that is somebody's, though nobody can say whose. */
  readonly blocked: readonly Prefix[]
}

/** Characters of a key that stand in a line. */
const MOST_OF_NAME = 200

/**
 * The key of which a name is the beginning and something more. No node could write that one: what begins like it counts
 * as a rival.
 */
function keyInFrontOf(name: string): SubnetKey | null {
  const [key] = /^\d+\.\d+\.\d+\.\d+-\d{1,2}(?:&[a-f0-9:]+-\d{1,3})?/.exec(name) ?? []
  return key === undefined ? null : parseSubnetKey(key)
}

/** Keys have one character a byte. */
function nameOf(key: string): string {
  return Buffer.from(key, 'latin1').toString('utf8')
}

export class LeasePairs {
  /** All keys of leases. */
  readonly range: KeyRange
  readonly #clock: Clock
  readonly #log: Log
  /** Keys that were complained about, with the complaint. */
  readonly #complaints = new Map<string, string>()

  /** `prefix` as in EtcdOptions, one character a byte. */
  constructor(prefix: string, clock: Clock, log: Log) {
    this.range = keysUnder(`${prefix}/subnets/`)
    this.#clock = clock
    this.#log = log
  }

  keyOf(subnet: SubnetKey): string {
    return this.range.from + formatSubnetKey(subnet)
  }

  /** Every key of that IPv4 subnet, whatever IPv6 half it has: they exclude each other. */
  rivalsOf(key: SubnetKey): KeyRange {
    return keysUnder(this.range.from + (key.subnet === null ? formatSubnetKey(key) : formatIpv4Half(key.subnet)))
  }

  /**
   * Reads a pair, given what was known of its key. How long others' leases live is not asked of the server: they end by
   * their deletion. A lease of etcd's therefore counts as fresh when it is first seen, which is the latest it can end.
   */
  read(pair: KeyValue, before: KnownPair | undefined): KnownPair {
    if (before?.modRevision === pair.modRevision) return before
    const name = pair.key.slice(this.range.from.length)
    const key = parseSubnetKey(name)
    try {
      if (key === null) throw new Error('its name is no lease key such as 10.244.1.0-24')
      const attributes = parseLeaseValue(pair.value)
      this.#complaints.delete(pair.key)
      const expiresAtMs = pair.leaseId === null ? null : this.#clock.wallMs() + LEASE_TTL_MS
      return {
        lease: { ...key, attributes, expiresAtMs, revision: pair.modRevision },
        modRevision: pair.modRevision,
        unreadable: null,
        blocked: [],
      }
    } catch (error) {
      const lease = before?.lease ?? null
      const why = (error as Error).message
      this.#complain(pair.key, why, lease !== null)
      const taken = key ?? keyInFrontOf(name)
      const blocked = taken === null || lease !== null ? [] : halvesOf(taken)
      return { lease, modRevision: pair.modRevision, unreadable: { key, name: nameOf(pair.key), why }, blocked }
    }
  }

  /** The key is gone: the next complaint about it is news. */
  forget(key: string): void {
    this.#complaints.delete(key)
  }

  #complain(key: string, why: string, keeping: boolean): void {
    if (this.#complaints.get(key) === why) return
    this.#complaints.set(key, why)
    const consequence = keeping ? 'its last good content stays valid' : 'it is ignored'
    const name = foreignWords(nameOf(key), MOST_OF_NAME)
    this.#log.warn('lease-unreadable', `lease ${name} cannot be read, ${consequence}: ${why}`)
  }
}
