// What every underlay socket must do, UDP and stand-in alike. Each implementation runs this suite from its own test
// file.
import { beforeEach, describe, expect, test } from 'vitest'
import { reasonForSendErrno } from '../../dataplane/io/errno.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import { SendBatch } from '../../dataplane/io/send-batch.ts'
import type { UnderlaySocket } from '../../dataplane/io/underlay-socket.ts'
import type { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { countingBytes, ip } from '../support/packets.ts'

export const NEAR = '127.0.0.1'
export const FAR = '127.0.0.2'
export const UNDERLAY_PORT = 8472
/** An address to which nothing leads. */
const NOWHERE = '203.0.113.9'
const SLOTS = 16
/** Looks, 5 ms apart, for datagrams that are still under way. */
const PATIENCE = 2000
/** As many without one: none comes any more. */
const QUIET = 20
const LONGEST_PAUSE_MS = 2000

/** Two sockets that reach each other, at {@link NEAR} and {@link FAR}, and the memory that both use. */
export interface SocketHarness {
  readonly memory: PacketMemory
  readonly near: UnderlaySocket
  readonly far: UnderlaySocket
  /** Whether trains of datagrams may arrive merged. */
  readonly merges: boolean
  /** Whether a call receives one datagram, not as many as there are slots. */
  readonly oneByOne?: boolean
  /** The largest datagram, bytes; that of IPv4 unless this says more. */
  readonly largestBytes?: number
  /** Whether congestion marks cross; where they do not, all of them are 0. They do unless this says no. */
  readonly marks?: boolean
  /** For sockets on an event loop, which know nothing before it has turned. */
  readonly later?: {
    /** Waits until the fate of every message of the batch is known, and notes it there. */
    settle(batch: SendBatch): Promise<void>
    /** Waits until so many datagrams can be received from the far socket. */
    arrive(count: number): Promise<void>
  }
  /** Puts one datagram, which may be empty, into the far socket's queue. */
  deliver(datagram: Uint8Array): void
}

/** A frame to send: its bytes, where to, and how. */
export interface Frame {
  readonly bytes: Uint8Array
  readonly to?: string
  readonly tos?: number
  readonly alone?: boolean
  readonly sender?: number
  /** Sizes of the pieces in which it lies in memory; one piece by default, at most two. */
  readonly pieces?: readonly number[]
}

/** One datagram as it arrived. */
export interface Arrived {
  readonly bytes: Uint8Array
  readonly address: number
  readonly port: number
  readonly tos: number
}

/** Sends and receives frames over a harness, as the engine would. */
export class Exchange {
  readonly harness: SocketHarness
  readonly batch: SendBatch
  readonly slots: ReceiveSlots

  constructor(harness: SocketHarness) {
    this.harness = harness
    this.batch = new SendBatch(harness.memory, harness.near.maxSegments)
    this.slots = new ReceiveSlots(harness.memory, SLOTS)
  }

  /** Sends frames in one batch; the errno of each message. */
  send(...frames: Frame[]): number[] {
    const { memory, near } = this.harness
    this.batch.clear()
    for (const { bytes, to = FAR, tos = 0, alone = false, sender = 0, pieces = [] } of frames) {
      if (!this.batch.frame(ip(to), UNDERLAY_PORT, tos, bytes.length, alone, sender))
        throw new Error('the batch is full')
      let done = 0
      for (const size of [...pieces, bytes.length]) {
        const piece = bytes.slice(done, done + size)
        const at = memory.reserve(Math.max(piece.length, 1))
        memory.bytes.set(piece, at)
        if (piece.length > 0) this.batch.add(at, piece.length)
        done += piece.length
      }
    }
    near.send(this.batch)
    return [...this.batch.errno.subarray(0, this.batch.count)]
  }

  /** As {@link send}, for every kind of socket: waits for what is known later. */
  async sent(...frames: Frame[]): Promise<number[]> {
    this.send(...frames)
    await this.harness.later?.settle(this.batch)
    return [...this.batch.errno.subarray(0, this.batch.count)]
  }

  /** As {@link receive}, for every kind of socket: waits for `count` datagrams where they come later. */
  async arrived(count: number): Promise<Arrived[]> {
    await this.harness.later?.arrive(count)
    const all = this.receive()
    // The kernel may hand over on another CPU, which is busy, or later on this one.
    for (let tries = 0; all.length < count && tries < PATIENCE; tries++) {
      await look()
      all.push(...this.receive())
    }
    return all
  }

  /** What the first receive brings that brings anything, in slots. */
  async firstReceive(): Promise<number> {
    for (let tries = 0; tries < PATIENCE; tries++) {
      const received = this.harness.far.receive(this.slots)
      if (received !== 0) return received
      await look()
    }
    return 0
  }

  /** Everything that still arrives, however many they are. */
  async rest(): Promise<Arrived[]> {
    const all: Arrived[] = []
    for (let quiet = 0; quiet < QUIET; quiet++) {
      const more = this.receive()
      if (more.length > 0) quiet = 0
      all.push(...more)
      await look()
    }
    return all
  }

  /** Everything that the far socket has, trains cut. */
  receive(): Arrived[] {
    const all: Arrived[] = []
    for (;;) {
      const received = this.harness.far.receive(this.slots)
      expect(received).toBeGreaterThanOrEqual(0)
      if (received === 0) return all
      for (let slot = 0; slot < received; slot++) all.push(...this.#cut(slot))
    }
  }

  #cut(slot: number): Arrived[] {
    const { slots } = this
    const { memory, merges } = this.harness
    const length = slots.length[slot]!
    const size = slots.segmentSize[slot]!
    expect(slots.truncated[slot]).toBe(0)
    if (!merges) expect(size).toBe(0)
    const facts = { address: slots.address[slot]!, port: slots.port[slot]!, tos: slots.tos[slot]! }
    const bytes = memory.bytes.slice(slots.at(slot), slots.at(slot) + length)
    if (size === 0) return [{ ...facts, bytes }]
    const pieces: Arrived[] = []
    for (let at = 0; at < length; at += size) pieces.push({ ...facts, bytes: bytes.slice(at, at + size) })
    return pieces
  }
}

const look = () => new Promise((resolve) => setTimeout(resolve, 5))

const frame = (bytes: number, n = 0, rest: Omit<Frame, 'bytes'> = {}): Frame => ({
  bytes: countingBytes(bytes, n),
  ...rest,
})
const bytesOf = (list: readonly { readonly bytes: Uint8Array }[]) => list.map(({ bytes }) => bytes)

export function underlaySocketCompliance(make: () => SocketHarness): void {
  let exchange: Exchange
  beforeEach(() => {
    exchange = new Exchange(make())
  })
  describe('one datagram', () => datagramRules(() => exchange))
  describe('segmented sends', () => segmentRules(() => exchange))
  describe('a message that cannot be sent', () => refusalRules(() => exchange))
}

function datagramRules(exchange: () => Exchange): void {
  test('nothing to receive is 0, not an error', () => {
    expect(exchange().harness.far.receive(exchange().slots)).toBe(0)
  })

  test('arrives whole, with the address and port of its sender', async () => {
    expect(await exchange().sent(frame(120))).toEqual([0])
    expect(await exchange().arrived(1)).toEqual([
      { bytes: countingBytes(120), address: ip(NEAR), port: UNDERLAY_PORT, tos: 0 },
    ])
  })

  test('is gathered from two places', async () => {
    await exchange().sent(frame(1400, 3, { pieces: [62] }))
    expect(bytesOf(await exchange().arrived(1))).toEqual([countingBytes(1400, 3)])
  })

  test('carries its congestion mark, and the next one its own', async () => {
    const marks = [1, 0, 2, 3, 0]
    const sent = marks.map((tos, n) => frame(100, n, { tos }))
    expect(await exchange().sent(...sent)).toEqual([0, 0, 0, 0, 0])
    const arrived = await exchange().arrived(5)
    expect(arrived.map(({ tos }) => tos & 3)).toEqual(crossing(exchange(), marks))
    expect(bytesOf(arrived)).toEqual(bytesOf(sent))
  })

  test('may be empty', async () => {
    exchange().harness.deliver(new Uint8Array(0))
    exchange().harness.deliver(countingBytes(5))
    expect(bytesOf(await exchange().arrived(2))).toEqual([new Uint8Array(0), countingBytes(5)])
  })

  test('may be as large as UDP allows', async () => {
    expect(await exchange().sent(frame(65507, 0, { alone: true }))).toEqual([0])
    const arrived = await exchange().arrived(1)
    expect(arrived).toHaveLength(1)
    expect(Buffer.compare(arrived[0]!.bytes, countingBytes(65507))).toBe(0)
  })

  test('more of them than slots are received in several calls, in order', async () => {
    const sent = Array.from({ length: 40 }, (_, n) => frame(50 + n, n, { alone: true }))
    const full = exchange().harness.oneByOne === true ? 1 : SLOTS
    let first = 0
    // The kernel may hand over on another CPU, which is busy: then not all are there yet.
    for (let pauseMs = 0; first !== full && pauseMs < LONGEST_PAUSE_MS; pauseMs = 2 * pauseMs + 5) {
      await exchange().sent(...sent)
      await exchange().harness.later?.arrive(sent.length)
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
      first = exchange().harness.far.receive(exchange().slots)
      expect(bytesOf(await exchange().arrived(sent.length - Math.max(first, 0)))).toEqual(bytesOf(sent).slice(first))
    }
    expect(first).toBe(full)
  })
}

function segmentRules(exchange: () => Exchange): void {
  test('arrive as the frames that went in, the last one shorter', async () => {
    const sent = Array.from({ length: 30 }, (_, n) => frame(n === 29 ? 7 : 1000, n))
    const errnos = await exchange().sent(...sent)
    expect(errnos).toHaveLength(Math.ceil(30 / exchange().harness.near.maxSegments))
    expect(errnos.every((errno) => errno === 0)).toBe(true)
    expect(bytesOf(await exchange().arrived(30))).toEqual(bytesOf(sent))
  })

  test('carry as many segments as the socket says, gathered piece by piece', async () => {
    const most = Math.min(exchange().harness.near.maxSegments, 60)
    const sent = Array.from({ length: most }, (_, n) => frame(90, n, { pieces: [22] }))
    expect(await exchange().sent(...sent)).toEqual([0])
    expect(bytesOf(await exchange().arrived(most))).toEqual(bytesOf(sent))
  })

  test('of several sizes keep the order of frames', async () => {
    const sizes = [500, 500, 300, 300, 301, 20, 20, 20, 500]
    const sent = sizes.map((size, n) => frame(size, n))
    await exchange().sent(...sent)
    expect(bytesOf(await exchange().arrived(sizes.length))).toEqual(bytesOf(sent))
  })

  test('carry one congestion mark for all segments', async () => {
    await exchange().sent(...[0, 1, 2].map((n) => frame(400, n, { tos: 2 })))
    const arrived = await exchange().arrived(3)
    expect(arrived.map(({ tos }) => tos & 3)).toEqual(crossing(exchange(), [2, 2, 2]))
  })

  test('fill a message up to its limit of bytes', async () => {
    const sent = Array.from({ length: 44 }, (_, n) => frame(1472, n))
    const errnos = await exchange().sent(...sent)
    expect(errnos.every((errno) => errno === 0)).toBe(true)
    const arrived = await exchange().arrived(44)
    expect(arrived).toHaveLength(44)
    expect(Buffer.compare(Buffer.concat(bytesOf(arrived)), Buffer.concat(bytesOf(sent)))).toBe(0)
  })
}

function refusalRules(exchange: () => Exchange): void {
  test('to nowhere is told by its errno, and the others go', async () => {
    const errnos = await exchange().sent(frame(100), frame(100, 1, { to: NOWHERE }), frame(101, 2))
    expect([errnos[0], errnos[2]]).toEqual([0, 0])
    expect(reasonForSendErrno(errnos[1]!)).toBe('tx-unreachable')
    expect(bytesOf(await exchange().arrived(2))).toEqual([countingBytes(100), countingBytes(101, 2)])
  })

  test('because it is too large is told by its errno, and the others go', async () => {
    const { largestBytes = 65507 } = exchange().harness
    const errnos = await exchange().sent(frame(largestBytes + 1, 0, { alone: true }), frame(100, 1))
    expect(errnos.map((errno) => (errno === 0 ? 'sent' : reasonForSendErrno(errno)))).toEqual(['tx-too-big', 'sent'])
    expect(bytesOf(await exchange().arrived(1))).toEqual([countingBytes(100, 1)])
  })

  test('leaves no trace on the next batch', async () => {
    await exchange().sent(frame(100, 0, { to: NOWHERE }))
    expect(await exchange().sent(frame(100))).toEqual([0])
    expect(await exchange().arrived(1)).toHaveLength(1)
  })
}

/** Marks as they arrive over sockets of this kind. */
function crossing({ harness }: Exchange, marks: readonly number[]): number[] {
  return marks.map((mark) => (harness.marks === false ? 0 : mark))
}
