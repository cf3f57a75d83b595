// Addresses as numbers and as people write them.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { formatIpv4, formatMac, parseIpv4, parseMac } from '../../../dataplane/wire/address.ts'

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
