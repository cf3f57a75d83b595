// Values of `run` flags that need more than a list of choices.
import { expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import {
  DRIVERS,
  parseHealthzIp,
  parseHealthzPort,
  parseMetricsAddress,
  parsePublicIp,
  parseRenewMargin,
  refuseWorkersOf,
} from '../../../src/config/options.ts'

test('a public address is dotted decimal', () => {
  expect(parsePublicIp('192.0.2.1')).toBe(parseIpv4('192.0.2.1'))
})

test.each([
  '',
  '0.0.0.0',
  '192.0.2',
  '192.0.2.256',
  '192.0.02.1',
  'fd00::1',
  'host',
  '0.1.2.3',
  '127.0.0.1',
  '224.0.0.1',
  '255.255.255.255',
])('%j is no public address', (text) => {
  expect(() => parsePublicIp(text)).toThrow(expect.objectContaining({ code: 'usage', exitCode: 2 }))
})

test.each([1, 60, 1439])('a renew margin of %i minutes is taken', (minutes) => {
  expect(parseRenewMargin(String(minutes))).toBe(minutes)
})

test.each(['0', '1440', '-1', '1.5', 'x', ''])('a renew margin of %j is refused', (text) => {
  expect(() => parseRenewMargin(text)).toThrow(expect.objectContaining({ code: 'usage', exitCode: 2 }))
})

test.each(DRIVERS)('the %s driver may have one worker', (driver) => {
  expect(() => refuseWorkersOf(driver, 1)).not.toThrow()
})

test('several workers are for the drivers that sleep in a thread of their own', () => {
  const refused = DRIVERS.filter((driver) => {
    try {
      refuseWorkersOf(driver, 2)
      return false
    } catch (error) {
      expect(error).toMatchObject({ code: 'usage', exitCode: 2, message: expect.stringContaining(driver) })
      return true
    }
  })
  expect(refused).toEqual(['dgram', 'raw'])
})

test('metrics are on loopback unless another address is named', () => {
  expect(parseMetricsAddress(':9401')).toEqual({ host: '127.0.0.1', port: 9401 })
  expect(parseMetricsAddress('0.0.0.0:9401')).toEqual({ host: '0.0.0.0', port: 9401 })
  expect(parseMetricsAddress('[::1]:9401')).toEqual({ host: '::1', port: 9401 })
})

test.each(['', '9401', ':0', ':65536', 'node:9401', '10.1:9401', '::1:9401', '127.0.0.1:'])(
  '%j is no address for metrics',
  (text) => {
    expect(() => parseMetricsAddress(text)).toThrow(expect.objectContaining({ code: 'usage', exitCode: 2 }))
  },
)

test('health is off at port 0, and elsewhere on a port and an address', () => {
  expect([parseHealthzPort('0'), parseHealthzPort('65535'), parseHealthzIp('::')]).toEqual([0, 65535, '::'])
  for (const text of ['65536', '-1', '1.5', 'x']) expect(() => parseHealthzPort(text)).toThrow('out of range')
  expect(() => parseHealthzIp('localhost')).toThrow('no IP address')
})
