// The fault injector: each fault alone, in the measure asked for, from one seed; and nothing is kept back for good.
import { describe, expect, test } from 'vitest'
import { EMSGSIZE, ENOBUFS } from '../../../dataplane/io/errno.ts'
import { MemoryUnderlay } from '../../../dataplane/io/memory/memory-socket.ts'
import type { SendBatch } from '../../../dataplane/io/send-batch.ts'
import { PacketMemory } from '../../../dataplane/memory/packet-memory.ts'
import { FaultInjector, type Faults } from '../../../dataplane/middleware/fault-injector.ts'
import { Exchange, FAR, NEAR, UNDERLAY_PORT, underlaySocketCompliance } from '../../compliance/underlay-socket.ts'
import { countingBytes, ip } from '../../support/packets.ts'
import { seededRandom } from '../../support/seeded-random.ts'

const MEMORY_BYTES = 32 * 1024 * 1024
const FRAME_BYTES = 64

function harness(faults: Faults, seed = 1) {
  const memory = new PacketMemory(MEMORY_BYTES)
  const underlay = new MemoryUnderlay(memory)
  const options = { port: UNDERLAY_PORT, queueLength: 128 }
  const socket = underlay.open({ ...options, address: ip(NEAR) })
  const far = underlay.open({ ...options, address: ip(FAR) })
  const near = new FaultInjector(socket, memory, faults, seededRandom(seed))
  const deliver = (datagram: Uint8Array) => far.deliver(datagram, ip(NEAR))
  return { memory, near, far, merges: true, deliver }
}

/** Frame `n`: its number in the first four bytes. */
function numbered(n: number): Uint8Array {
  const bytes = countingBytes(FRAME_BYTES, n)
  new DataView(bytes.buffer).setUint32(0, n)
  return bytes
}

/** Frames as they arrive when so many are sent, 20 to a message. */
function cross(faults: Faults, count: number, seed = 1): Uint8Array[] {
  const sockets = harness(faults, seed)
  const exchange = new Exchange(sockets)
  const arrived: Uint8Array[] = []
  for (let n = 0; n < count; n += 20) {
    const errnos = exchange.send(...Array.from({ length: 20 }, (_, m) => ({ bytes: numbered(n + m) })))
    expect(errnos).toEqual([0])
    arrived.push(...exchange.receive().map(({ bytes }) => bytes))
  }
  sockets.near.flush()
  return arrived.concat(exchange.receive().map(({ bytes }) => bytes))
}

const numberOf = (frame: Uint8Array): number => new DataView(frame.buffer, frame.byteOffset).getUint32(0)
const isIntact = (frame: Uint8Array): boolean => Buffer.compare(frame, numbered(numberOf(frame))) === 0
const COUNT = 4000

/** Whether a number of events is what a chance of `share` gives for COUNT frames: within five standard deviations. */
function expectShare(events: number, share: number): void {
  const deviation = Math.sqrt(COUNT * share * (1 - share))
  expect(Math.abs(events - COUNT * share)).toBeLessThan(5 * deviation)
}

describe('without faults', () => {
  underlaySocketCompliance(() => harness({}))

  test('everything arrives as it was sent', () => {
    expect(cross({}, 200)).toEqual(Array.from({ length: 200 }, (_, n) => numbered(n)))
  })
})

describe('loss', () => {
  test('takes the share asked for, and leaves the rest as it was', () => {
    const arrived = cross({ loss: 0.1 }, COUNT)
    expectShare(COUNT - arrived.length, 0.1)
    expect(arrived.every(isIntact)).toBe(true)
    const numbers = arrived.map(numberOf)
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b))
  })

  test('of everything lets nothing pass', () => {
    expect(cross({ loss: 1 }, 100)).toEqual([])
  })
})

describe('duplication', () => {
  test('gives the share asked for twice, and every frame at least once', () => {
    const arrived = cross({ duplicate: 0.1 }, COUNT)
    expectShare(arrived.length - COUNT, 0.1)
    expect(new Set(arrived.map(numberOf)).size).toBe(COUNT)
    expect(arrived.every(isIntact)).toBe(true)
  })
})

