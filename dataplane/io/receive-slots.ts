// Datagrams on their way in: a fixed number of slots in packet memory, each large enough for any UDP payload or for a
// train of datagrams that the kernel merged (UDP_GRO). The engine owns them, a socket fills them.
import type { PacketMemory } from '../memory/packet-memory.ts'

/** Room per slot: any UDP payload (65,507 bytes at most), on a 64 KiB stride. */
export const SLOT_BYTES = 65536

export class ReceiveSlots {
  readonly capacity: number
  readonly length: Uint32Array
  /** Size at which a merged train must be cut, 0 for a single datagram. */
  readonly segmentSize: Uint32Array
  /** Who sent it: an IPv4 address, or the number that stands for one of IPv6 (see SocketAddresses). */
  readonly address: Uint32Array
  readonly port: Uint16Array
  /** TOS byte of the outer header; one value for a whole train, since the kernel never merges different ones. */
  readonly tos: Uint8Array
  /** 1 when the datagram was longer than its slot or its control data was lost (MSG_TRUNC, MSG_CTRUNC). */
  readonly truncated: Uint8Array
  /** Datagrams that the socket's full queue has lost since it was opened (SO_RXQ_OVFL). Kept by the socket. */
  overflowed = 0
  /** Where the next receive starts: slots before it hold bytes that are still needed. */
  first = 0
  readonly #slots: number

  constructor(memory: PacketMemory, capacity: number) {
    this.capacity = capacity
    this.length = new Uint32Array(capacity)
    this.segmentSize = new Uint32Array(capacity)
    this.address = new Uint32Array(capacity)
    this.port = new Uint16Array(capacity)
    this.tos = new Uint8Array(capacity)
    this.truncated = new Uint8Array(capacity)
    this.#slots = memory.reserve(capacity * SLOT_BYTES)
  }

  at(slot: number): number {
    return this.#slots + slot * SLOT_BYTES
  }
}
