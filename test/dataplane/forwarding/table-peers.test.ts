// The peers of a table against their obvious twin, a list: by number on the way out, by address on the way in.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeForwardingTable, ForwardingTable, NO_ENTRY } from '../../../dataplane/forwarding/forwarding-table.ts'
import { OuterNumbers } from '../../../dataplane/forwarding/outer-numbers.ts'
import { encodePeers } from '../../../dataplane/forwarding/table-peers.ts'
import { prefixAround } from '../../../dataplane/wire/prefix.ts'
import { bytesOfIpv6 } from '../../support/packets.ts'

// Few distinct words, so that addresses share most of them.
const word = fc.constantFrom(0n, 1n, 2n, 0x8000_0000n, 0xffff_ffffn)
const address = fc
  .tuple(word, word, word, word)
  .map((words) => words.reduce<bigint>((all, one) => (all << 32n) | one, 0n))
const addresses = fc.uniqueArray(address, { maxLength: 80 })

const entriesOf = (peers: readonly bigint[]) =>
  peers.map((underlayAddress, n) => ({
    prefix: prefixAround(0x0af40000 + n * 256, 24),
    vtep: { underlayAddress, port: 8472, mac: n + 1, vni: 1 },
  }))
const tableOf = (peers: readonly bigint[], numbers?: OuterNumbers) =>
  new ForwardingTable(encodeForwardingTable(entriesOf(peers), 1, numbers))
const viewOf = (one: bigint) => new DataView(bytesOfIpv6(one).buffer)

describe('peers with IPv6 addresses', () => {
  it('are found by their address, and nobody else is', () => {
    fc.assert(
      fc.property(addresses, address, (peers, other) => {
        const table = tableOf(peers)
        for (const peer of peers) {
          expect(table.peers.address(table.peers.indexOfIpv6(viewOf(peer), 0))).toBe(peer)
        }
        const found = table.peers.indexOfIpv6(viewOf(other), 0)
        expect(found !== NO_ENTRY).toBe(peers.includes(other))
      }),
    )
  })

  it('come out of the table as they went in, by entry and as bytes', () => {
    fc.assert(
      fc.property(addresses, (peers) => {
        const table = tableOf(peers)
        expect(table.entries()).toEqual(entriesOf(peers))
        expect(new Set(table.peers.addresses())).toEqual(new Set(peers))
        for (const [entry, peer] of peers.entries()) {
          const bytes = new Uint8Array(20)
          table.peers.writeIpv6(table.peers.indexOf(table.peer(entry)), new DataView(bytes.buffer), 2)
          expect(bytes.slice(2, 18)).toEqual(bytesOfIpv6(peer))
        }
      }),
    )
  })

  it('keep their numbers from table to table, and no number is given twice', () => {
    const numbers = new OuterNumbers()
    const before = [1n, 2n, 3n].map((peer) => numbers.of(peer))
    tableOf([3n, 4n], numbers)
    expect([1n, 2n, 3n].map((peer) => numbers.of(peer))).toEqual(before)
    expect(before).not.toContain(numbers.of(4n))
  })

  it('are forgotten with their numbers once many of them are gone', () => {
    const numbers = new OuterNumbers()
    const first = numbers.of(1n)
    for (let n = 0; n < 2000; n++) numbers.of(BigInt(n + 10))
    numbers.forgetAllBut(entriesOf([1n]))
    expect(numbers.of(1n)).toBe(first)
    expect(numbers.of(10n)).toBeGreaterThan(2000)
  })

  it('are not mixed with peers of IPv4', () => {
    expect(() => encodePeers(new Set([1, 1n]), new OuterNumbers())).toThrow('both families')
  })

  it('are 100,000 without a long way to any of them', () => {
    const peers = Array.from({ length: 100_000 }, (_, n) => (0xfd00n << 112n) | (BigInt(n) << 16n) | 5n)
    const { peers: section } = tableOf(peers)
    for (let n = 0; n < peers.length; n += 97) {
      expect(section.address(section.indexOfIpv6(viewOf(peers[n]!), 0))).toBe(peers[n])
    }
  })
})
