// The forwarding table against its obvious twin: a scan over all entries for the longest prefix.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeForwardingTable, ForwardingTable, NO_ENTRY } from '../../../dataplane/forwarding/forwarding-table.ts'
import type { ForwardingEntry } from '../../../dataplane/forwarding/remote-vtep.ts'
import { containsAddress, lastAddress, prefixAround } from '../../../dataplane/wire/prefix.ts'
import { bytesOfIpv6 } from '../../support/packets.ts'

const vtepFor = (n: number) => ({ underlayAddress: 0xc0000200 + n, port: 8472, mac: 0x0a0000000000 + n, vni: 1 })
const tableOf = (entries: readonly ForwardingEntry[], generation = 1) =>
  new ForwardingTable(encodeForwardingTable(entries, generation))

/** The obvious twin: look at every entry, keep the longest prefix, the later one of equals. */
function linearLookup(entries: readonly ForwardingEntry[], address: number | bigint): number {
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

// Bytes at the edges of words, so that each of the four decides now and then.
const crowdedIpv6 = fc
  .array(fc.constantFrom<bigint>(0n, 1n, 127n, 128n, 254n, 255n), { minLength: 16, maxLength: 16 })
  .map((bytes) => bytes.reduce((address, byte, at) => address * 256n + (at % 4 === 1 || at % 4 === 2 ? 0n : byte), 0n))
const mixedEntries = fc
  .array(
    fc.oneof(
      fc.tuple(crowdedIpv6, fc.integer({ min: 0, max: 128 })).map(([address, length]) => prefixAround(address, length)),
      fc
        .tuple(crowdedAddress, fc.integer({ min: 0, max: 32 }))
        .map(([address, length]) => prefixAround(address, length)),
    ),
    { maxLength: 60 },
  )
  .map((prefixes) => prefixes.map((prefix, n) => ({ prefix, vtep: vtepFor(n) })))
const LAST_IPV6 = (1n << 128n) - 1n

const lookupIpv6 = (table: ForwardingTable, address: bigint): number =>
  table.lookupIpv6(new DataView(bytesOfIpv6(address).buffer), 0)

describe('forwarding table of both families', () => {
  it('agrees with a linear search on nested, touching and repeated prefixes', () => {
    fc.assert(
      fc.property(mixedEntries, fc.array(crowdedIpv6), fc.array(crowdedAddress), (entries, wide, narrow) => {
        const table = tableOf(entries)
        const edges = entries.flatMap(({ prefix }) =>
          typeof prefix.address === 'bigint'
            ? [prefix.address, lastAddress({ ...prefix, address: prefix.address })]
            : [],
        )
        const around = edges.flatMap((edge) => [edge, edge > 0n ? edge - 1n : 0n, edge < LAST_IPV6 ? edge + 1n : edge])
        for (const address of [...wide, ...around, 0n, LAST_IPV6]) {
          expect(lookupIpv6(table, address)).toBe(linearLookup(entries, address))
        }
        for (const address of [...narrow, 0, 0xffffffff]) {
          expect(table.lookup(address)).toBe(linearLookup(entries, address))
        }
        expect(table.entries()).toEqual(entries)
      }),
      { numRuns: 200 },
    )
  })

  it('knows no IPv6 address when it is empty or holds IPv4 alone', () => {
    const narrow = [{ prefix: prefixAround(0, 0), vtep: vtepFor(1) }]
    for (const entries of [[], narrow]) {
      for (const address of [0n, 1n, LAST_IPV6]) expect(lookupIpv6(tableOf(entries), address)).toBe(NO_ENTRY)
    }
  })

  it('reads an address wherever it stands', () => {
    const table = tableOf([{ prefix: prefixAround(0xfd00n << 112n, 16), vtep: vtepFor(1) }])
    const bytes = Uint8Array.from([1, 2, 3, ...bytesOfIpv6((0xfd00n << 112n) + 7n)])
    expect(table.lookupIpv6(new DataView(bytes.buffer), 3)).toBe(0)
  })

  it('holds 100,000 leases of both families and finds each', () => {
    const base = 0xfd00_0010n << 96n
    const entries = Array.from({ length: 100_000 }, (_, n): ForwardingEntry => {
      const prefix = n % 2 === 0 ? prefixAround(0x0a000000 + n * 64, 26) : prefixAround(base + (BigInt(n) << 64n), 64)
      return { prefix, vtep: vtepFor(n) }
    })
    const table = tableOf(entries)
    expect(table.size).toBe(100_000)
    for (let n = 0; n < entries.length; n += 74) {
      expect(table.lookup(0x0a000000 + n * 64 + 63)).toBe(n)
      expect(lookupIpv6(table, base + (BigInt(n + 1) << 64n) + 0xffff_ffff_ffff_ffffn)).toBe(n + 1)
      expect(lookupIpv6(table, base + (BigInt(n) << 64n))).toBe(NO_ENTRY)
    }
  })
})

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
        for (const { vtep } of entries) expect(table.peers.indexOf(Number(vtep.underlayAddress)) >= 0).toBe(true)
        const isPeer = entries.some(({ vtep }) => vtep.underlayAddress === stranger)
        expect(table.peers.indexOf(stranger) >= 0).toBe(isPeer)
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
