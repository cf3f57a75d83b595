// Datagrams on their way out: messages of one or more equal-sized frames, gathered from packet memory by iovecs. The
// engine fills it, a socket sends it. Frames of one size to one peer that follow each other share a message, which
// leaves in one UDP_SEGMENT send: this is what makes small packets fast, not only bulk TCP.
import { IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'

const MESSAGES = 64
const IOVECS = 2048
/** Kernel limit per message (UIO_MAXIOV, linux/uio.h). */
const MAX_IOVECS_PER_MESSAGE = 1024
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
   * Frames, and their bytes, that left all the same although the message has an errno: only where the socket had to send
   * it frame by frame. Written by the socket.
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
  #iovecsUsed = 0
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

  /** Whether the last message may still grow: false once its short last frame is in, or when it must stay alone. */
  #open = false

  constructor(memory: PacketMemory, maxSegments: number) {
    this.#memory = memory
    this.#maxSegments = maxSegments
    this.iovecs = memory.reserve(IOVECS * IOVEC_BYTES)
  }

  /**
   * Makes room for one frame of `length` bytes: at the end of the last message when it may join, else as a new one.
   * `alone` keeps it by itself (a datagram that the underlay must fragment cannot be part of a segmented send); frames
   * of different senders never share a message.
   * Follow with {@link add} for its bytes. Returns false when the batch is full: send it, then ask again.
   */
  frame(address: number, port: number, tos: number, length: number, alone: boolean, sender = 0): boolean {
    const last = this.count - 1
    if (this.#open && !alone && this.#fits(last, address, port, tos, length, sender)) {
      this.packets[last]! += 1
      this.bytes[last]! += length
      this.#open = length === this.frameBytes[last]
      return true
    }
    if (this.count === MESSAGES || this.#iovecsUsed + 2 > IOVECS) return false
    const next = this.count++
    this.address[next] = address
    this.port[next] = port
    this.tos[next] = tos
    this.sender[next] = sender
    this.frameBytes[next] = length
    this.packets[next] = 1
    this.bytes[next] = length
    this.firstIovec[next] = this.#iovecsUsed
    this.iovecCount[next] = 0
    this.errno[next] = 0
    this.sentPackets[next] = 0
    this.sentBytes[next] = 0
    this.#open = !alone
    return true
  }

  #fits(last: number, address: number, port: number, tos: number, length: number, sender: number): boolean {
    return (
      length <= this.frameBytes[last]! &&
      (this.address[last]! | 0) === (address | 0) &&
      this.packets[last]! < this.#maxSegments &&
      this.bytes[last]! + length <= MAX_MESSAGE_BYTES &&
      this.iovecCount[last]! + 2 <= MAX_IOVECS_PER_MESSAGE &&
      this.#iovecsUsed + 2 <= IOVECS &&
      this.port[last] === port &&
      this.tos[last] === tos &&
      this.sender[last] === sender
    )
  }

  /** Adds bytes of packet memory to the frame made last; at most two pieces per frame. Bytes stay the engine's until the send returns. */
  add(at: number, length: number): void {
    const last = this.count - 1
    const count = this.iovecCount[last]!
    const previous = this.#iovecsUsed - 1
    if (count > 0) {
      const end = this.#memory.iovecAt(this.iovecs, previous) + this.#memory.iovecLength(this.iovecs, previous)
      if (end === at) {
        this.#memory.growIovec(this.iovecs, previous, length)
        return
      }
    }
    this.#memory.setIovec(this.iovecs, this.#iovecsUsed++, at, length)
    this.iovecCount[last] = count + 1
  }

  /** Adds two pieces that do not follow each other, nor what is there already: the header and the payload of a frame. */
  addPair(at: number, length: number, nextAt: number, nextLength: number): void {
    const used = this.#iovecsUsed
    this.#memory.setIovec(this.iovecs, used, at, length)
    this.#memory.setIovec(this.iovecs, used + 1, nextAt, nextLength)
    this.#iovecsUsed = used + 2
    this.iovecCount[this.count - 1]! += 2
  }

  /** Offset in packet memory of the message's first iovec. */
  iovecAt(message: number): number {
    return this.iovecs + this.firstIovec[message]! * IOVEC_BYTES
  }

  /** Size that the kernel shall cut the message at, 0 when it is a single datagram. */
  segmentSize(message: number): number {
    return this.packets[message]! > 1 ? this.frameBytes[message]! : 0
  }

  /** Whether the last message may still grow: one more frame of the same kind would join it. */
  get isOpen(): boolean {
    return this.#open
  }

  /**
   * Runs `send` on all messages but the last and clears them; the last one stays as the only message, still open. Its
   * iovecs stay where they are, so the array fills up until the whole batch is cleared. False when there is only one.
   */
  sendAllButLast(send: () => void): boolean {
    const last = this.count - 1
    const iovecsUsed = this.#iovecsUsed
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
    this.firstIovec[0] = this.firstIovec[last]!
    this.iovecCount[0] = this.iovecCount[last]!
    this.errno[0] = 0
    this.sentPackets[0] = 0
    this.sentBytes[0] = 0
    this.#iovecsUsed = iovecsUsed
    this.#open = true
    this.count = 1
    return true
  }

  clear(): void {
    this.count = 0
    this.#iovecsUsed = 0
    this.#open = false
  }
}
