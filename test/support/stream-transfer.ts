// A byte stream from node A to node B in TCP super-packets, with faults on the underlay between them: a sender that
// fills a window and repeats what is missing, a receiver that puts segments in order, SHA-256 over what either of them
// saw.
import { createHash } from 'node:crypto'
import { FaultInjector, type Faults } from '../../dataplane/middleware/fault-injector.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import { enginePair, type MemoryNode, type Written } from './engine-pair.ts'
import { fromTun, superFromTun, tcpPacket, viewOf } from './packets.ts'
import { seededRandom } from './seeded-random.ts'

const MSS = 1408
const SEGMENTS_PER_WRITE = 45
const WINDOW_SEGMENTS = 32 * SEGMENTS_PER_WRITE
/** Half of it before the wrap, for the gigabyte. */
const FIRST_SEQUENCE = 2 ** 32 - 2 ** 29
/** Repeats after a number of bytes that no power of two divides, so that a misplaced segment is a wrong one. */
const PATTERN_BYTES = 7 * 1024 * 1024 - 13
/** Frames of one super-packet, their copies, and those held back, each in a place of its own. */
const QUEUE_LENGTH = 128

export interface TransferPlan {
  /** A multiple of one super-packet's payload is not needed. */
  readonly bytes: number
  readonly faults: Faults
  readonly seed: number
}

export interface TransferResult {
  readonly sent: string
  readonly received: string
  /** Segments sent again because they were missing. */
  readonly repeated: number
  /** Segments that arrived more than once. */
  readonly duplicates: number
  /** Writes into B's TUN. */
  readonly writes: number
  readonly a: MemoryNode
  readonly b: MemoryNode
}

/** Segments that arrive in any order, hashed in the right one. */
class Receiver {
  /** First segment that is missing. */
  base = 0
  duplicates = 0
  readonly hash = createHash('sha256')
  readonly #total: number
  readonly #held = new Map<number, Uint8Array>()

  constructor(total: number) {
    this.#total = total
  }

  has(segment: number): boolean {
    return segment < this.base || this.#held.has(segment)
  }

  take({ packet }: Written): void {
    const headerBytes = ipv4.HEADER_LEN + tcp.HEADER_LEN
    const sequence = tcp.getSequence(viewOf(packet), ipv4.HEADER_LEN)
    const position = (sequence - FIRST_SEQUENCE + 2 ** 32) % 2 ** 32
    if (position % MSS !== 0) throw new Error(`a segment at ${position}`)
    for (let at = headerBytes, segment = position / MSS; at < packet.length; at += MSS, segment++) {
      const payload = packet.subarray(at, at + MSS)
      if (payload.length !== Math.min(MSS, this.#total - segment * MSS)) throw new Error(`segment ${segment} is cut`)
      if (this.has(segment)) this.duplicates++
      else this.#held.set(segment, payload)
    }
    for (let next = this.#held.get(this.base); next !== undefined; next = this.#held.get(this.base)) {
      this.hash.update(next)
      this.#held.delete(this.base++)
    }
  }
}

/** Bytes `from` to `to` of a stream that repeats the pattern. */
function streamBytes(pattern: Uint8Array, from: number, to: number): Uint8Array {
  const start = from % pattern.length
  const bytes = pattern.subarray(start, start + to - from)
  if (bytes.length === to - from) return bytes
  return Uint8Array.from(Buffer.concat([bytes, pattern.subarray(0, to - from - bytes.length)]))
}

function makePattern(): Uint8Array {
  const random = seededRandom(99)
  return new Uint8Array(PATTERN_BYTES).map(() => Math.floor(random() * 256))
}

export function transfer({ bytes, faults, seed }: TransferPlan): TransferResult {
  const injectors: FaultInjector[] = []
  const { a, b } = enginePair({
    queueLength: QUEUE_LENGTH,
    wrapSocket: (socket, memory) => {
      const injector = new FaultInjector(socket, memory, faults, seededRandom(seed))
      injectors.push(injector)
      return injector
    },
  })
  const pattern = makePattern()
  const sentHash = createHash('sha256')
  const receiver = new Receiver(bytes)
  const segments = Math.ceil(bytes / MSS)
  let repeated = 0
  let writes = 0
  const exchange = (packet: Uint8Array): void => {
    a.sendFromTun(packet)
    for (const written of b.receive()) {
      receiver.take(written)
      writes++
    }
  }
  const packetOf = (first: number, count: number, checksum: 'good' | 'partial'): Uint8Array => {
    const payload = streamBytes(pattern, first * MSS, Math.min((first + count) * MSS, bytes))
    return tcpPacket({ payload, sequence: (FIRST_SEQUENCE + first * MSS) % 2 ** 32, identification: first, checksum })
  }
  const repeatMissing = (next: number): void => {
    for (let segment = receiver.base; segment < next; segment++) {
      if (receiver.has(segment)) continue
      exchange(fromTun(packetOf(segment, 1, 'good')))
      repeated++
    }
  }
  for (let next = 0; next < segments; next += SEGMENTS_PER_WRITE) {
    while (next + SEGMENTS_PER_WRITE - receiver.base > WINDOW_SEGMENTS) repeatMissing(next)
    const packet = packetOf(next, SEGMENTS_PER_WRITE, 'partial')
    sentHash.update(packet.subarray(ipv4.HEADER_LEN + tcp.HEADER_LEN))
    exchange(superFromTun(packet, MSS))
  }
  injectors[0]!.flush()
  for (const written of b.receive()) receiver.take(written)
  while (receiver.base < segments) repeatMissing(segments)
  const { duplicates } = receiver
  return { sent: sentHash.digest('hex'), received: receiver.hash.digest('hex'), repeated, duplicates, writes, a, b }
}
