// The main thread's account of what passed between a worker and its peers: the memory of the table in force, and the
// sums of those before it, so that a new table forgets nothing of peers that stay.
import { activityMemory, addTraffic, mergeTraffic, type PeerTraffic, pathLimits } from '../engine/peer-activity.ts'
import { ForwardingTable } from '../forwarding/forwarding-table.ts'
import type { UnderlayAddress } from '../forwarding/remote-vtep.ts'

interface Page {
  readonly table: ForwardingTable
  readonly memory: SharedArrayBuffer
}

export class PeerLedger {
  /** The last one is of the latest table; those before it may still be written to. */
  #pages: Page[] = []
  /** Of tables that no engine forwards by any more. */
  #past = new Map<UnderlayAddress, PeerTraffic>()

  /** Memory for the peers of a table that is about to be handed over. */
  open(encoded: SharedArrayBuffer): SharedArrayBuffer {
    const table = new ForwardingTable(encoded)
    const memory = activityMemory(table.peers.count)
    this.#pages.push({ table, memory })
    return memory
  }

  /** The engine forwards by the table of that generation: what was noted by earlier ones is final. */
  settle(generation: number): void {
    const latest = this.#pages.at(-1)
    if (latest === undefined) return
    for (const { table, memory } of this.#pages.filter((page) => page.table.generation < generation)) {
      addTraffic(this.#past, table, memory)
    }
    this.#pages = this.#pages.filter((page) => page.table.generation >= generation)
    keepOnly(this.#past, latest)
  }

  /** Of the latest table's peers, by underlay address. */
  traffic(): Map<UnderlayAddress, PeerTraffic> {
    const total = new Map<UnderlayAddress, PeerTraffic>()
    for (const { table, memory } of this.#pages) addTraffic(total, table, memory)
    const latest = this.#pages.at(-1)
    if (latest === undefined) return this.#past
    keepOnly(total, latest)
    mergeTraffic(total, this.#past)
    return total
  }

  /** Limits of the ways to the latest table's peers. */
  pathLimits(): Map<UnderlayAddress, number> {
    const latest = this.#pages.at(-1)
    return latest === undefined ? new Map() : pathLimits(latest.table, latest.memory)
  }
}

function keepOnly(traffic: Map<UnderlayAddress, PeerTraffic>, { table }: Page): void {
  const present = new Set(table.peers.addresses())
  for (const address of traffic.keys()) if (!present.has(address)) traffic.delete(address)
}
