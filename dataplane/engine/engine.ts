// The engine: both directions, the table they share, and the sink that looks on. Knows no store, no logger, no timer;
// whoever owns it calls `outbound()` when the TUN is readable and `inbound()` when the socket is.
import { encodeForwardingTable, ForwardingTable } from '../forwarding/forwarding-table.ts'
import type { StepSink } from '../step.ts'
import { Inbound } from './inbound.ts'
import type { Offenders } from './offenders.ts'
import { Outbound, type OutboundParts } from './outbound.ts'
import { NARROW_ADDRESSES, type OuterAddresses } from './outer-addresses.ts'
import { activityMemory, PeerActivity } from './peer-activity.ts'

/** Packet memory that an engine needs: slots, areas, slabs and iovecs, with room to spare. */
export const ENGINE_MEMORY_BYTES = 2 * 1024 * 1024

export type EngineParts = OutboundParts

export class Engine {
  readonly #outbound: Outbound
  readonly #inbound: Inbound
  readonly #activity: PeerActivity
  readonly #outer: OuterAddresses
  #table = new ForwardingTable(encodeForwardingTable([], 0))

  constructor(parts: EngineParts) {
    this.#outer = parts.outer ?? NARROW_ADDRESSES
    this.#activity = new PeerActivity(parts.nowMs, this.#table)
    this.#outbound = new Outbound(parts, this.#table, this.#activity)
    this.#inbound = new Inbound(parts, this.#table, this.#activity)
  }

  get table(): ForwardingTable {
    return this.#table
  }

  /**
   * Forwards by this table from the next packet on, and notes in `activity` what passes between its peers and us (see
   * peer-activity.ts). Never called while a direction runs: same thread.
   */
  replaceTable(encoded: SharedArrayBuffer, activity?: SharedArrayBuffer): void {
    this.#table = new ForwardingTable(encoded)
    this.#outer.replaceTable(this.#table)
    this.#activity.replaceTable(this.#table, activity ?? activityMemory(this.#table.peers.count))
    this.#outbound.replaceTable(this.#table)
    this.#inbound.replaceTable(this.#table)
  }

  /** Largest inner packet from the next one on; never called while a direction runs. */
  setMtu(mtuBytes: number): void {
    this.#outbound.setMtu(mtuBytes)
    this.#inbound.setMtu(mtuBytes)
  }

  /** To be called now and then, at least once a second: see {@link Outbound.reviewPaths}. */
  reviewPaths(): void {
    this.#outbound.reviewPaths()
  }

  /** Lets somebody look at every step, or nobody (`null`), which costs nothing. */
  setSink(sink: StepSink | null): void {
    this.#outbound.setSink(sink)
    this.#inbound.setSink(sink)
  }

  /** Whom the source check refused lately. */
  get offenders(): Offenders {
    return this.#inbound.offenders
  }

  /** TUN → underlay; see {@link Outbound.run}. */
  outbound(): number {
    return this.#outbound.run()
  }

  /** Underlay → TUN; see {@link Inbound.run}. */
  inbound(): number {
    return this.#inbound.run()
  }
}
