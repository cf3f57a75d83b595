// Lets nobody in who is not of the overlay: the outer source must hold the lease in which the inner source lies. The
// kernel's VXLAN takes frames from anyone who can reach the port; this is where ours differs.
import type { DropReason } from '../drop-reason.ts'
import { encodeForwardingTable, ForwardingTable, NO_ENTRY } from '../forwarding/forwarding-table.ts'
import type { StepSink } from '../step.ts'
import type { Prefix } from '../wire/prefix.ts'
import type { InnerPacket } from './inner-packet.ts'
import type { Offenders } from './offenders.ts'
import type { OwnSubnets } from './own-subnets.ts'
import { readAddress } from './read-address.ts'
import type { EngineSettings, SourceCheckMode } from './settings.ts'

/** Words of the longest address. */
const WORDS = 4

export class SourceCheck {
  sink: StepSink | null = null
  readonly #mode: SourceCheckMode
  readonly #own: OwnSubnets
  readonly #offenders: Offenders
  /** What lease holders forward for others. A table for its look-up alone: nothing is sent by it. */
  readonly #allowed: ForwardingTable
  #table: ForwardingTable
  /** The pair that was right last time is right again until the table changes. Signed, so that nothing is boxed. */
  #lastOuter = 0
  #lastVersion = 0
  readonly #lastInner = new Int32Array(WORDS)

  constructor(
    settings: Pick<EngineSettings, 'sourceCheck' | 'sourceAllow'>,
    own: OwnSubnets,
    table: ForwardingTable,
    offenders: Offenders,
  ) {
    this.#mode = settings.sourceCheck
    this.#allowed = tableOf(settings.sourceAllow ?? [])
    this.#offenders = offenders
    this.#own = own
    this.#table = table
  }

  replaceTable(table: ForwardingTable): void {
    this.#table = table
    this.#lastVersion = 0
  }

  /** Null when the packet that came from `outerSource`, a signed number (see outer-addresses.ts), may pass. */
  check(id: number, view: DataView, packet: InnerPacket, outerSource: number): DropReason | null {
    if (this.#mode === 'off') return null
    const reason = this.#judge(id, view, packet, outerSource)
    if (reason !== null) this.#offenders.note(view, packet, outerSource, reason)
    return reason
  }

  #judge(id: number, view: DataView, packet: InnerPacket, outerSource: number): DropReason | null {
    if (!this.#own.containsDestination(view, packet)) return 'inner-destination-foreign'
    if (this.sink === null && this.#isRemembered(view, packet, outerSource)) return null
    const entry = lookupSource(this.#table, view, packet)
    if (this.sink !== null) this.#trace(this.sink, id, view, packet, entry)
    const holds = entry !== NO_ENTRY && this.#table.peer(entry) === outerSource
    if (!holds) {
      if (this.#table.peers.indexOf(outerSource) === NO_ENTRY) return 'unknown-peer'
      const admitted = this.#mode === 'peer' || lookupSource(this.#allowed, view, packet) !== NO_ENTRY
      if (!admitted) return 'inner-source-spoofed'
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
    const source = readAddress(view, packet.version, packet.addressesAt)
    const found = entry === NO_ENTRY ? null : this.#table.entry(entry)
    sink.step({ kind: 'source-check', id, source, generation: this.#table.generation, entry: found })
  }
}

function lookupSource(table: ForwardingTable, view: DataView, packet: InnerPacket): number {
  return packet.version === 4
    ? table.lookup(view.getInt32(packet.addressesAt))
    : table.lookupIpv6(view, packet.addressesAt)
}

function tableOf(prefixes: readonly Prefix[]): ForwardingTable {
  const vtep = { underlayAddress: 0, port: 0, mac: 0, vni: 0 }
  const entries = prefixes.map((prefix) => ({ prefix, vtep }))
  return new ForwardingTable(encodeForwardingTable(entries, 0))
}
