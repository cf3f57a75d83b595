// The kernel's list of routes, as it stands on a host of ours.
import { describe, expect, test } from 'vitest'
import { parseIpv6, parseIpv6Prefix, parsePrefix } from '../../../dataplane/index.ts'
import { hasIpv6Address, hasIpv6Route, hasRoute, listedIpv6Routes, listedRoutes } from '../../../src/host/proc-route.ts'

const LIST = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0138A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
flannel.1\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
cni0\t0001F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
`
const has = (prefix: string, device: string) => hasRoute(LIST, parsePrefix(prefix)!, device)

describe('a route is there', () => {
  test.each([
    ['10.244.0.0/16', 'flannel.1'],
    ['10.244.1.0/24', 'cni0'],
    ['0.0.0.0/0', 'eth0'],
  ])('when prefix and device agree: %s %s', (prefix, device) => {
    expect(has(prefix, device)).toBe(true)
  })

  test.each([
    ['another device', '10.244.0.0/16', 'flannel.2'],
    ['a device whose name starts alike', '10.244.0.0/16', 'flannel.'],
    ['another network', '10.245.0.0/16', 'flannel.1'],
    ['another length', '10.244.0.0/17', 'flannel.1'],
    ['an address in it', '10.244.1.0/24', 'flannel.1'],
  ])('and not with %s', (_, prefix, device) => {
    expect(has(prefix, device)).toBe(false)
  })

  test('and not in an empty list', () => {
    expect(hasRoute('', parsePrefix('10.244.0.0/16')!, 'flannel.1')).toBe(false)
  })
})

test('all routes are listed, with gateway and device', () => {
  expect(listedRoutes(LIST)).toEqual([
    { prefix: parsePrefix('0.0.0.0/0'), gateway: '192.168.56.1', device: 'eth0' },
    { prefix: parsePrefix('10.244.0.0/16'), device: 'flannel.1' },
    { prefix: parsePrefix('10.244.1.0/24'), device: 'cni0' },
  ])
  expect(listedRoutes('')).toEqual([])
})

test('a route that leads nowhere, and one to a single host, are listed as well', () => {
  const line = (...columns: string[]) => columns.join('\t')
  const list = ['', line('*', '0002F40A', '00000000', '0200', '0', '0', '0', '00FFFFFF', '0', '0', '0')]
  list.push(line('eth0', '0702F40A', '00000000', '0005', '0', '0', '0', 'FFFFFFFF', '0', '0', '0'))
  expect(listedRoutes(list.join('\n'))).toEqual([
    { prefix: parsePrefix('10.244.2.0/24'), device: '*' },
    { prefix: parsePrefix('10.244.2.7/32'), device: 'eth0' },
  ])
})

describe('IPv6', () => {
  const zeros = '0'.repeat(32)
  const routes = `fd000010024400010000000000000000 80 ${zeros} 00 ${zeros} 00000100 00000001 00000000 00000001 flannel.1
fd000010024400010000000000000000 40 ${zeros} 00 ${zeros} 00000100 00000001 00000000 00000001     cni0
fd000010024400000000000000000000 30 ${zeros} 00 ${zeros} 00000400 00000001 00000000 00000001 flannel.1
ff000000000000000000000000000000 08 ${zeros} 00 ${zeros} 00000100 00000003 00000000 00000001 flannel.1
`
  const addresses = `00000000000000000000000000000001 01 80 10 80       lo
fd000010024400010000000000000000 03 80 00 82 flannel.1
`

  test.each([
    ['fd00:10:244::/48', 'flannel.1', true],
    ['fd00:10:244:1::/64', 'cni0', true],
    ['fd00:10:244::/48', 'cni0', false],
    ['fd00:10:244::/48', 'flannel.', false],
    ['fd00:10:244::/47', 'flannel.1', false],
    ['fd00:10:245::/48', 'flannel.1', false],
    ['fd00:10:244:1::/64', 'flannel.1', false],
  ])('route %s into %s: %s', (prefix, device, there) => {
    expect(hasIpv6Route(routes, parseIpv6Prefix(prefix)!, device)).toBe(there)
  })

  test('all routes are listed, with gateway and device', () => {
    const gateway = '20010db8000000000000000000000002'
    const far = `fd000010024400020000000000000000 40 ${zeros} 00 ${gateway} 00000400 00000001 00000000 00000003 eth0\n`
    expect(listedIpv6Routes(routes + far).slice(1)).toEqual([
      { prefix: parseIpv6Prefix('fd00:10:244:1::/64'), device: 'cni0' },
      { prefix: parseIpv6Prefix('fd00:10:244::/48'), device: 'flannel.1' },
      { prefix: parseIpv6Prefix('ff00::/8'), device: 'flannel.1' },
      { prefix: parseIpv6Prefix('fd00:10:244:2::/64'), gateway: '2001:db8::2', device: 'eth0' },
    ])
  })

  test.each([
    ['fd00:10:244:1::', 'flannel.1', true],
    ['::1', 'lo', true],
    ['fd00:10:244:1::', 'lo', false],
    ['fd00:10:244:1::1', 'flannel.1', false],
  ])('address %s on %s: %s', (address, device, there) => {
    expect(hasIpv6Address(addresses, parseIpv6(address)!, device)).toBe(there)
  })
})
