// A message that the kernel will not cut: sent datagram by datagram, from the same bytes, in the same order. In use
// where UDP_SEGMENT has been refused at work; slower, never lossy.
import { IOVEC_BYTES, type PacketMemory } from '../../memory/packet-memory.ts'
import type { SendBatch } from '../send-batch.ts'
import { MessageHeaders } from './message-header.ts'

/** Datagrams prepared at a time. */
const DATAGRAMS = 64
/** A frame lies in at most two pieces; those that frames share are cut. */
const PIECES_PER_DATAGRAM = 2

export class SingleSends {
  readonly headers: MessageHeaders
  /** Datagrams prepared now. */
  count = 0
  readonly #memory: PacketMemory
  readonly #iovecs: number
  readonly #bytes = new Uint32Array(DATAGRAMS)
  /** Where the next datagram starts: an iovec of the message, and a byte in it. */
  #iovec = 0
  #offset = 0
  #bytesLeft = 0

  constructor(memory: PacketMemory) {
    this.#memory = memory
    this.headers = new MessageHeaders(memory, DATAGRAMS)
    this.#iovecs = memory.reserve(DATAGRAMS * PIECES_PER_DATAGRAM * IOVEC_BYTES)
  }

  begin(batch: SendBatch, message: number): void {
    this.#iovec = 0
    this.#offset = 0
    this.#bytesLeft = batch.bytes[message]!
  }

  bytesOf(datagram: number): number {
    return this.#bytes[datagram]!
  }

  /** Prepares the next datagrams of the message, as many as there is room for; false when none are left. */
  next(batch: SendBatch, message: number): boolean {
    let used = 0
    this.count = 0
    while (this.#bytesLeft > 0 && this.count < DATAGRAMS) {
      const datagram = this.count++
      const length = Math.min(batch.frameBytes[message]!, this.#bytesLeft)
      const pieces = this.#gather(batch.iovecAt(message), length, used)
      this.headers.setIovecs(datagram, this.#iovecs + used * IOVEC_BYTES, pieces)
      this.headers.setDestination(datagram, batch.address[message]!, batch.port[message]!)
      this.headers.setSendControl(datagram, 0, batch.tos[message]!)
      this.#bytes[datagram] = length
      this.#bytesLeft -= length
      used += pieces
    }
    return this.count > 0
  }

  /** The next `length` bytes of the message as iovecs from `first` on; returns how many. */
  #gather(iovecs: number, length: number, first: number): number {
    const memory = this.#memory
    let pieces = 0
    let left = length
    while (left > 0) {
      const available = memory.iovecLength(iovecs, this.#iovec) - this.#offset
      const now = Math.min(available, left)
      if (now > 0)
        memory.setIovec(this.#iovecs, first + pieces++, memory.iovecAt(iovecs, this.#iovec) + this.#offset, now)
      left -= now
      this.#offset += now
      if (now < available) continue
      this.#iovec += 1
      this.#offset = 0
    }
    return pieces
  }
}
