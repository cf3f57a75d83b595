// What flags come to as options: values that need more than a list of choices.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { DRIVERS } from '../../../src/config/flag-table.ts'
import { FlagValues } from '../../../src/config/flag-values.ts'
import { type RunOptions, refuseWorkersOf, runOptions } from '../../../src/config/options.ts'
import { ip6 } from '../../support/packets.ts'

const optionsOf = (flags: Readonly<Record<string, string>>): RunOptions =>
  runOptions(new FlagValues(new Map(Object.entries(flags).map(([name, text]) => [name, [text]])), {}))
const usage = expect.objectContaining({ code: 'usage', exitCode: 2 })

test('a public address is dotted decimal', () => {
  expect(optionsOf({ 'public-ip': '192.0.2.1' }).publicIp).toBe(parseIpv4('192.0.2.1'))
})

test.each([
  '0.0.0.0',
  '192.0.2',
  '192.0.2.256',
  '192.0.02.1',
  'host',
  '0.1.2.3',
  '127.0.0.1',
  '224.0.0.1',
  '255.255.255.255',
])('%j is no public address, and none to be reached', (text) => {
  expect(() => optionsOf({ 'public-ip': text })).toThrow(usage)
  expect(() => optionsOf({ 'iface-can-reach': text })).toThrow(usage)
})

test('addresses of IPv6 are taken where one is asked for, or any', () => {
  const { publicIpv6, ifaceCanReach } = optionsOf({ 'public-ipv6': '2001:db8::1', 'iface-can-reach': '2001:db8::2' })
  expect([publicIpv6, ifaceCanReach]).toEqual([ip6('2001:db8::1'), ip6('2001:db8::2')])
  expect(() => optionsOf({ 'public-ip': '2001:db8::1' })).toThrow(/not the IPv4 address of a host/)
})

test.each(['::', '::1', 'fe80::1', 'ff02::1', '::ffff:192.0.2.1', '192.0.2.1', 'fd00::1%eth0', 'host'])(
  '%j is no public IPv6 address',
  (text) => {
    expect(() => optionsOf({ 'public-ipv6': text })).toThrow(usage)
  },
)

test.each([1, 60, 1439])('a renew margin of %i minutes is taken', (minutes) => {
  expect(optionsOf({ 'subnet-lease-renew-margin': String(minutes) }).renewMarginMinutes).toBe(minutes)
})

test.each(['0', '1440', '-1', '1.5', 'x', ''])('a renew margin of %j is refused', (text) => {
  expect(() => optionsOf({ 'subnet-lease-renew-margin': text })).toThrow(usage)
})

