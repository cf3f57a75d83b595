// Addresses as numbers and as people write them; for IPv6, Node and ipaddr.js are asked too.
import { isIPv6 } from 'node:net'
import fc from 'fast-check'
import ipaddr from 'ipaddr.js'
import { describe, expect, it } from 'vitest'
import { formatIpv4, formatIpv6, formatMac, parseIpv4, parseIpv6, parseMac } from '../../../dataplane/wire/address.ts'
import { ipv6Addresses } from '../../support/wire-properties.ts'

describe('an IPv4 address', () => {
  it('is read back from what was written', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffff_ffff }), (address) => {
        expect(parseIpv4(formatIpv4(address))).toBe(address)
      }),
    )
  })

  it.each([
    ['0.0.0.0', 0],
    ['10.244.1.2', 0x0af40102],
    ['255.255.255.255', 0xffff_ffff],
  ])('%s is the number %i', (text, address) => {
    expect(parseIpv4(text)).toBe(address)
    expect(formatIpv4(address)).toBe(text)
  })

  it.each([
    '',
    '10.244.1',
    '10.244.1.2.3',
    '10.244.1.256',
    '010.244.1.2',
    '10.244.1.2 ',
    '10.244.1.-2',
    '0x0a.0.0.1',
    '::1',
  ])('%j is refused', (text) => {
    expect(parseIpv4(text)).toBeNull()
  })
})

/** The address that Node's URL and ipaddr.js read; the URL removes dots, of which ipaddr.js makes something else. */
const byOthers = (text: string) =>
  ipaddr.IPv6.parse(new URL(`http://[${text}]`).hostname.slice(1, -1))
    .toByteArray()
    .reduce((address, byte) => (address << 8n) | BigInt(byte), 0n)

/** Pieces out of which addresses are made, and some that are none. */
const nearlyIpv6 = fc
  .array(
    fc.constantFrom(
      '0',
      '00',
      '1',
      'ffff',
      'FD00',
      '0001',
      ':',
      ':',
      ':',
      '::',
      '1.2.3.4',
      '01.2.3.4',
      '12345',
      'g',
      '.',
    ),
    {
      maxLength: 18,
    },
  )
  .map((pieces) => pieces.join(''))

/** Nothing but groups and colons: often a good address. */
const groupsAndColons = fc
  .tuple(fc.array(fc.constantFrom('0', 'a', 'ffff'), { maxLength: 9 }), fc.nat(9), fc.constantFrom('', ':1.2.3.4'))
  .map(([groups, gap, end]) => `${groups.slice(0, gap).join(':')}::${groups.slice(gap).join(':')}${end}`)

describe('an IPv6 address', () => {
  it('is read back from what was written, which is what Node and ipaddr.js read too', () => {
    fc.assert(
      fc.property(ipv6Addresses, (address) => {
        const text = formatIpv6(address)
        expect(isIPv6(text)).toBe(true)
        expect(parseIpv6(text)).toBe(address)
        expect(byOthers(text)).toBe(address)
      }),
      { numRuns: 500 },
    )
  })

  it('is written as ipaddr.js writes it after RFC 5952, but for the dotted end of an IPv4-mapped one', () => {
    fc.assert(
      fc.property(ipv6Addresses, (address) => {
        const theirs = ipaddr.IPv6.parse(formatIpv6(address))
        expect(formatIpv6(address)).toBe(
          theirs.isIPv4MappedAddress() ? `::ffff:${theirs.toIPv4Address()}` : theirs.toRFC5952String(),
        )
      }),
      { numRuns: 500 },
    )
  })

  it('is accepted exactly where Node accepts it', () => {
    let accepted = 0
    fc.assert(
      fc.property(fc.oneof(nearlyIpv6, groupsAndColons), (text) => {
        const address = parseIpv6(text)
        expect(address !== null, text).toBe(isIPv6(text))
        if (address === null) return
        accepted += 1
        expect(address).toBe(byOthers(text))
      }),
      { numRuns: 3000 },
    )
    expect(accepted).toBeGreaterThan(100)
  })

  it.each([
    ['::', 0n, '::'],
    ['::1', 1n, '::1'],
    ['FD00:10:244:1::', 0xfd00_0010_0244_0001n << 64n, 'fd00:10:244:1::'],
    ['1:0:0:2:0:0:0:3', 0x0001_0000_0000_0002_0000_0000_0000_0003n, '1:0:0:2::3'],
    ['1:0:0:2:3:0:0:4', 0x0001_0000_0000_0002_0003_0000_0000_0004n, '1::2:3:0:0:4'],
    ['1:2:3:4:5:6:7::', 0x0001_0002_0003_0004_0005_0006_0007_0000n, '1:2:3:4:5:6:7:0'],
    ['::ffff:0a00:0001', 0xffff_0a00_0001n, '::ffff:10.0.0.1'],
    ['64:ff9b::192.0.2.33', 0x0064_ff9b_0000_0000_0000_0000_c000_0221n, '64:ff9b::c000:221'],
    ['::1.2.3.4', 0x0102_0304n, '::102:304'],
  ])('%s is the number %i and is written %s', (text, address, written) => {
    expect(parseIpv6(text)).toBe(address)
    expect(formatIpv6(address)).toBe(written)
  })

  it.each([
    '',
    ':',
    ':::',
    '1',
    '1::2::3',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7::8',
    '12345::',
    ':1::2',
    '1::2:',
    'fe80::1%eth0',
    'fd00::/64',
    '::1.2.3',
    '::01.2.3.4',
    '1.2.3.4::',
    '10.244.1.2',
    ' ::1',
  ])('%j is refused', (text) => {
    expect(parseIpv6(text)).toBeNull()
  })
})

describe('a MAC', () => {
  it('is read back from what was written', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffff_ffff_ffff }), (mac) => {
        expect(formatMac(mac)).toMatch(/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/)
        expect(parseMac(formatMac(mac))).toBe(mac)
      }),
    )
  })

  it.each(['0e:5a:00:00:00:0B', '0e-5a-00-00-00-0b', '0e5a.0000.000b'])('is read as %s', (text) => {
    expect(parseMac(text)).toBe(0x0e5a_0000_000b)
  })

  it.each([
    '',
    '0e:5a:00:00:00',
    '0e:5a:00:00:00:0b:01',
    '0e:5a-00:00:00:0b',
    '0e5a0000000b',
    '0e:5a:00:00:00:0g',
    'e:5a:0:0:0:b',
  ])('%j is refused', (text) => {
    expect(parseMac(text)).toBeNull()
  })
})
