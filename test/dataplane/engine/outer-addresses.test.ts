// What stands for underlay addresses on the fast path: the same number for the same sender, an address for every number.
import { describe, expect, it } from 'vitest'
import { NARROW_ADDRESSES, WideAddresses } from '../../../dataplane/engine/outer-addresses.ts'
import { encodeForwardingTable, ForwardingTable } from '../../../dataplane/forwarding/forwarding-table.ts'
import { OuterNumbers } from '../../../dataplane/forwarding/outer-numbers.ts'
import { prefixAround } from '../../../dataplane/wire/prefix.ts'
import { bytesOfIpv6, ip6 } from '../../support/packets.ts'

const PEER = ip6('fd00::12')
const OTHER = ip6('fd00::13')
const STRANGERS_KEPT = 64

function addressesOf(peers: readonly bigint[], numbers = new OuterNumbers()) {
  const addresses = new WideAddresses()
  const replace = (now: readonly bigint[]) => {
    const entries = now.map((underlayAddress, n) => ({
      prefix: prefixAround(n * 256, 24),
      vtep: { underlayAddress, port: 8472, mac: 1, vni: 1 },
    }))
    addresses.replaceTable(new ForwardingTable(encodeForwardingTable(entries, 1, numbers)))
  }
  replace(peers)
  const numberOf = (address: bigint) => addresses.numberOf(new DataView(bytesOfIpv6(address).buffer), 0)
  const written = (number: number) => {
    const bytes = new Uint8Array(16).fill(0xee)
    addresses.write(number, new DataView(bytes.buffer), 0)
    return bytes
  }
  return { addresses, replace, numberOf, written }
}

describe('addresses of IPv6', () => {
  it('are written and named for the number that they were received under', () => {
    const { addresses, numberOf, written } = addressesOf([PEER, OTHER])
    for (const address of [PEER, OTHER, PEER, ip6('2001:db8::1')]) {
      expect(written(numberOf(address))).toEqual(bytesOfIpv6(address))
      expect(addresses.addressOf(numberOf(address))).toBe(address)
    }
  })

  it('make a stranger of whoever is in the table no more, and a peer of whoever has come in', () => {
    const { replace, numberOf } = addressesOf([PEER])
    const before = numberOf(PEER)
    expect(before).toBeGreaterThan(0)
    expect(numberOf(OTHER)).toBeLessThan(0)
    replace([OTHER])
    expect(numberOf(OTHER)).toBeGreaterThan(0)
    expect(numberOf(PEER)).toBeLessThan(0)
    replace([PEER, OTHER])
    expect(numberOf(PEER)).toBe(before)
  })

  it('give a stranger one number, however many of them come in turns', () => {
    const { numberOf } = addressesOf([])
    const [first, second] = [numberOf(1n), numberOf(2n)]
    expect([numberOf(1n), numberOf(2n), numberOf(1n)]).toEqual([first, second, first])
    expect(first).not.toBe(second)
  })

  it('forget the earliest of too many strangers', () => {
    const { addresses, numberOf } = addressesOf([])
    const first = numberOf(ip6('2001:db8::1'))
    for (let n = 0; n < STRANGERS_KEPT; n++) numberOf(ip6('2001:db8:1::') + BigInt(n))
    expect(addresses.addressOf(first)).not.toBe(ip6('2001:db8::1'))
  })

  it('are zeros for a number that is nobody’s', () => {
    const { addresses, written } = addressesOf([PEER])
    expect(written(9999)).toEqual(new Uint8Array(16))
    expect(addresses.addressOf(9999)).toBe(0n)
  })
})

it('addresses of IPv4 are their own numbers, signed or unsigned', () => {
  expect(NARROW_ADDRESSES.addressOf(0xc0000201 | 0)).toBe(0xc0000201)
  expect(NARROW_ADDRESSES.addressOf(0xc0000201)).toBe(0xc0000201)
})
