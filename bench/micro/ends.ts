// The two ends of a one-way engine: a socket that takes everything and one that has always the same to give, so that
// one direction can be timed without the other.
import { gather } from '../../dataplane/io/memory/memory-device.ts'
import type { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import type { SendBatch } from '../../dataplane/io/send-batch.ts'
import type { UnderlaySocket } from '../../dataplane/io/underlay-socket.ts'
import type { PacketMemory } from '../../dataplane/memory/packet-memory.ts'

/** A datagram, or a train of equal-sized ones (`segmentSize` above 0). */
export interface Datagram {
  readonly bytes: Uint8Array
  readonly segmentSize: number
}

/** Sends nothing anywhere; remembers the first batch. */
export class SinkSocket implements UnderlaySocket {
  readonly maxSegments = 63
  readonly first: Datagram[] = []
  readonly #memory: PacketMemory

  constructor(memory: PacketMemory) {
    this.#memory = memory
  }

  receive(): number {
    return 0
  }

  send(batch: SendBatch): void {
    if (this.first.length > 0) return
    for (let message = 0; message < batch.count; message++) {
      const bytes = gather(this.#memory, batch.iovecAt(message), batch.iovecCount[message]!)
      this.first.push({ bytes, segmentSize: batch.segmentSize(message) })
    }
  }
}

/** Gives one datagram (or train), copied anew since the engine works in place, each time that it is armed. */
export class ReplaySocket implements UnderlaySocket {
  readonly maxSegments = 63
  readonly #memory: PacketMemory
  readonly #at: number
  readonly #length: number
  readonly #segmentSize: number
  readonly #address: number
  readonly #port: number
  #armed = false

  constructor(memory: PacketMemory, { bytes, segmentSize }: Datagram, from: { address: number; port: number }) {
    this.#memory = memory
    this.#at = memory.reserve(bytes.length)
    this.#length = bytes.length
    this.#segmentSize = segmentSize
    this.#address = from.address
    this.#port = from.port
    memory.bytes.set(bytes, this.#at)
  }

  arm(): void {
    this.#armed = true
  }

  receive(slots: ReceiveSlots): number {
    if (!this.#armed) return 0
    this.#armed = false
    this.#memory.bytes.copyWithin(slots.at(0), this.#at, this.#at + this.#length)
    slots.length[0] = this.#length
    slots.segmentSize[0] = this.#segmentSize
    slots.address[0] = this.#address
    slots.port[0] = this.#port
    slots.tos[0] = 0
    slots.truncated[0] = 0
    return 1
  }

  send(): void {}
}