describe('reordering', () => {
  test('keeps the share asked for back, and loses and repeats none', () => {
    const arrived = cross({ reorder: 0.1 }, COUNT)
    expect(arrived.every(isIntact)).toBe(true)
    const numbers = arrived.map(numberOf)
    expect([...numbers].sort((a, b) => a - b)).toEqual(Array.from({ length: COUNT }, (_, n) => n))
    const late = numbers.filter((number, at) => at > 0 && numbers.slice(0, at).some((before) => before > number))
    expectShare(late.length, 0.1)
  })

  test('lets at most 16 others and what they overtake pass', () => {
    const numbers = cross({ reorder: 0.2 }, COUNT).map(numberOf)
    const delays = numbers.map((number, at) => at - number)
    expect(Math.max(...delays)).toBeLessThanOrEqual(32)
    expect(Math.max(...delays)).toBeGreaterThan(4)
  })

  test('of everything holds no more than it has room for', () => {
    expect(
      cross({ reorder: 1 }, 400)
        .map(numberOf)
        .sort((a, b) => a - b),
    ).toEqual(Array.from({ length: 400 }, (_, n) => n))
  })

  test('keeps nothing for good: later frames push held ones out, a flush the last ones', () => {
    const sockets = harness({ reorder: 1 })
    const exchange = new Exchange(sockets)
    exchange.send({ bytes: numbered(0) })
    expect(exchange.receive()).toEqual([])
    sockets.near.flush()
    expect(exchange.receive().map(({ bytes }) => numberOf(bytes))).toEqual([0])
    sockets.near.flush()
    expect(exchange.receive()).toEqual([])
  })

  test('together with duplication sends one copy at once and one later', () => {
    const numbers = cross({ reorder: 1, duplicate: 1 }, 100).map(numberOf)
    expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 200 }, (_, n) => n >> 1))
  })
})

describe('damage', () => {
  test('flips exactly one bit in the share asked for', () => {
    const arrived = cross({ corrupt: 0.1 }, COUNT)
    expect(arrived).toHaveLength(COUNT)
    const flipped = arrived.map((frame, n) => {
      const original = numbered(n)
      return frame.reduce((bits, byte, at) => bits + bitCount(byte ^ original[at]!), 0)
    })
    expect(flipped.every((bits) => bits <= 1)).toBe(true)
    expectShare(flipped.filter((bits) => bits === 1).length, 0.1)
  })

  function bitCount(byte: number): number {
    return byte.toString(2).replaceAll('0', '').length
  }
})

describe('chance', () => {
  const all = { loss: 0.1, duplicate: 0.1, reorder: 0.1, corrupt: 0.1 }

  test('repeats itself with the seed', () => {
    expect(cross(all, 400, 5)).toEqual(cross(all, 400, 5))
    expect(cross(all, 400, 5)).not.toEqual(cross(all, 400, 6))
  })
})

describe('frames', () => {
  test('of a message with a shorter last one are told apart', () => {
    const exchange = new Exchange(harness({ reorder: 0.3 }))
    const sizes = [100, 100, 100, 7]
    exchange.send(...sizes.map((size, n) => ({ bytes: countingBytes(size, n), pieces: [22] })))
    const { near } = exchange.harness
    ;(near as FaultInjector).flush()
    const arrived = exchange.receive().map(({ bytes }) => bytes)
    expect(arrived).toHaveLength(4)
    for (const [n, size] of sizes.entries()) expect(arrived).toContainEqual(countingBytes(size, n))
  })

  test('keep their address and congestion mark when they are held back', () => {
    const exchange = new Exchange(harness({ reorder: 1 }))
    exchange.send({ bytes: numbered(1), tos: 2 }, { bytes: numbered(2), tos: 1 })
    ;(exchange.harness.near as FaultInjector).flush()
    const marks = exchange.receive().map(({ bytes, tos }) => [numberOf(bytes), tos])
    expect(marks.sort()).toEqual([
      [1, 2],
      [2, 1],
    ])
  })

  test('that follow a refused one of the same message are offered all the same', () => {
    const sockets = harness({})
    const offered: number[] = []
    const inner = {
      maxSegments: 63,
      receive: () => 0,
      send: (batch: SendBatch) => {
        offered.push(batch.bytes[0]!)
        batch.errno[0] = offered.length === 1 ? ENOBUFS : 0
      },
    }
    const near = new FaultInjector(inner, sockets.memory, {}, seededRandom(1))
    const exchange = new Exchange({ ...sockets, near })
    expect(exchange.send(...[90, 90, 8].map((size) => ({ bytes: countingBytes(size) })))).toEqual([ENOBUFS])
    expect(offered).toEqual([90, 90, 8])
  })

  test('larger than UDP allows are refused and harm nothing', () => {
    const exchange = new Exchange(harness({ reorder: 0.5 }))
    expect(exchange.send({ bytes: countingBytes(65520), alone: true }, { bytes: numbered(3) })).toEqual([EMSGSIZE, 0])
  })
})