describe('a pattern for interfaces', () => {
  test('is what Go and JavaScript both understand, with (?i) in front', () => {
    const [pattern] = optionsOf({ 'iface-regex': '(?i)^ETH[0-9]+$' }).ifaceRegexes
    expect(['eth0', 'ETH12', 'xeth0'].map((name) => pattern!.test(name))).toEqual([true, true, false])
  })

  test('that is none is refused at once', () => {
    expect(() => optionsOf({ 'iface-regex': 'eth[' })).toThrow(/--iface-regex eth\[ is no pattern/)
  })
})

test('etcd endpoints are separated by commas, blanks around them do not count', () => {
  const { etcd } = optionsOf({ 'etcd-endpoints': 'https://a:2379, https://b:2379,' })
  expect(etcd.endpoints).toEqual(['https://a:2379', 'https://b:2379'])
})

test.each([
  [{ FLANNELD_ETCD_ENDPOINTS: 'htps://a:1' }, /^FLANNELD_ETCD_ENDPOINTS: htps:\/\/a:1 is no endpoint/],
  [{ FLANNELD_ETCD_ENDPOINTS: ' , ' }, /^FLANNELD_ETCD_ENDPOINTS names no server/],
  [{ FLANNELLETTE_ETCD_KEYFILE: 'a.key' }, /^FLANNELLETTE_ETCD_KEYFILE without --etcd-certfile/],
])('a complaint about etcd names the variable that it came from: %j', (environment, words) => {
  const wrong = expect.objectContaining({ exitCode: 2, message: expect.stringMatching(words) })
  expect(() => runOptions(new FlagValues(new Map(), environment))).toThrow(wrong)
})

test('health listens on an address', () => {
  expect(optionsOf({ 'healthz-ip': '::1' }).healthzIp).toBe('::1')
  expect(() => optionsOf({ 'healthz-ip': 'localhost' })).toThrow(usage)
})

test.each([
  [':9401', '127.0.0.1', 9401],
  ['[::1]:9401', '::1', 9401],
  ['0.0.0.0:80', '0.0.0.0', 80],
])('metrics listen on %s', (text, host, port) => {
  expect(optionsOf({ 'metrics-address': text }).metricsAddress).toEqual({ host, port })
})

test.each(['9401', ':0', ':65536', 'localhost:9401', '::1:9401'])('metrics do not listen on %s', (text) => {
  expect(() => optionsOf({ 'metrics-address': text })).toThrow(usage)
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

test('DF is for the drivers whose kernel says which packet was too large, and not for its own VTEP, which tells no pod', () => {
  const refused = DRIVERS.filter((driver) => {
    try {
      return optionsOf({ driver, 'outer-df': 'set' }).outerDf !== 'set'
    } catch (error) {
      expect(error).toMatchObject({ code: 'usage', exitCode: 2, message: expect.stringContaining(driver) })
      return true
    }
  })
  expect(refused).toEqual(['dgram', 'raw'])
  expect(() => optionsOf({ dataplane: 'kernel', 'outer-df': 'set' })).toThrow(/not for --dataplane kernel/)
  expect(optionsOf({ dataplane: 'kernel', 'outer-df': 'clear' }).outerDf).toBe('clear')
  expect(optionsOf({ driver: 'raw' }).outerDf).toBe('clear')
})

test('flags that were set and that only a tunnel looks at are known by name, where the chosen dataplane looks at them', () => {
  const flags = { 'outer-df': 'set', workers: '2', 'ip-masq': 'true' }
  expect(optionsOf(flags).tunnelFlags).toEqual(['--outer-df', '--workers'])
  expect(optionsOf({ 'outer-df': 'clear' }).tunnelFlags).toEqual([])
  expect(optionsOf({ dataplane: 'kernel', workers: '2', 'udp-checksum': 'off' }).tunnelFlags).toEqual([
    '--udp-checksum',
  ])
  expect(optionsOf({ dataplane: 'auto', workers: '2', 'udp-checksum': 'off' }).tunnelFlags).toEqual([
    '--workers',
    '--udp-checksum',
  ])
})

describe('addresses to which pods keep their own', () => {
  test('are prefixes of both families, and of no use where nobody masquerades', () => {
    const given = { 'ip-masq': 'true', 'ip-masq-exclude': '192.0.2.9/24' }
    expect(optionsOf(given)).toMatchObject({ ipMasqExclude: [parsePrefix('192.0.2.0/24')], notices: [] })
    const ipv6 = optionsOf({ 'ip-masq-exclude': 'fd00:56::/64' })
    expect(ipv6.ipMasqExclude).toEqual([parseIpv6Prefix('fd00:56::/64')])
    expect(ipv6.notices).toEqual(['--ip-masq-exclude has no effect without --ip-masq'])
  })

  test.each([
    ['192.0.2.1', /is no CIDR/],
    ['0.0.0.0/0', /are all addresses/],
    ['::/0', /are all addresses/],
  ])('are not %s', (text, problem) => {
    expect(() => optionsOf({ 'ip-masq-exclude': text })).toThrow(problem)
  })
})

describe('flags for etcd that come to nothing are told', () => {
  const TLS = { 'etcd-cafile': 'ca.pem', 'etcd-certfile': 'a.pem', 'etcd-keyfile': 'a.key' }

  test.each([
    ['a certificate where etcd is spoken to in plain text', { ...TLS, 'etcd-endpoints': 'http://a:1' }, 3],
    ['none when one endpoint is spoken to by TLS', { ...TLS, 'etcd-endpoints': 'http://a:1,https://b:2' }, 0],
    ['a password without a user', { 'etcd-password': 'hunter2' }, 1],
    ['none with both', { 'etcd-password': 'hunter2', 'etcd-username': 'u' }, 0],
    ['all of them where leases are in a directory', { ...TLS, 'etcd-prefix': '/x', store: 'file:/store' }, 4],
    ['none that is empty', { 'etcd-cafile': '', 'etcd-password': '' }, 0],
  ])('%s', (_, flags, count) => {
    const { notices } = optionsOf(flags as Readonly<Record<string, string>>)
    expect(notices.filter((notice) => / has no effect/.test(notice))).toHaveLength(count)
    expect(notices.join()).not.toContain('hunter2')
  })
})
