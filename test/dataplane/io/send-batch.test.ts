// How frames share a message: the limits of one send, and memory that lies in one piece.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MAX_MESSAGE_BYTES, SendBatch } from '../../../dataplane/io/send-batch.ts'
import { PacketMemory } from '../../../dataplane/memory/packet-memory.ts'
import { readMessage, type SentMessage } from '../../support/underlay-tap.ts'

const PEER = 0xc0000202
const memory = new PacketMemory(4 * 1024 * 1024)
const area = memory.reserve(2 * 1024 * 1024)
const batches = new Map<number, SendBatch>()

function emptyBatch(maxSegments: number): SendBatch {
  const batch = batches.get(maxSegments) ?? new SendBatch(memory, maxSegments)
  batches.set(maxSegments, batch)
  batch.clear()
  return batch
}

/** Offers `count` frames of `bytes` each, sending whenever the batch is full; frames of each message. */
function frameCounts(count: number, bytes: number, maxSegments: number): number[] {
  const batch = emptyBatch(maxSegments)
  const sent: number[] = []
  const flush = () => {
    sent.push(...batch.packets.subarray(0, batch.count))
    batch.clear()
  }
  for (let n = 0; n < count; n++) {
    if (!batch.frame(PEER, 8472, 0, bytes, false)) {
      flush()
      expect(batch.frame(PEER, 8472, 0, bytes, false)).toBe(true)
    }
    batch.add(area, bytes)
  }
  flush()
  return sent
}

describe('frames of one message', () => {
  it.each([
    [1472, 44],
    [1500, 43],
    [200, 63],
    [1, 63],
  ])('of %i bytes are at most %i: 63 segments, 65,000 bytes', (bytes, most) => {
    expect(Math.min(63, Math.floor(MAX_MESSAGE_BYTES / bytes))).toBe(most)
    expect(frameCounts(most, bytes, 63)).toEqual([most])
    expect(frameCounts(most + 1, bytes, 63)).toEqual([most, 1])
  })

  it('are at most as many as the socket says', () => {
    expect(frameCounts(300, 64, 127)).toEqual([127, 127, 46])
    expect(frameCounts(3, 64, 1)).toEqual([1, 1, 1])
  })

  it('never exceed any limit, whatever the sizes, and none gets lost', () => {
    const sizes = fc.array(fc.constantFrom(64, 64, 64, 900, 1472, 1472, 1472, 9000, 33000), { maxLength: 400 })
    fc.assert(
      fc.property(sizes, fc.constantFrom(1, 63, 127), (lengths, maxSegments) => {
        const batch = emptyBatch(maxSegments)
        const seen: number[] = []
        const flush = () => {
          for (let message = 0; message < batch.count; message++) {
            const sent = readMessage(memory, batch, message)
            checkLimits(sent, batch, message, maxSegments)
            seen.push(...sent.frames.map((frame) => frame.length))
          }
          batch.clear()
        }
        for (const length of lengths) {
          if (!batch.frame(PEER, 8472, 0, length, false)) {
            flush()
            batch.frame(PEER, 8472, 0, length, false)
          }
          batch.add(area + 10, Math.ceil(length / 2))
          batch.add(area + 60_000, Math.floor(length / 2))
        }
        flush()
        expect(seen).toEqual(lengths)
      }),
    )
  })

  function checkLimits({ frames }: SentMessage, batch: SendBatch, message: number, maxSegments: number): void {
    const bytes = frames.reduce((sum, frame) => sum + frame.length, 0)
    expect(bytes).toBe(batch.bytes[message])
    expect(frames.length).toBe(batch.packets[message])
    expect(frames.length).toBeLessThanOrEqual(maxSegments)
    expect(batch.iovecCount[message]).toBeLessThanOrEqual(1024)
    if (frames.length > 1) expect(bytes).toBeLessThanOrEqual(MAX_MESSAGE_BYTES)
    for (const frame of frames.slice(0, -1)) expect(frame.length).toBe(batch.frameBytes[message])
    expect(frames.at(-1)!.length).toBeLessThanOrEqual(batch.frameBytes[message]!)
  }

  it('are for one peer, one port and one TOS', () => {
    const batch = emptyBatch(63)
    batch.frame(PEER, 8472, 0, 100, false)
    batch.frame(PEER + 1, 8472, 0, 100, false)
    batch.frame(PEER + 1, 8473, 0, 100, false)
    batch.frame(PEER + 1, 8473, 2, 100, false)
    batch.frame(PEER + 1, 8473, 2, 100, false)
    expect([...batch.packets.subarray(0, batch.count)]).toEqual([1, 1, 1, 2])
    expect([...batch.address.subarray(0, batch.count)]).toEqual([PEER, PEER + 1, PEER + 1, PEER + 1])
  })

  it('never include one that must stay alone, before or behind it', () => {
    const batch = emptyBatch(63)
    for (const alone of [false, true, false, false]) batch.frame(PEER, 8472, 0, 100, alone)
    expect([...batch.packets.subarray(0, batch.count)]).toEqual([1, 1, 2])
    expect(batch.segmentSize(0)).toBe(0)
    expect(batch.segmentSize(2)).toBe(100)
  })
})

