// The checksum kernel against its slow twin: the same sum for the same bytes, wherever they lie and however many.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { complement, complementUdp, fold, PacketMemory } from '../../../dataplane/memory/packet-memory.ts'
import * as twin from '../../../dataplane/wire/internet-checksum.ts'
import { seededRandom } from '../../support/seeded-random.ts'

const MEMORY_BYTES = 512 * 1024
const LONGEST = 256 * 1024
const memory = new PacketMemory(MEMORY_BYTES)
const base = memory.reserve(LONGEST + 64)

function fillAtRandom(seed: number): void {
  const random = seededRandom(seed)
  for (let at = base; at < base + LONGEST + 64; at++) memory.bytes[at] = Math.floor(random() * 256)
}

const twinSum = (at: number, length: number): number => twin.fold(twin.sumWords(memory.bytes, at, at + length))

describe('the checksum kernel', () => {
  it('agrees with its slow twin on every length up to 2100 and every offset in a cache line', () => {
    fillAtRandom(1)
    let compared = 0
    for (let length = 0; length <= 2100; length++) {
      const at = base + (length % 64)
      if (memory.sum(at, length) !== twinSum(at, length)) expect.fail(`length ${length} at offset ${length % 64}`)
      compared++
    }
    for (let offset = 0; offset < 64; offset++) {
      for (const length of [0, 1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 1399, 1400]) {
        const at = base + offset
        if (memory.sum(at, length) !== twinSum(at, length)) expect.fail(`length ${length} at offset ${offset}`)
        compared++
      }
    }
    expect(compared).toBe(2101 + 64 * 15)
  })

  it('agrees with its slow twin on random bytes at random places', () => {
    const place = fc.record({
      bytes: fc.uint8Array({ maxLength: 3000 }),
      offset: fc.nat(63),
    })
    fc.assert(
      fc.property(place, ({ bytes, offset }) => {
        memory.bytes.set(bytes, base + offset)
        expect(memory.sum(base + offset, bytes.length)).toBe(twinSum(base + offset, bytes.length))
      }),
    )
  })

  it.each([4095, 4096, 65534, 65535, LONGEST - 1, LONGEST])('sums %i bytes, also when all are 0xff', (length) => {
    fillAtRandom(length)
    expect(memory.sum(base, length)).toBe(twinSum(base, length))
    expect(memory.sum(base + 1, length)).toBe(twinSum(base + 1, length))
    memory.bytes.fill(0xff, base, base + length)
    expect(memory.sum(base, length)).toBe(twinSum(base, length))
  })

  it('gives zero for nothing and for zeros only', () => {
    memory.bytes.fill(0, base, base + 4096)
    expect(memory.sum(base, 0)).toBe(0)
    expect(memory.sum(base, 1500)).toBe(0)
  })

  it('gives 0xffff, not zero, for bytes whose sum wraps to nothing', () => {
    memory.bytes.fill(0, base, base + 200)
    for (const length of [4, 20, 64, 100, 200]) {
      memory.bytes.fill(0, base, base + 200)
      memory.bytes.set([0x12, 0x34, 0xed, 0xcb], base + length - 4)
      expect(memory.sum(base, length)).toBe(0xffff)
    }
  })

  it('takes an odd last byte as the upper half of a word and reads nothing behind it', () => {
    memory.bytes.fill(0xaa, base, base + 64)
    memory.bytes.set([1, 2, 3], base)
    expect(memory.sum(base, 3)).toBe(0x0102 + 0x0300)
  })

  it('sees every single bit', () => {
    fillAtRandom(7)
    const length = 211
    const sum = memory.sum(base, length)
    for (let bit = 0; bit < length * 8; bit++) {
      const at = base + (bit >> 3)
      memory.bytes[at]! ^= 1 << (bit & 7)
      if (memory.sum(base, length) === sum) expect.fail(`bit ${bit} changes nothing`)
      memory.bytes[at]! ^= 1 << (bit & 7)
    }
    expect(memory.sum(base, length)).toBe(sum)
  })
})

describe('folding', () => {
  const sum = fc.integer({ min: 0, max: 2 ** 32 - 1 })

  it('agrees with its slow twin on every sum below 2^32', () => {
    fc.assert(
      fc.property(sum, (value) => {
        expect(fold(value)).toBe(twin.fold(value))
        expect(complement(value)).toBe(twin.finish(value))
      }),
    )
    for (const value of [0, 0xffff, 0x10000, 0x1ffff, 0xffff0000, 0xffffffff]) {
      expect(fold(value)).toBe(twin.fold(value))
    }
  })

  it('never gives a UDP checksum of zero, and the plain one everywhere else', () => {
    fc.assert(
      fc.property(sum, (value) => {
        expect(complementUdp(value)).toBe(twin.finish(value) || 0xffff)
      }),
    )
    expect(complementUdp(0xffff)).toBe(0xffff)
    expect(complement(0xffff)).toBe(0)
  })
})
