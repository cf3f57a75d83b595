// The kernel's list of routes, as it stands on a host of ours.
import { describe, expect, test } from 'vitest'
import { parseIpv6, parseIpv6Prefix, parsePrefix } from '../../../dataplane/index.ts'
import { hasIpv6Address, hasIpv6Route, hasRoute } from '../../../src/host/proc-route.ts'

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

  test.each([
    ['fd00:10:244:1::', 'flannel.1', true],
    ['::1', 'lo', true],
    ['fd00:10:244:1::', 'lo', false],
    ['fd00:10:244:1::1', 'flannel.1', false],
  ])('address %s on %s: %s', (address, device, there) => {
    expect(hasIpv6Address(addresses, parseIpv6(address)!, device)).toBe(there)
  })
})
