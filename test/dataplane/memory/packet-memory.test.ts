// Regions and iovecs of the packet memory: nothing overlaps, and an iovec says the address that the kernel will use.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { IOVEC_BYTES, PacketMemory } from '../../../dataplane/memory/packet-memory.ts'

const MEMORY_BYTES = 1024 * 1024
/** A process address as Linux gives them: 47 bits. */
const ADDRESS = 0x7f12_3456_7000

describe('regions', () => {
  it('do not overlap, lie within the memory and start on a cache line', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 1, maxLength: 50 }), (sizes) => {
        const memory = new PacketMemory(MEMORY_BYTES)
        const regions = sizes.map((size) => ({ at: memory.reserve(size), size }))
        for (const [index, { at, size }] of regions.entries()) {
          expect(at % 64).toBe(0)
          expect(at).toBeGreaterThan(0)
          expect(at + size).toBeLessThanOrEqual(memory.bytes.length)
          const next = regions[index + 1]
          if (next !== undefined) expect(next.at).toBeGreaterThanOrEqual(at + size)
        }
      }),
    )
  })

  it('are refused when the memory is too small, not handed out beyond its end', () => {
    const memory = new PacketMemory(65536)
    expect(() => memory.reserve(65536)).toThrow(/too small/)
  })

  it('are the same bytes in every view', () => {
    const memory = new PacketMemory(65536)
    const at = memory.reserve(8)
    memory.view.setUint32(at, 0x01020304, true)
    expect([...memory.bytes.subarray(at, at + 4)]).toEqual([4, 3, 2, 1])
    expect(memory.words[at / 4]).toBe(0x01020304)
  })
})

describe('an iovec', () => {
  const memory = new PacketMemory(MEMORY_BYTES, () => ADDRESS)
  const table = memory.reserve(4 * IOVEC_BYTES)
  const entry = (index: number) => ({
    base: memory.view.getBigUint64(table + index * IOVEC_BYTES, true),
    length: memory.view.getBigUint64(table + index * IOVEC_BYTES + 8, true),
  })

  it('holds base and length as two 64-bit words, the address of the bytes in this process', () => {
    fc.assert(
      fc.property(fc.nat(3), fc.nat(MEMORY_BYTES - 1), fc.nat(65535), (index, at, length) => {
        memory.setIovec(table, index, at, length)
        expect(entry(index)).toEqual({ base: BigInt(ADDRESS) + BigInt(at), length: BigInt(length) })
        expect(memory.addressAt(at)).toBe(ADDRESS + at)
        expect(memory.iovecAt(table, index)).toBe(at)
        expect(memory.iovecLength(table, index)).toBe(length)
      }),
    )
  })

  it('leaves its neighbours alone', () => {
    memory.setIovec(table, 0, 100, 1)
    memory.setIovec(table, 2, 300, 3)
    memory.setIovec(table, 1, 200, 2)
    expect([0, 1, 2].map((index) => memory.iovecAt(table, index))).toEqual([100, 200, 300])
    expect([0, 1, 2].map((index) => memory.iovecLength(table, index))).toEqual([1, 2, 3])
  })

  it('grows over the bytes behind it', () => {
    memory.setIovec(table, 0, 1000, 50)
    memory.growIovec(table, 0, 72)
    expect(entry(0)).toEqual({ base: BigInt(ADDRESS + 1000), length: 122n })
  })
})

describe('memory across a 4 GiB boundary', () => {
  it('is not used: another place is taken', () => {
    const bases = [2 ** 32 - 4096, 2 ** 40 + 2 ** 20]
    const memory = new PacketMemory(65536, () => bases.shift()!)
    expect(bases).toEqual([])
    expect(memory.addressAt(0)).toBe(2 ** 40 + 2 ** 20)
  })

  it('is given up after a few tries', () => {
    expect(() => new PacketMemory(65536, () => 2 ** 32 - 4096)).toThrow(/4 GiB/)
  })

  it('may end right at the boundary', () => {
    const memory = new PacketMemory(65536, () => 2 ** 33 - 65536)
    expect(memory.addressAt(65535)).toBe(2 ** 33 - 1)
  })
})
