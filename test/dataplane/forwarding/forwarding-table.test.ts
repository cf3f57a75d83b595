// The forwarding table against its obvious twin: a scan over all entries for the longest prefix.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeForwardingTable, ForwardingTable, NO_ENTRY } from '../../../dataplane/forwarding/forwarding-table.ts'
import type { ForwardingEntry } from '../../../dataplane/forwarding/remote-vtep.ts'
import { containsAddress, lastAddress, prefixAround } from '../../../dataplane/wire/prefix.ts'

const vtepFor = (n: number) => ({ underlayAddress: 0xc0000200 + n, port: 8472, mac: 0x0a0000000000 + n, vni: 1 })
const tableOf = (entries: readonly ForwardingEntry[], generation = 1) =>
  new ForwardingTable(encodeForwardingTable(entries, generation))

/** The obvious twin: look at every entry, keep the longest prefix, the later one of equals. */
function linearLookup(entries: readonly ForwardingEntry[], address: number): number {
  let best = NO_ENTRY
  entries.forEach(({ prefix }, index) => {
    if (!containsAddress(prefix, address)) return
    if (best === NO_ENTRY || prefix.length >= entries[best]!.prefix.length) best = index
  })
  return best
}

// Few distinct address bits, so that random prefixes nest, touch and repeat.
const crowdedAddress = fc
  .array(fc.constantFrom<number>(0, 1, 127, 128, 254, 255), { minLength: 4, maxLength: 4 })
  .map((octets) => octets.reduce((address, octet) => address * 256 + octet, 0))
const anyEntries = fc
  .array(fc.record({ address: crowdedAddress, length: fc.integer({ min: 0, max: 32 }) }), { maxLength: 60 })
  .map((prefixes) =>
    prefixes.map(({ address, length }, n) => ({ prefix: prefixAround(address, length), vtep: vtepFor(n) })),
  )

describe('forwarding table', () => {
  it('agrees with a linear search on nested, touching and repeated prefixes', () => {
    fc.assert(
      fc.property(anyEntries, fc.array(crowdedAddress), (entries, addresses) => {
        const table = tableOf(entries)
        const edges = entries.flatMap(({ prefix }) => [prefix.address, lastAddress(prefix)])
        const around = edges.flatMap((edge) => [edge, Math.max(0, edge - 1), Math.min(0xffffffff, edge + 1)])
        for (const address of [...addresses, ...around, 0, 0xffffffff]) {
          expect(table.lookup(address)).toBe(linearLookup(entries, address))
        }
      }),
      { numRuns: 300 },
    )
  })

  it('gives back every entry and knows every peer, and nobody else', () => {
    fc.assert(
      fc.property(anyEntries, fc.integer({ min: 0, max: 0xffffffff }), (entries, stranger) => {
        const table = tableOf(entries, 7)
        expect(table.entries()).toEqual(entries)
        expect(table.generation).toBe(7)
        for (const { vtep } of entries) expect(table.hasPeer(vtep.underlayAddress)).toBe(true)
        const isPeer = entries.some(({ vtep }) => vtep.underlayAddress === stranger)
        expect(table.hasPeer(stranger)).toBe(isPeer)
      }),
    )
  })

  it('does not depend on the order of distinct prefixes', () => {
    fc.assert(
      fc.property(anyEntries, crowdedAddress, (entries, address) => {
        const distinct = [...new Map(entries.map((e) => [`${e.prefix.address}/${e.prefix.length}`, e])).values()]
        const found = (list: ForwardingEntry[]) => list[tableOf(list).lookup(address)]?.vtep
        expect(found([...distinct].reverse())).toEqual(found(distinct))
      }),
    )
  })

  it('holds 100,000 leases and finds each', () => {
    const entries = Array.from({ length: 100_000 }, (_, n) => ({
      prefix: prefixAround(0x0a000000 + n * 64, 26),
      vtep: vtepFor(n),
    }))
    const table = tableOf(entries)
    expect(table.size).toBe(100_000)
    for (let n = 0; n < entries.length; n += 37) expect(table.lookup(0x0a000000 + n * 64 + 63)).toBe(n)
    expect(table.lookup(0x0a000000 + entries.length * 64)).toBe(NO_ENTRY)
  })

  it('refuses a buffer that is no table', () => {
    expect(() => new ForwardingTable(new SharedArrayBuffer(64))).toThrow('not a forwarding table')
  })
})
