// Lease keys and values in flannel's form.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatIpv4, parseIpv4, parseMac } from '../../../dataplane/wire/address.ts'
import { parsePrefix, prefixAround } from '../../../dataplane/wire/prefix.ts'
import { JsonProblem } from '../../../src/config/json-document.ts'
import {
  formatLeaseValue,
  formatSubnetKey,
  parseLeaseValue,
  parseSubnetKey,
  vtepMacOf,
  vxlanData,
} from '../../../src/store/flannel-json.ts'
import { cpuMsOf } from '../../support/cpu-time.ts'

describe('keys', () => {
  test('an IPv4 key is read and written alike', () => {
    const key = parseSubnetKey('10.12.13.0-24')
    expect(key).toEqual({ subnet: parsePrefix('10.12.13.0/24'), ipv6Subnet: null })
    expect(formatSubnetKey(key!)).toBe('10.12.13.0-24')
  })

  test('a dual-stack key is read and written alike', () => {
    const key = parseSubnetKey('10.12.13.0-24&fd00:12:13::-56')
    expect(key).toEqual({ subnet: parsePrefix('10.12.13.0/24'), ipv6Subnet: 'fd00:12:13::/56' })
    expect(formatSubnetKey(key!)).toBe('10.12.13.0-24&fd00:12:13::-56')
  })

  test('a key without IPv4 has flannel’s word for none in its place', () => {
    const key = parseSubnetKey('0.0.0.0-0&fd00:12:13::-56')
    expect(key).toEqual({ subnet: null, ipv6Subnet: 'fd00:12:13::/56' })
    expect(formatSubnetKey(key!)).toBe('0.0.0.0-0&fd00:12:13::-56')
  })

  test.each([
    '10',
    '10.12.13.0',
    '10.12.13-24',
    '10.12.13.300-24',
    '10.12.13.0-24hi',
    '&2001::-56',
    '10.12.13.0-24&:12:13:-56',
    '10.12.13.0-24&20011::-56',
    '10.12.13.0-24&2001-56',
    '10.12.13.0-24&2001::',
    '10.12.13.0-24&2001::-56hi',
    '10.12.13.0-32',
    '10.12.13.0-24&2001::-128',
    '10.12.13.0-24&2001::A-56',
    '10.012.13.0-24',
    '0.0.0.0-0',
    '0.0.0.0-0&fd00::',
    '',
  ])('%j is no key', (text) => {
    expect(parseSubnetKey(text)).toBeNull()
  })

  test('what stands before the first octet is ignored, host bits are cleared', () => {
    expect(parseSubnetKey('/x/y10.12.13.7-24')).toEqual({ subnet: parsePrefix('10.12.13.0/24'), ipv6Subnet: null })
  })

  test('a key as long as etcd takes one is read in no time', () => {
    const spentMs = cpuMsOf(() => {
      for (const tail of ['', '.', '-24', '.0.0.0-24x']) expect(parseSubnetKey('1'.repeat(100_000) + tail)).toBeNull()
      expect(parseSubnetKey(`${'x'.repeat(1_000_000)}10.12.13.0-24`)?.subnet).toEqual(parsePrefix('10.12.13.0/24'))
    })
    expect(spentMs).toBeLessThan(1000)
  })

  test('every subnet that a key can express survives the round trip', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 32 - 1 }), fc.integer({ min: 1, max: 31 }), (address, length) => {
        const key = { subnet: prefixAround(address, length), ipv6Subnet: null }
        expect(parseSubnetKey(formatSubnetKey(key))).toEqual(key)
      }),
    )
  })

  test('random text never throws', () => {
    const soup = fc.string({ unit: fc.constantFrom('10.0.0.0', '-', '24', '&', 'fd00::', '1', '.', 'x') })
    fc.assert(fc.property(soup, (text) => void parseSubnetKey(text)))
  })
})

describe('values', () => {
  const VXLAN =
    '{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}'

  test('a vxlan lease is written byte for byte', () => {
    const text = formatLeaseValue({
      publicIp: parseIpv4('192.168.64.3')!,
      publicIpv6: null,
      backendType: 'vxlan',
      backendData: vxlanData(1, parseMac('c6:d2:32:6f:8f:44')!),
    })
    expect(text).toBe(VXLAN)
    expect(formatLeaseValue(parseLeaseValue(VXLAN))).toBe(VXLAN)
  })

  test.each([
    '{"PublicIP":"1.2.3.4","PublicIPv6":null}',
    '{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::1","BackendType":"wireguard","BackendV6Data":{"PublicKey":"x="}}',
  ])('%s survives the round trip', (text) => {
    expect(formatLeaseValue(parseLeaseValue(text))).toBe(text)
  })

  test('keys match whatever their case, the last one wins, unknown ones are ignored', () => {
    const value = parseLeaseValue('{"publicip":"1.2.3.4","PUBLICIP":"1.2.3.5","backendtype":"vxlan","New":{}}')
    expect([formatIpv4(value.publicIp), value.backendType]).toEqual(['1.2.3.5', 'vxlan'])
  })

  test.each([
    '{"PublicIP":null}',
    '{"PublicIP":"1.2.3.400"}',
    '{"PublicIP":16909060}',
    '{"PublicIP":"1.2.3.4","PublicIPv6":"x"}',
    '{"PublicIP":"1.2.3.4","BackendType":1}',
    '[]',
    '{',
    '',
  ])('%j is refused', (text) => {
    expect(() => parseLeaseValue(text)).toThrow(JsonProblem)
  })
})

test('a random value is read or refused, never anything else, and neither is its MAC', () => {
  const words = ['PublicIP', 'PublicIPv6', 'BackendType', 'BackendData', '1.2.3.4', 'fd00::1', 'VtepMAC', 'null', '1']
  const soup = fc.string({ unit: fc.constantFrom(...'{}[]":, \\-', ...words) })
  const member = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom('1.2.3.4', 'fd00::1', 'vxlan', { VtepMAC: '0a:00:00:00:00:01' }),
  )
  const almost = fc.dictionary(fc.constantFrom(...words), member).map((value) => JSON.stringify(value))
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), soup, almost), (text) => {
      try {
        const value = parseLeaseValue(text)
        vtepMacOf(value)
        expect(parseLeaseValue(formatLeaseValue(value))).toEqual(value)
      } catch (error) {
        expect(error).toBeInstanceOf(JsonProblem)
      }
    }),
  )
})

describe('the VTEP MAC of a lease', () => {
  const macOf = (backendData: unknown) => {
    return vtepMacOf({ publicIp: 1, publicIpv6: null, backendType: 'vxlan', backendData })
  }

  test.each(['0A:00:00:00:00:01', '0a-00-00-00-00-01', '0a00.0000.0001'])('%s is understood', (text) => {
    expect(macOf({ VNI: 1, VtepMAC: text })).toBe(0x0a_00_00_00_00_01)
  })

  test.each([
    ['absent data', undefined],
    ['null data', null],
    ['text for data', 'x'],
    ['no MAC', { VNI: 1 }],
    ['the empty MAC that Windows nodes write first', { VNI: 1, VtepMAC: '' }],
    ['a number', { VtepMAC: 1 }],
    ['the zero MAC', { VtepMAC: '00:00:00:00:00:00' }],
    ['a multicast MAC', { VtepMAC: '01:00:5e:00:00:01' }],
    ['broadcast', { VtepMAC: 'ff:ff:ff:ff:ff:ff' }],
  ])('%s gives none', (_, data) => {
    expect(macOf(data)).toBeNull()
  })
})
