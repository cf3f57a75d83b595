// The number of a flow: the same for all of its packets, another for its neighbours, evenly over any pool.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { choiceOf, flowHash, hasPorts } from '../../../dataplane/encap/flow-hash.ts'
import { seededRandom } from '../../support/seeded-random.ts'

const POOL = 16
const TCP = 6
const UDP = 17
const ICMP = 1
const PORTS_AT = 8

const view = new DataView(new ArrayBuffer(64))

/** Hash of an IPv4 flow, its addresses and ports as numbers. */
function hashOf(source: number, destination: number, sourcePort: number, destinationPort: number, protocol = UDP) {
  view.setUint32(0, source)
  view.setUint32(4, destination)
  view.setUint16(PORTS_AT, sourcePort)
  view.setUint16(PORTS_AT + 2, destinationPort)
  return flowHash(view, 0, 8, protocol, PORTS_AT)
}

/** How many of the flows fall on each of the pool. */
function spread(hashes: Iterable<number>): number[] {
  const counts = new Array<number>(POOL).fill(0)
  for (const hash of hashes) counts[choiceOf(hash, POOL)]! += 1
  return counts
}

/** The fullest against the mean. */
function unevenness(counts: readonly number[]): number {
  return Math.max(...counts) / (counts.reduce((sum, count) => sum + count) / counts.length)
}

describe('flows over a pool of 16 ports', () => {
  it.each([1, 2, 3, 4, 5])('1000 random ones use each port, none more than 1.6 times the mean (seed %i)', (seed) => {
    const random = seededRandom(seed)
    const number = (below: number) => Math.floor(random() * below)
    const counts = spread(
      Array.from({ length: 1000 }, () => hashOf(number(2 ** 32), number(2 ** 32), number(65536), number(65536))),
    )
    expect(Math.min(...counts)).toBeGreaterThan(0)
    expect(unevenness(counts)).toBeLessThan(1.6)
  })

  const pods = [0x0af40102, 0x0af40203] as const
  it.each([
    ['whose source port counts up', (n: number) => hashOf(pods[0], pods[1], 32768 + n, 80)],
    ['whose source port counts up by two', (n: number) => hashOf(pods[0], pods[1], 32768 + 2 * n, 443)],
    ['from pods that are neighbours', (n: number) => hashOf(pods[0] + n, pods[1], 5000, 5000)],
    ['to pods of many nodes', (n: number) => hashOf(pods[0], pods[1] + (n << 8), 5000, 5000)],
    ['whose two ports are equal', (n: number) => hashOf(pods[0], pods[1], 1024 + n, 1024 + n)],
  ])('1000 %s are spread as well', (_, flow) => {
    const counts = spread(Array.from({ length: 1000 }, (_, n) => flow(n)))
    expect(Math.min(...counts)).toBeGreaterThan(0)
    expect(unevenness(counts)).toBeLessThan(1.6)
  })

  it('of IPv6 that differ in the last bits alone are spread', () => {
    const hashes = Array.from({ length: 1000 }, (_, n) => {
      for (let at = 0; at < 32; at += 4) view.setUint32(at, 0xfd000000)
      view.setUint32(12, n)
      view.setUint32(32, 0x13881389)
      return flowHash(view, 0, 32, TCP, 32)
    })
    expect(unevenness(spread(hashes))).toBeLessThan(1.6)
  })
})

describe('the hash', () => {
  it('tells protocols and directions apart', () => {
    const ways = [hashOf(1, 2, 3, 4, TCP), hashOf(1, 2, 3, 4, UDP), hashOf(2, 1, 4, 3, UDP)]
    expect(new Set(ways).size).toBe(3)
  })

  it('is the same again, wherever the packet lies', () => {
    const wide = new DataView(new ArrayBuffer(128))
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 12, maxLength: 12 }), fc.integer({ min: 0, max: 100 }), (bytes, at) => {
        new Uint8Array(view.buffer).set(bytes)
        new Uint8Array(wide.buffer).set(bytes, at)
        expect(flowHash(wide, at, 8, UDP, at + 8)).toBe(flowHash(view, 0, 8, UDP, 8))
      }),
    )
  })

  it('does not look at ports where there are none', () => {
    const without = (ports: number) => {
      view.setUint32(PORTS_AT, ports)
      return flowHash(view, 0, 8, UDP, -1)
    }
    expect(without(0x12345678)).toBe(without(0x87654321))
  })

  it('is a signed 32-bit number, which costs no allocation', () => {
    const numbers = fc.nat({ max: 0xffffffff })
    fc.assert(
      fc.property(numbers, numbers, numbers, (source, destination, ports) => {
        const hash = hashOf(source, destination, ports & 0xffff, ports >>> 16)
        expect(hash | 0).toBe(hash)
      }),
    )
  })
})

it('a choice lies within the pool, for every pool', () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer({ min: 1, max: 65536 }), (hash, count) => {
      const choice = choiceOf(hash, count)
      expect(choice >= 0 && choice < count && Number.isInteger(choice)).toBe(true)
    }),
  )
})

it.each([
  [TCP, true],
  [UDP, true],
  [132, true],
  [136, true],
  [ICMP, false],
  [50, false],
  [44, false],
])('protocol %i shows ports: %s', (protocol, shows) => {
  expect(hasPorts(protocol)).toBe(shows)
})
