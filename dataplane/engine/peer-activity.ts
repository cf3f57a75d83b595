// What passed between this node and each of its peers, and when last: cells in shared memory, beside the forwarding
// table whose peers they are of. One writer (the engine that forwards by that table), readable by any thread. Written
// once a message or train, not once a packet. Cells are 64-bit floats, as counters are.
import type { ForwardingTable } from '../forwarding/forwarding-table.ts'
import type { UnderlayAddress } from '../forwarding/remote-vtep.ts'

const SENT_PACKETS = 0
const SENT_BYTES = 1
const LAST_SENT = 2
const RECEIVED_PACKETS = 3
const RECEIVED_BYTES = 4
const LAST_RECEIVED = 5
const PATH_LIMIT = 6
const CELLS = 7
/** Of a cell's peer: there is none. */
const NONE = -1

/** Sums since the peer is known. Bytes are those of inner packets. Times by the engine's clock in ms, 0 for never. */
export interface PeerTraffic {
  readonly sentPackets: number
  readonly sentBytes: number
  readonly lastSentMs: number
  /** Only what passed the source check. A super-packet of a kernel next door counts as one. */
  readonly receivedPackets: number
  readonly receivedBytes: number
  readonly lastReceivedMs: number
}

/** Memory for the cells of a table's peers. */
export function activityMemory(peers: number): SharedArrayBuffer {
  return new SharedArrayBuffer(peers * CELLS * 8)
}

/** Takes notes for one engine. */
export class PeerActivity {
  readonly #nowMs: () => number
  #table: ForwardingTable
  #cells: Float64Array
  #present = 0
  /** The peer of the last note is often that of the next. A signed number. */
  #lastNumber = 0
  #lastCell = NONE

  /** `nowMs`: any origin but a positive value. */
  constructor(nowMs: () => number, table: ForwardingTable) {
    this.#nowMs = nowMs
    this.#table = table
    this.#cells = new Float64Array(activityMemory(table.peers.count))
  }

  /** Notes what passes by this table from now on, in memory for its peers. */
  replaceTable(table: ForwardingTable, memory: SharedArrayBuffer): void {
    this.#table = table
    this.#cells = new Float64Array(memory)
    this.#lastNumber = 0
    this.#lastCell = NONE
  }

  /** Looks at the clock, once a run: what it gives is boxed, and a look for each send would be felt as garbage. */
  look(): void {
    this.#present = this.#nowMs()
  }

  /** `number` is the peer's, signed (see outer-addresses.ts). What is no peer's is not noted. */
  sent(number: number, packets: number, bytes: number): void {
    const cell = this.#cellOf(number)
    if (cell === NONE) return
    const cells = this.#cells
    cells[cell + SENT_PACKETS]! += packets
    cells[cell + SENT_BYTES]! += bytes
    cells[cell + LAST_SENT] = this.#present
  }

  received(number: number, packets: number, bytes: number): void {
    const cell = this.#cellOf(number)
    if (cell === NONE) return
    const cells = this.#cells
    cells[cell + RECEIVED_PACKETS]! += packets
    cells[cell + RECEIVED_BYTES]! += bytes
    cells[cell + LAST_RECEIVED] = this.#present
  }

  /** Notes how large an inner packet the way to the peer takes, in bytes; 0 for no limit. */
  limit(number: number, bytes: number): void {
    const cell = this.#cellOf(number)
    if (cell !== NONE) this.#cells[cell + PATH_LIMIT] = bytes
  }

  /** No peer has a limit. */
  forgetLimits(): void {
    for (let at = PATH_LIMIT; at < this.#cells.length; at += CELLS) this.#cells[at] = 0
  }

  #cellOf(number: number): number {
    if (number !== this.#lastNumber) {
      const peer = this.#table.peers.indexOf(number)
      this.#lastNumber = number
      this.#lastCell = peer === NONE ? NONE : peer * CELLS
    }
    return this.#lastCell
  }
}

/** Of all peers that nothing passed: most of ten thousand, looked at each second. */
const NOTHING: PeerTraffic = Object.freeze({
  sentPackets: 0,
  sentBytes: 0,
  lastSentMs: 0,
  receivedPackets: 0,
  receivedBytes: 0,
  lastReceivedMs: 0,
})

/** Adds what the cells of a table's peers hold to `total`, by underlay address. Safe on any thread. */
export function addTraffic(
  total: Map<UnderlayAddress, PeerTraffic>,
  table: ForwardingTable,
  memory: SharedArrayBuffer,
): void {
  const cells = new Float64Array(memory)
  for (const [peer, address] of table.peers.addresses().entries()) {
    const at = peer * CELLS
    add(total, address, isSilent(cells, at) ? NOTHING : trafficAt(cells, at))
  }
}

/** Largest inner packets that the ways to peers take, where that is known to be limited. Safe on any thread. */
export function pathLimits(table: ForwardingTable, memory: SharedArrayBuffer): Map<UnderlayAddress, number> {
  const cells = new Float64Array(memory)
  const limits = new Map<UnderlayAddress, number>()
  for (let peer = 0; peer < table.peers.count; peer++) {
    const bytes = cells[peer * CELLS + PATH_LIMIT]!
    if (bytes > 0) limits.set(table.peers.address(peer), bytes)
  }
  return limits
}

/** Adds up what several engines have noted. */
export function mergeTraffic(
  total: Map<UnderlayAddress, PeerTraffic>,
  more: ReadonlyMap<UnderlayAddress, PeerTraffic>,
): void {
  for (const [address, one] of more) add(total, address, one)
}

function isSilent(cells: Float64Array, at: number): boolean {
  return cells[at + SENT_PACKETS] === 0 && cells[at + RECEIVED_PACKETS] === 0
}

function trafficAt(cells: Float64Array, at: number): PeerTraffic {
  return {
    sentPackets: cells[at + SENT_PACKETS]!,
    sentBytes: cells[at + SENT_BYTES]!,
    lastSentMs: cells[at + LAST_SENT]!,
    receivedPackets: cells[at + RECEIVED_PACKETS]!,
    receivedBytes: cells[at + RECEIVED_BYTES]!,
    lastReceivedMs: cells[at + LAST_RECEIVED]!,
  }
}

function add(total: Map<UnderlayAddress, PeerTraffic>, address: UnderlayAddress, more: PeerTraffic): void {
  const before = total.get(address)
  if (before === undefined || before === NOTHING) total.set(address, more)
  else if (more !== NOTHING) total.set(address, sumTraffic(before, more))
}

/** What passed in both accounts of one peer together. */
export function sumTraffic(one: PeerTraffic, other: PeerTraffic): PeerTraffic {
  return {
    sentPackets: one.sentPackets + other.sentPackets,
    sentBytes: one.sentBytes + other.sentBytes,
    lastSentMs: Math.max(one.lastSentMs, other.lastSentMs),
    receivedPackets: one.receivedPackets + other.receivedPackets,
    receivedBytes: one.receivedBytes + other.receivedBytes,
    lastReceivedMs: Math.max(one.lastReceivedMs, other.lastReceivedMs),
  }
}