describe('memory in one piece', () => {
  it('is covered by one iovec', () => {
    const batch = emptyBatch(63)
    for (let n = 0; n < 20; n++) {
      batch.frame(PEER, 8472, 0, 100, false)
      batch.add(area + n * 100, 22)
      batch.add(area + n * 100 + 22, 78)
    }
    expect(batch.iovecCount[0]).toBe(1)
    expect(memory.iovecLength(batch.iovecs, 0)).toBe(2000)
  })

  it('is not joined across messages', () => {
    const batch = emptyBatch(63)
    batch.frame(PEER, 8472, 0, 100, false)
    batch.add(area, 100)
    batch.frame(PEER + 1, 8472, 0, 100, false)
    batch.add(area + 100, 100)
    expect([...batch.iovecCount.subarray(0, 2)]).toEqual([1, 1])
  })
})

describe('a full batch', () => {
  it('says so at 64 messages, and takes as many again when it was sent', () => {
    const batch = emptyBatch(63)
    for (let round = 0; round < 2; round++) {
      for (let n = 0; n < 64; n++) expect(batch.frame(PEER + n, 8472, 0, 100, false)).toBe(true)
      expect(batch.frame(PEER + 64, 8472, 0, 100, false)).toBe(false)
      batch.clear()
    }
  })

  it('still lets a message grow that may', () => {
    const batch = emptyBatch(63)
    for (let n = 0; n < 64; n++) batch.frame(PEER + n, 8472, 0, 100, false)
    expect(batch.frame(PEER, 8472, 0, 100, false)).toBe(true)
    expect(batch.packets[0]).toBe(2)
  })
})

describe('frames of several source ports in turns', () => {
  it('share a message for each port', () => {
    const batch = emptyBatch(63)
    for (let n = 0; n < 160; n++) batch.frame(PEER, 8472, 0, 100, false, n % 16)
    expect([...batch.packets.subarray(0, batch.count)]).toEqual(Array(16).fill(10))
    expect([...batch.sender.subarray(0, batch.count)]).toEqual(Array.from({ length: 16 }, (_, sender) => sender))
  })

  it('share a message for each peer', () => {
    const batch = emptyBatch(63)
    for (let n = 0; n < 40; n++) batch.frame(PEER + (n % 4), 8472, 0, 100, false, n % 2)
    expect([...batch.packets.subarray(0, batch.count)]).toEqual([10, 10, 10, 10])
  })

  const FRAME_ROOM = 2048
  const frames = fc.array(
    fc.record({
      sender: fc.constantFrom(0, 1, 2, 63, 64, 255),
      peer: fc.integer({ min: 0, max: 5 }),
      tos: fc.constantFrom(0, 0, 0, 2),
      length: fc.constantFrom(100, 100, 100, 64, 1472),
      alone: fc.constantFrom(false, false, false, true),
      keepsLast: fc.constantFrom(false, false, false, false, true),
    }),
    { maxLength: 300 },
  )

  it('never overtake another of their port and peer, and none gets lost or changed', () => {
    fc.assert(
      fc.property(frames, (all) => {
        const batch = emptyBatch(63)
        const sent = new Map<string, number[]>()
        const take = () => {
          for (let message = 0; message < batch.count; message++) {
            const key = `${batch.sender[message]} ${batch.address[message]}`
            const numbers = readMessage(memory, batch, message).frames.map((frame) => frame[0]! * 256 + frame[1]!)
            sent.set(key, [...(sent.get(key) ?? []), ...numbers])
          }
          batch.clear()
        }
        const wanted = new Map<string, number[]>()
        all.forEach(({ sender, peer, tos, length, alone, keepsLast }, n) => {
          const at = area + n * FRAME_ROOM
          memory.bytes.set([n >> 8, n & 0xff], at)
          if (!batch.frame(PEER + peer, 8472, tos, length, alone, sender)) {
            take()
            batch.frame(PEER + peer, 8472, tos, length, alone, sender)
          }
          batch.add(at, length)
          const key = `${sender} ${PEER + peer}`
          wanted.set(key, [...(wanted.get(key) ?? []), n])
          if (keepsLast && batch.isOpen) batch.sendAllButLast(take)
        })
        take()
        expect(sent).toEqual(wanted)
      }),
    )
  })
})
