// Datagrams on their way out: messages of one or more equal-sized frames, gathered from packet memory by iovecs. The
// engine fills it, a socket sends it. Frames of one size from one source port to one peer share a message, which leaves
// in one UDP_SEGMENT send: this is what makes small packets fast, not only bulk TCP. Flows of several source ports may
// come in turns: each port has a message that still grows. Order within a flow, which has one port, never changes.
import { IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'

const MESSAGES = 64
/**
 * Iovecs of one message: two for each of the 127 frames that one may have at most (the kernel's limit is UIO_MAXIOV,
 * 1024), and some that nobody uses, so that the first ones of all messages do not meet in one set of a core's cache.
 */
const MAX_IOVECS = 256
const IOVECS_APART = MAX_IOVECS + 4
/** Messages that may grow at a time: each has a slot, by source port and peer. A power of two. */
const SLOTS = 64
const NO_MESSAGE = 255
/**
 * UDP payload that one message may carry. 65,507 is the protocol's limit, but a packet at or above the device's
 * gso_max_size is cut in software before the driver, so the batch stays below.
 */
export const MAX_MESSAGE_BYTES = 65000
/** Largest UDP payload over IPv4: 65,535 less the IP and UDP headers. Beyond it a send fails with EMSGSIZE. */
export const MAX_DATAGRAM_BYTES = 65507

export class SendBatch {
  /** Offset of the iovec array in packet memory. */
  readonly iovecs: number
  readonly address = new Uint32Array(MESSAGES)
  readonly port = new Uint16Array(MESSAGES)
  /** Outer TOS byte: only its ECN bits are ever set. */
  readonly tos = new Uint8Array(MESSAGES)
  /** Which of the socket's source ports it leaves from, see UnderlaySocket.senders. */
  readonly sender = new Uint16Array(MESSAGES)
  /** Bytes of each frame of the message but the last, which may be shorter. */
  readonly frameBytes = new Uint32Array(MESSAGES)
  readonly packets = new Uint32Array(MESSAGES)
  readonly bytes = new Uint32Array(MESSAGES)
  readonly firstIovec = new Uint32Array(MESSAGES)
  readonly iovecCount = new Uint32Array(MESSAGES)
  /** What became of each message: 0 or an errno. Written by the socket. */
  readonly errno = new Int32Array(MESSAGES)
  /**
   * Frames, and their bytes, that left all the same although the message has an errno: only where the socket had to
   * send it frame by frame. Written by the socket.
   */
  readonly sentPackets = new Uint32Array(MESSAGES)
  readonly sentBytes = new Uint32Array(MESSAGES)
  /** Messages sent frame by frame since the engine counted last, because the kernel refused them as they were. */
  resent = 0
  /** 1 when the socket has given up segmented sends since the engine counted last. */
  givenUp = 0
  /** Number of the first message, for sockets that tell later what became of it. Written by the engine. */
  firstSerial = 0
  count = 0

  readonly #memory: PacketMemory
  readonly #maxSegments: number
  /**
   * The latest message of each slot while it may still grow, else {@link NO_MESSAGE}: once a short last frame is in, or
   * when it must stay alone. Only the latest: what is sent later for the same port and peer must not overtake it.
   */
  readonly #open = new Uint8Array(SLOTS).fill(NO_MESSAGE)
  readonly #slot = new Uint8Array(MESSAGES)
  /** The message that the last frame is part of. */
  #current = 0
  /** Where the last frame's bytes end, 0 when nothing may be put behind them. */
  #end = 0

  constructor(memory: PacketMemory, maxSegments: number) {
    this.#memory = memory
    this.#maxSegments = maxSegments
    this.iovecs = memory.reserve(MESSAGES * IOVECS_APART * IOVEC_BYTES)
    for (let message = 0; message < MESSAGES; message++) this.firstIovec[message] = message * IOVECS_APART
  }

  /**
   * Makes room for one frame of `length` bytes: at the end of the message that grows for its port and peer when it may
   * join, else as a new one. `alone` keeps it by itself (a datagram that the underlay must fragment cannot be part of a
   * segmented send); frames of different senders never share a message.
   * Follow with {@link add} for its bytes. Returns false when the batch is full: send it, then ask again.
   */
  frame(address: number, port: number, tos: number, length: number, alone: boolean, sender = 0): boolean {
    const slot = (sender + (address & 0xff) * 17) & (SLOTS - 1)
    const open = this.#open[slot]!
    if (open !== NO_MESSAGE && !alone && this.#fits(open, address, port, tos, length, sender)) {
      this.packets[open]! += 1
      this.bytes[open]! += length
      if (length !== this.frameBytes[open]) this.#open[slot] = NO_MESSAGE
      this.#current = open
      return true
    }
    if (this.count === MESSAGES) return false
    const next = this.count++
    this.address[next] = address
    this.port[next] = port
    this.tos[next] = tos
    this.sender[next] = sender
    this.frameBytes[next] = length
    this.packets[next] = 1
    this.bytes[next] = length
    this.iovecCount[next] = 0
    this.errno[next] = 0
    this.sentPackets[next] = 0
    this.sentBytes[next] = 0
    this.#slot[next] = slot
    this.#open[slot] = alone ? NO_MESSAGE : next
    this.#current = next
    return true
  }

  /**
   * One more frame like the last one, of `length` bytes at `at`, for the same port and peer with the same `tos`. True
   * when it has joined the last one's message, its bytes directly behind; else nothing has changed, and {@link frame}
   * is to be asked.
   */
  repeat(at: number, length: number): boolean {
    const message = this.#current
    if (
      at !== this.#end ||
      this.#open[this.#slot[message]!] !== message ||
      length !== this.frameBytes[message] ||
      this.packets[message]! >= this.#maxSegments ||
      this.bytes[message]! + length > MAX_MESSAGE_BYTES
    ) {
      return false
    }
    this.packets[message]! += 1
    this.bytes[message]! += length
    this.#memory.growIovec(this.iovecs, this.firstIovec[message]! + this.iovecCount[message]! - 1, length)
    this.#end = at + length
    return true
  }

  #fits(open: number, address: number, port: number, tos: number, length: number, sender: number): boolean {
    return (
      length <= this.frameBytes[open]! &&
      (this.address[open]! | 0) === (address | 0) &&
      this.packets[open]! < this.#maxSegments &&
      this.bytes[open]! + length <= MAX_MESSAGE_BYTES &&
      this.iovecCount[open]! + 2 <= MAX_IOVECS &&
      this.port[open] === port &&
      this.tos[open] === tos &&
      this.sender[open] === sender
    )
  }

  /**
   * Adds bytes of packet memory to the frame made last; at most two pieces per frame. Bytes stay the engine's until the
   * send returns.
   */
  add(at: number, length: number): void {
    const message = this.#current
    const count = this.iovecCount[message]!
    this.#end = at + length
    const next = this.firstIovec[message]! + count
    if (count > 0) {
      const end = this.#memory.iovecAt(this.iovecs, next - 1) + this.#memory.iovecLength(this.iovecs, next - 1)
      if (end === at) {
        this.#memory.growIovec(this.iovecs, next - 1, length)
        return
      }
    }
    this.#memory.setIovec(this.iovecs, next, at, length)
    this.iovecCount[message] = count + 1
  }

  /**
   * Adds two pieces that do not follow each other, nor what is there already: the header and the payload of a frame.
   */
  addPair(at: number, length: number, nextAt: number, nextLength: number): void {
    const message = this.#current
    const next = this.firstIovec[message]! + this.iovecCount[message]!
    this.#memory.setIovec(this.iovecs, next, at, length)
    this.#memory.setIovec(this.iovecs, next + 1, nextAt, nextLength)
    this.iovecCount[message]! += 2
    this.#end = 0
  }

  /** The message that the frame made last is part of. */
  get current(): number {
    return this.#current
  }

  /** Offset in packet memory of the message's first iovec. */
  iovecAt(message: number): number {
    return this.iovecs + this.firstIovec[message]! * IOVEC_BYTES
  }

  /** Size that the kernel shall cut the message at, 0 when it is a single datagram. */
  segmentSize(message: number): number {
    return this.packets[message]! > 1 ? this.frameBytes[message]! : 0
  }

  /** Copies the bytes of a message, piece by piece, to `target` from `at` on: for sockets that cannot gather. */
  copy(message: number, target: Uint8Array, at: number): void {
    const memory = this.#memory
    const first = this.firstIovec[message]!
    let to = at
    for (let index = first; index < first + this.iovecCount[message]!; index++) {
      const from = memory.iovecAt(this.iovecs, index)
      const length = memory.iovecLength(this.iovecs, index)
      target.set(memory.bytes.subarray(from, from + length), to)
      to += length
    }
  }

  /** Whether the last message may still grow: one more frame of the same kind would join it. */
  get isOpen(): boolean {
    const last = this.count - 1
    return last >= 0 && this.#open[this.#slot[last]!] === last
  }

  /**
   * Runs `send` on all messages but the last and clears them; the last one stays as the only message, still open, and
   * its iovecs where they are. False when there is only one.
   */
  sendAllButLast(send: () => void): boolean {
    const last = this.count - 1
    if (last === 0) return false
    this.count = last
    send()
    this.address[0] = this.address[last]!
    this.port[0] = this.port[last]!
    this.tos[0] = this.tos[last]!
    this.sender[0] = this.sender[last]!
    this.frameBytes[0] = this.frameBytes[last]!
    this.packets[0] = this.packets[last]!
    this.bytes[0] = this.bytes[last]!
    const iovecs = this.firstIovec[last]!
    this.firstIovec[last] = this.firstIovec[0]!
    this.firstIovec[0] = iovecs
    this.iovecCount[0] = this.iovecCount[last]!
    this.errno[0] = 0
    this.sentPackets[0] = 0
    this.sentBytes[0] = 0
    this.#slot[0] = this.#slot[last]!
    this.#open[this.#slot[0]!] = 0
    this.#current = 0
    this.#end = 0
    this.count = 1
    return true
  }

  clear(): void {
    for (let message = 0; message < this.count; message++) this.#open[this.#slot[message]!] = NO_MESSAGE
    this.count = 0
    this.#end = 0
  }
}
