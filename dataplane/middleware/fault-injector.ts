// Loss, duplication, reordering and damage between an engine and its socket, from a seed: wraps the batch interface and
// has the interface of what it wraps. For tests and the lab. Works on single frames, so a train is taken apart.
import { EMSGSIZE } from '../io/errno.ts'
import { type ReceiveSlots, SLOT_BYTES } from '../io/receive-slots.ts'
import { MAX_DATAGRAM_BYTES, SendBatch } from '../io/send-batch.ts'
import type { UnderlaySocket } from '../io/underlay-socket.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'

/** Probabilities per frame, 0 to 1. */
export interface Faults {
  readonly loss?: number
  readonly duplicate?: number
  /** Chance that a frame is held back until up to {@link HOLD} others have passed it. */
  readonly reorder?: number
  /** Chance that one bit of a frame is flipped. */
  readonly corrupt?: number
}

/** Frames that may be held back at once. */
const HOLD = 16

interface Held {
  readonly at: number
  length: number
  address: number
  port: number
  tos: number
  sender: number
  /** Frames that have still to pass it; -1 when the place is free. */
  wait: number
}

export class FaultInjector implements UnderlaySocket {
  readonly maxSegments: number
  readonly senders: number
  readonly #inner: UnderlaySocket
  readonly #memory: PacketMemory
  readonly #faults: Required<Faults>
  readonly #random: () => number
  readonly #out: SendBatch
  readonly #held: readonly Held[]
  readonly #scratch: number

  /** `random` gives numbers in [0, 1), from one seed for a whole run. */
  constructor(inner: UnderlaySocket, memory: PacketMemory, faults: Faults, random: () => number) {
    this.#inner = inner
    this.#memory = memory
    this.maxSegments = inner.maxSegments
    this.senders = inner.senders ?? 1
    this.#faults = { loss: 0, duplicate: 0, reorder: 0, corrupt: 0, ...faults }
    this.#random = random
    this.#out = new SendBatch(memory, 1)
    this.#scratch = memory.reserve(SLOT_BYTES)
    const place = (): Held => ({
      at: memory.reserve(SLOT_BYTES),
      length: 0,
      address: 0,
      port: 0,
      tos: 0,
      sender: 0,
      wait: -1,
    })
    this.#held = Array.from({ length: HOLD }, place)
  }

  receive(slots: ReceiveSlots): number {
    return this.#inner.receive(slots)
  }

  send(batch: SendBatch): void {
    for (let message = 0; message < batch.count; message++) {
      // As a socket would refuse it, and more than the scratch region holds.
      const fits = batch.frameBytes[message]! <= MAX_DATAGRAM_BYTES
      batch.errno[message] = fits ? 0 : EMSGSIZE
      if (fits) this.#takeApart(batch, message)
    }
  }

  /** Lets go of everything that is held back. */
  flush(): void {
    for (const held of this.#held) if (held.wait >= 0) this.#release(held)
  }

  /** Copies each frame of a message together and decides its fate. */
  #takeApart(batch: SendBatch, message: number): void {
    const iovecs = batch.iovecAt(message)
    const frame = batch.frameBytes[message]!
    let filled = 0
    for (let index = 0; index < batch.iovecCount[message]!; index++) {
      let at = this.#memory.iovecAt(iovecs, index)
      let length = this.#memory.iovecLength(iovecs, index)
      while (length > 0) {
        const now = Math.min(frame - filled, length)
        this.#memory.bytes.copyWithin(this.#scratch + filled, at, at + now)
        at += now
        length -= now
        filled += now
        if (filled < frame) continue
        this.#decide(batch, message, filled)
        filled = 0
      }
    }
    if (filled > 0) this.#decide(batch, message, filled)
  }

  #decide(batch: SendBatch, message: number, length: number): void {
    const faults = this.#faults
    for (const held of this.#held) if (held.wait >= 0 && held.wait-- === 0) this.#release(held)
    if (this.#random() < faults.loss) return
    if (this.#random() < faults.corrupt) this.#flipBit(length)
    const copies = this.#random() < faults.duplicate ? 2 : 1
    const free = this.#random() < faults.reorder ? this.#held.find((held) => held.wait < 0) : undefined
    const address = batch.address[message]!
    const port = batch.port[message]!
    const tos = batch.tos[message]!
    const sender = batch.sender[message]!
    if (free !== undefined) {
      this.#memory.bytes.copyWithin(free.at, this.#scratch, this.#scratch + length)
      Object.assign(free, { length, address, port, tos, sender, wait: Math.floor(this.#random() * HOLD) })
      if (copies === 1) return
    }
    for (let copy = free === undefined ? 0 : 1; copy < copies; copy++) {
      // A message of which a frame failed has failed, as far as its sender can be told.
      const errno = this.#send(this.#scratch, length, address, port, tos, sender)
      if (errno !== 0) batch.errno[message] = errno
    }
  }

  #flipBit(length: number): void {
    const at = this.#scratch + Math.floor(this.#random() * length)
    this.#memory.bytes[at]! ^= 1 << Math.floor(this.#random() * 8)
  }

  #release(held: Held): void {
    held.wait = -1
    this.#send(held.at, held.length, held.address, held.port, held.tos, held.sender)
  }

  /** At once: the bytes of a frame are reused for the next one. Returns 0 or an errno. */
  #send(at: number, length: number, address: number, port: number, tos: number, sender: number): number {
    this.#out.clear()
    this.#out.frame(address, port, tos, length, true, sender)
    this.#out.add(at, length)
    this.#inner.send(this.#out)
    return this.#out.errno[0]!
  }
}
