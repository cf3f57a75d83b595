// How large an inner packet the way to each peer takes, where outer datagrams have DF set. The kernel learns a limit from
// ICMP of the underlay and forgets it again (10 minutes, ip-sysctl.rst: mtu_expires); the engine asks it when a send was
// refused, keeps the answer by peer, and asks again from time to time, so that a path that has grown is noticed. While no
// peer has a limit nothing is asked per packet.

import { NOBODY } from '../forwarding/address-ranges.ts'
import type { ForwardingTable } from '../forwarding/forwarding-table.ts'
import type { UnderlayPaths } from '../io/underlay-socket.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import { type Counters, cellOf } from './counters.ts'
import type { PeerActivity } from './peer-activity.ts'
import type { EngineSettings } from './settings.ts'

/** How long an answer of the kernel is taken for true, milliseconds. */
export const REVIEW_MS = 5000

const LOWERED = cellOf('path-mtu.lowered')
const RAISED = cellOf('path-mtu.raised')
const IGNORED = cellOf('path-mtu.ignored')

interface Limit {
  /** Largest inner packet that the kernel sends with DF set; may be absurd, even negative. */
  bytes: number
  /** Whether it leaves what every host must take. What is not believed is told to nobody. */
  believed: boolean
  port: number
}

export interface PathLimitsParts {
  /** `null` where DF is clear: no peer has a limit then. */
  readonly paths: UnderlayPaths | null
  /** What the encapsulation puts in front of an inner packet, inside UDP. */
  readonly encapBytes: number
  readonly settings: Pick<EngineSettings, 'ipv6Subnet'>
  readonly counters: Counters
  readonly activity: Pick<PeerActivity, 'limit' | 'forgetLimits'>
  readonly nowMs: () => number
}

export class PathLimits {
  /** Peers that have a limit. */
  count = 0
  readonly #parts: PathLimitsParts
  /** By the peer's number, signed. */
  readonly #limits = new Map<number, Limit>()
  readonly #leastBytes: number
  #reviewDueMs = 0

  constructor(parts: PathLimitsParts) {
    this.#parts = parts
    this.#leastBytes = parts.settings.ipv6Subnet === null ? ipv4.LEAST_MTU_BYTES : ipv6.LEAST_MTU_BYTES
  }

  /** Largest inner packet that goes to the peer in one datagram with DF set, at most `mtuBytes`; never below 0. */
  whole(number: number, mtuBytes: number): number {
    const limit = this.#limits.get(number)
    return limit === undefined ? mtuBytes : Math.max(0, Math.min(limit.bytes, mtuBytes))
  }

  /**
   * Largest inner packet that senders shall be told of: not an absurd one. What lies between both leaves with DF clear, for
   * the underlay to fragment.
   */
  named(number: number, mtuBytes: number): number {
    return this.#limits.get(number)?.believed ? this.whole(number, mtuBytes) : mtuBytes
  }

  /**
   * Asks the kernel how large a packet the way to the peer takes now, for an overlay of `mtuBytes`. Returns whether that
   * is something new.
   */
  ask(number: number, port: number, mtuBytes: number): boolean {
    const payload = this.#parts.paths?.payloadTo(number, port) ?? 0
    // A kernel that does not tell leaves everything as it is.
    if (payload <= 0) return false
    const bytes = payload - this.#parts.encapBytes
    const before = this.#limits.get(number)
    if (bytes >= mtuBytes) return before !== undefined && this.#lift(number)
    if (before?.bytes === bytes) return false
    this.#set(number, bytes, port)
    if (this.count === 1) this.#reviewDueMs = this.#parts.nowMs() + REVIEW_MS
    if (bytes < this.#leastBytes) this.#parts.counters.add(IGNORED, 1)
    else this.#parts.counters.add(before?.believed && before.bytes < bytes ? RAISED : LOWERED, 1)
    return true
  }

  #set(number: number, bytes: number, port: number): void {
    const believed = bytes >= this.#leastBytes
    this.#limits.set(number, { bytes, believed, port })
    this.count = this.#limits.size
    this.#parts.activity.limit(number, believed ? bytes : 0)
  }

  #lift(number: number): true {
    this.#limits.delete(number)
    this.count = this.#limits.size
    this.#parts.activity.limit(number, 0)
    this.#parts.counters.add(RAISED, 1)
    return true
  }

  /** Asks again for every peer with a limit, if the last time is long enough ago. Returns whether there is anything new. */
  review(mtuBytes: number): boolean {
    if (this.count === 0) return false
    const nowMs = this.#parts.nowMs()
    if (nowMs < this.#reviewDueMs) return false
    this.#reviewDueMs = nowMs + REVIEW_MS
    let changed = false
    for (const [number, { port }] of [...this.#limits]) if (this.ask(number, port, mtuBytes)) changed = true
    return changed
  }

  /** The peers are others now, and so are the notes about them. */
  replaceTable({ peers }: ForwardingTable): void {
    if (this.#parts.paths === null) return
    // A thread that died may have left some.
    this.#parts.activity.forgetLimits()
    for (const [number, { bytes, believed }] of [...this.#limits]) {
      if (peers.indexOf(number) === NOBODY) this.#limits.delete(number)
      else if (believed) this.#parts.activity.limit(number, bytes)
    }
    this.count = this.#limits.size
  }
}
