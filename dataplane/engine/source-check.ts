// Lets nobody in who is not of the overlay: the outer source must hold the lease in which the inner source lies. The
// kernel's VXLAN takes frames from anyone who can reach the port; this is where ours differs.
import type { DropReason } from '../drop-reason.ts'
import { type ForwardingTable, NO_ENTRY } from '../forwarding/forwarding-table.ts'
import type { StepSink } from '../step.ts'
import { addressOf } from './address-of.ts'
import type { InnerPacket } from './inner-packet.ts'
import type { OwnSubnets } from './own-subnets.ts'
import type { SourceCheckMode } from './settings.ts'

/** Words of the longest address. */
const WORDS = 4

export class SourceCheck {
  sink: StepSink | null = null
  readonly #mode: SourceCheckMode
  readonly #own: OwnSubnets
  #table: ForwardingTable
  /** The pair that was right last time is right again until the table changes. Signed, so that nothing is boxed. */
  #lastOuter = 0
  #lastVersion = 0
  readonly #lastInner = new Int32Array(WORDS)

  constructor(mode: SourceCheckMode, own: OwnSubnets, table: ForwardingTable) {
    this.#mode = mode
    this.#own = own
    this.#table = table
  }

  replaceTable(table: ForwardingTable): void {
    this.#table = table
    this.#lastVersion = 0
  }

  /** Null when the packet that came from `outerSource`, a signed 32-bit address, may pass. */
  check(id: number, view: DataView, packet: InnerPacket, outerSource: number): DropReason | null {
    if (this.#mode === 'off') return null
    if (!this.#own.containsDestination(view, packet)) return 'inner-destination-foreign'
    if (this.sink === null && this.#isRemembered(view, packet, outerSource)) return null
    const entry =
      packet.version === 4
        ? this.#table.lookup(view.getInt32(packet.addressesAt))
        : this.#table.lookupIpv6(view, packet.addressesAt)
    if (this.sink !== null) this.#trace(this.sink, id, view, packet, entry)
    const holds = entry !== NO_ENTRY && this.#table.underlayAddress(entry) === outerSource
    if (!holds && (this.#mode === 'strict' || !this.#table.hasPeer(outerSource))) {
      return this.#table.hasPeer(outerSource) ? 'inner-source-spoofed' : 'unknown-peer'
    }
    this.#remember(view, packet, outerSource)
    return null
  }

  #isRemembered(view: DataView, packet: InnerPacket, outerSource: number): boolean {
    if (outerSource !== this.#lastOuter || packet.version !== this.#lastVersion) return false
    const words = packet.addressBytes / 8
    for (let word = 0; word < words; word++) {
      if (view.getInt32(packet.addressesAt + word * 4) !== this.#lastInner[word]) return false
    }
    return true
  }

  #remember(view: DataView, packet: InnerPacket, outerSource: number): void {
    this.#lastOuter = outerSource
    this.#lastVersion = packet.version
    const words = packet.addressBytes / 8
    for (let word = 0; word < words; word++) this.#lastInner[word] = view.getInt32(packet.addressesAt + word * 4)
  }

  #trace(sink: StepSink, id: number, view: DataView, packet: InnerPacket, entry: number): void {
    const source = addressOf(view, packet.version, packet.addressesAt)
    const found = entry === NO_ENTRY ? null : this.#table.entry(entry)
    sink.step({ kind: 'source-check', id, source, generation: this.#table.generation, entry: found })
  }
}
