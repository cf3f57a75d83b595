// Counters: always on, one writer per cell, readable by any thread. Cells are 64-bit floats in shared memory: exact
// up to 2^53 and never torn on the 64-bit machines that run us. Names are the ones of metrics and docs.
import { DROP_REASON_NAMES, type DropReason } from '../drop-reason.ts'
import type { Direction } from '../step.ts'

const PLAIN = [
  // A super-packet counts as the packets it stands for; bytes are those of the inner packets (outbound) or of the
  // datagrams (inbound). For each direction: read = passed + dropped, in packets and in bytes.
  'outbound.packets.read',
  'outbound.bytes.read',
  'outbound.packets.passed',
  'outbound.bytes.passed',
  'inbound.packets.read',
  'inbound.bytes.read',
  'inbound.packets.passed',
  'inbound.bytes.passed',
  // what it took
  'outbound.calls.read',
  'outbound.calls.send',
  'outbound.messages.sent',
  // packets in all messages, sent or not, and how many messages had at most so many of them (and more than the one
  // before)
  'outbound.messages.packets',
  'outbound.messages.up-to-1',
  'outbound.messages.up-to-2',
  'outbound.messages.up-to-4',
  'outbound.messages.up-to-8',
  'outbound.messages.up-to-16',
  'outbound.messages.up-to-32',
  'outbound.messages.up-to-64',
  'outbound.messages.up-to-128',
  // sent again frame by frame, since the kernel refused them as segmented sends
  'outbound.messages.resent',
  'outbound.super-packets',
  'outbound.foreign-source',
  'inbound.calls.receive',
  'inbound.calls.write',
  'inbound.super-packets',
  // written again packet by packet, since the kernel refused them joined
  'inbound.super-packets.refused',
  'inbound.checksum.partial',
  'inbound.checksum.bad',
  // completed here, since the kernel refused them open
  'inbound.checksum.refused',
  'icmp.sent',
  'icmp.suppressed',
  'icmp.failed',
  // larger than the way to the peer takes whole: left for the underlay to fragment
  'outbound.oversized',
  // what the kernel says of the way to a peer where DF is set: smaller or larger than before, or absurd
  'path-mtu.lowered',
  'path-mtu.raised',
  'path-mtu.ignored',
  'socket.overflowed',
  // written by the main thread: threads that died of an error and were replaced
  'worker.restarts',
  // features given up for good because the kernel refused them at work
  'downgrade.udp-gso',
  'downgrade.tun-gso-tcp4',
  'downgrade.tun-gso-tcp6',
  'downgrade.tun-gso-udp',
  'downgrade.tun-short-tail',
  'downgrade.tun-checksum',
] as const

export type CounterName = (typeof PLAIN)[number]

const INDEX = new Map<string, number>(PLAIN.map((name, index) => [name, index]))
const REASONS = new Map<DropReason, number>(DROP_REASON_NAMES.map((reason, index) => [reason, index]))
const DIRECTIONS: Record<Direction, number> = { outbound: 0, inbound: 1 }
/** Per direction and reason: packets, bytes. */
const DROP_CELLS = DROP_REASON_NAMES.length * 2
const CELLS = PLAIN.length + 2 * DROP_CELLS

/** Cell of a counter; resolve once, at module load, and use the number on the hot path. */
export function cellOf(name: CounterName): number {
  return INDEX.get(name)!
}

/** Sizes, in packets, up to which messages are counted together. */
export const MESSAGE_SIZES = [1, 2, 4, 8, 16, 32, 64, 128] as const

const SMALLEST_MESSAGES = cellOf('outbound.messages.up-to-1')

/** Cell that counts messages of so many packets, 1 to 128. */
export function messageSizeCellOf(packets: number): number {
  return SMALLEST_MESSAGES + 32 - Math.clz32(packets - 1)
}

/** First of the two cells (packets, bytes) of a drop reason. */
function dropCellOf(direction: Direction, reason: DropReason): number {
  return PLAIN.length + DIRECTIONS[direction] * DROP_CELLS + REASONS.get(reason)! * 2
}

export class Counters {
  readonly buffer: SharedArrayBuffer
  readonly cells: Float64Array

  /** Counters in new shared memory, or in memory that another thread handed over. */
  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(CELLS * 8)) {
    this.buffer = buffer
    this.cells = new Float64Array(buffer)
  }

  add(cell: number, amount: number): void {
    this.cells[cell]! += amount
  }

  /** Counts packets that were not passed on, and their bytes. */
  drop(direction: Direction, reason: DropReason, packets: number, bytes: number): void {
    const cell = dropCellOf(direction, reason)
    this.cells[cell]! += packets
    this.cells[cell + 1]! += bytes
  }

  get(name: CounterName): number {
    return this.cells[cellOf(name)]!
  }

  dropped(direction: Direction, reason: DropReason): { packets: number; bytes: number } {
    const cell = dropCellOf(direction, reason)
    return { packets: this.cells[cell]!, bytes: this.cells[cell + 1]! }
  }

  /** Every counter by name; drops as `outbound.dropped.no-route` and `outbound.dropped-bytes.no-route`. */
  snapshot(): Record<string, number> {
    const all: Record<string, number> = {}
    for (const name of PLAIN) all[name] = this.get(name)
    for (const direction of ['outbound', 'inbound'] as const) {
      for (const reason of DROP_REASON_NAMES) {
        const { packets, bytes } = this.dropped(direction, reason)
        all[`${direction}.dropped.${reason}`] = packets
        all[`${direction}.dropped-bytes.${reason}`] = bytes
      }
    }
    return all
  }

  /** What was read minus what was passed on and what was dropped: zero in every direction, always. */
  imbalance(): { packets: number; bytes: number } {
    let packets = 0
    let bytes = 0
    for (const direction of ['outbound', 'inbound'] as const) {
      packets += this.get(`${direction}.packets.read`) - this.get(`${direction}.packets.passed`)
      bytes += this.get(`${direction}.bytes.read`) - this.get(`${direction}.bytes.passed`)
      for (const reason of DROP_REASON_NAMES) {
        const dropped = this.dropped(direction, reason)
        packets -= dropped.packets
        bytes -= dropped.bytes
      }
    }
    return { packets, bytes }
  }
}
