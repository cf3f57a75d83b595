// A UDP socket without a kernel: sockets of one MemoryUnderlay reach each other by address. All share one packet
// memory, so a datagram is copied once, inside it, and nothing is allocated per packet.
import type { PacketMemory } from '../../memory/packet-memory.ts'
import { EAGAIN, EHOSTUNREACH, EMSGSIZE } from '../errno.ts'
import { type ReceiveSlots, SLOT_BYTES } from '../receive-slots.ts'
import { MAX_DATAGRAM_BYTES, type SendBatch } from '../send-batch.ts'
import type { UnderlaySocket } from '../underlay-socket.ts'

export interface MemorySocketOptions {
  /** Unsigned 32-bit address and UDP port of this end. */
  readonly address: number
  readonly port: number
  /** Trains stay together as with UDP_GRO (default), or arrive datagram by datagram. */
  readonly receivesMerged?: boolean
  /** Datagrams (or trains) that may wait to be received. */
  readonly queueLength?: number
  readonly maxSegments?: number
  /** Source ports: those from `port` on. 1 by default. */
  readonly senders?: number
}

const DEFAULT_QUEUE = 64
const DEFAULT_SEGMENTS = 63

/** The network between sockets: delivers by address, at once, in order. */
export class MemoryUnderlay {
  readonly memory: PacketMemory
  /** By address as a signed number: an unsigned one above 2^31 is boxed on its way into a call. */
  readonly #sockets = new Map<number, MemorySocket>()

  constructor(memory: PacketMemory) {
    this.memory = memory
  }

  open(options: MemorySocketOptions): MemorySocket {
    const socket = new MemorySocket(this, options)
    this.#sockets.set(options.address | 0, socket)
    return socket
  }

  socketAt(address: number): MemorySocket | undefined {
    return this.#sockets.get(address | 0)
  }
}

export class MemorySocket implements UnderlaySocket {
  readonly maxSegments: number
  readonly senders: number
  readonly #underlay: MemoryUnderlay
  readonly #memory: PacketMemory
  readonly #address: number
  readonly #port: number
  readonly #merges: boolean
  readonly #capacity: number
  readonly #ring: number
  readonly #length: Uint32Array
  readonly #segmentSize: Uint32Array
  readonly #source: Uint32Array
  readonly #sourcePort: Uint16Array
  readonly #tos: Uint8Array
  #head = 0
  #waiting = 0
  #overflowed = 0

  constructor(underlay: MemoryUnderlay, options: MemorySocketOptions) {
    this.#underlay = underlay
    this.#memory = underlay.memory
    this.#address = options.address
    this.#port = options.port
    this.#merges = options.receivesMerged ?? true
    this.maxSegments = options.maxSegments ?? DEFAULT_SEGMENTS
    this.senders = options.senders ?? 1
    this.#capacity = options.queueLength ?? DEFAULT_QUEUE
    this.#ring = underlay.memory.reserve(this.#capacity * SLOT_BYTES)
    this.#length = new Uint32Array(this.#capacity)
    this.#segmentSize = new Uint32Array(this.#capacity)
    this.#source = new Uint32Array(this.#capacity)
    this.#sourcePort = new Uint16Array(this.#capacity)
    this.#tos = new Uint8Array(this.#capacity)
  }

  /** Datagrams (or trains) that wait to be received. */
  get waiting(): number {
    return this.#waiting
  }

  receive(slots: ReceiveSlots): number {
    const { first } = slots
    const count = Math.min(slots.capacity - first, this.#waiting)
    for (let slot = first; slot < first + count; slot++) {
      const from = this.#head
      const at = this.#ring + from * SLOT_BYTES
      this.#memory.bytes.copyWithin(slots.at(slot), at, at + this.#length[from]!)
      slots.length[slot] = this.#length[from]!
      slots.segmentSize[slot] = this.#segmentSize[from]!
      slots.address[slot] = this.#source[from]!
      slots.port[slot] = this.#sourcePort[from]!
      slots.tos[slot] = this.#tos[from]!
      slots.truncated[slot] = 0
      this.#head = (from + 1) % this.#capacity
      this.#waiting -= 1
    }
    slots.overflowed = this.#overflowed
    return count
  }

  send(batch: SendBatch): void {
    for (let message = 0; message < batch.count; message++) {
      const peer = this.#underlay.socketAt(batch.address[message]! | 0)
      if (batch.bytes[message]! > MAX_DATAGRAM_BYTES) batch.errno[message] = EMSGSIZE
      else if (peer === undefined) batch.errno[message] = EHOSTUNREACH
      else if (!peer.#hasRoomFor(batch, message)) batch.errno[message] = EAGAIN
      else peer.#take(batch, message, this.#address, this.#port + batch.sender[message]!)
    }
  }

  /**
   * Puts one datagram (or a train of them) into the queue as if it had come from there: for tests that send what no
   * engine would. @throws RangeError when it does not fit a slot
   */
  deliver(
    datagram: Uint8Array,
    source: number,
    options: { readonly tos?: number; readonly segmentSize?: number } = {},
  ): void {
    if (datagram.length > SLOT_BYTES) throw new RangeError(`a datagram of ${datagram.length} bytes`)
    if (this.#waiting === this.#capacity) {
      this.#overflowed += 1
      return
    }
    const slot = this.#claim(datagram.length, options.segmentSize ?? 0, source, this.#port, options.tos ?? 0)
    this.#memory.bytes.set(datagram, slot)
  }

  #hasRoomFor(batch: SendBatch, message: number): boolean {
    const datagrams = this.#merges ? 1 : batch.packets[message]!
    return this.#waiting + datagrams <= this.#capacity
  }

  #take(batch: SendBatch, message: number, source: number, port: number): void {
    const tos = batch.tos[message]!
    const total = batch.bytes[message]!
    const frame = batch.frameBytes[message]!
    const piece = this.#merges ? total : frame
    let left = 0
    let to = 0
    let taken = 0
    const iovecs = batch.iovecAt(message)
    for (let index = 0; index < batch.iovecCount[message]!; index++) {
      let at = this.#memory.iovecAt(iovecs, index)
      let length = this.#memory.iovecLength(iovecs, index)
      while (length > 0) {
        if (left === 0) {
          left = Math.min(piece, total - taken)
          const segmentSize = this.#merges ? batch.segmentSize(message) : 0
          to = this.#claim(left, segmentSize, source, port, tos)
        }
        const now = Math.min(left, length)
        this.#memory.bytes.copyWithin(to, at, at + now)
        at += now
        to += now
        left -= now
        length -= now
        taken += now
      }
    }
  }

  /** Next free place of the ring, marked as taken; returns where its bytes go. */
  #claim(length: number, segmentSize: number, source: number, port: number, tos: number): number {
    const slot = (this.#head + this.#waiting) % this.#capacity
    this.#waiting += 1
    this.#length[slot] = length
    this.#segmentSize[slot] = segmentSize
    this.#source[slot] = source
    this.#sourcePort[slot] = port
    this.#tos[slot] = tos
    return this.#ring + slot * SLOT_BYTES
  }
}
