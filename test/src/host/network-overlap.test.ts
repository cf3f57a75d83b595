// What stands in the way of the pod network's route.
import { expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import type { RouteInfo } from '../../../src/host/ip.ts'
import { findNetworkOverlap } from '../../../src/host/network-overlap.ts'

const CONNECTED: RouteInfo = { dst: '192.0.2.0/24', dev: 'eth0', protocol: 'kernel', prefsrc: '192.0.2.1' }
const DEFAULT: RouteInfo = { dst: 'default', gateway: '192.0.2.254', dev: 'eth0', protocol: 'static' }

function overlap(network: string, ...routes: RouteInfo[]) {
  const underlayAddress = parseIpv4('192.0.2.1')!
  const prefix = (parsePrefix(network) ?? parseIpv6Prefix(network))!
  const place = { network: prefix, deviceName: 'flannel.1', underlayInterface: 'eth0', underlayAddress }
  return findNetworkOverlap(place, [DEFAULT, CONNECTED, ...routes])
}

test.each<[string, RouteInfo[]]>([
  ['nothing', []],
  ['our own route, of this device or a former one', [{ dst: '10.244.0.0/16', dev: 'flannel.2', protocol: '142' }]],
  ['a route into our own device', [{ dst: '10.244.0.0/16', dev: 'flannel.1', protocol: 'boot' }]],
  ['the bridge of our own pods', [{ dst: '10.244.1.0/24', dev: 'cni0', protocol: 'kernel', prefsrc: '10.244.1.1' }]],
  ['a wider route', [{ dst: '10.0.0.0/8', gateway: '192.0.2.254', dev: 'eth0', protocol: 'static' }]],
])('%s is not in the way', (_, routes) => {
  expect(overlap('10.244.0.0/16', ...routes)).toBeNull()
})

test.each<RouteInfo>([
  { dst: '10.244.0.0/16', gateway: '192.0.2.254', dev: 'eth0', protocol: 'static' },
  { dst: '10.244.0.0/16', dev: 'eth1', protocol: 'kernel' },
  { dst: '10.244.0.0/16', dev: 'eth1' },
])('somebody’s route for exactly the network is in the way: %j', (route) => {
  expect(overlap('10.244.0.0/16', route)).toContain('not ours')
})

test.each(['192.0.2.0/24', '192.0.0.0/16', '192.0.2.0/25'])('%s would cover this host’s own address', (network) => {
  expect(overlap(network)).toContain('192.0.2.1')
})

test('a network that covers another prefix of the underlay interface is refused', () => {
  const second: RouteInfo = { dst: '10.244.7.0/24', dev: 'eth0', protocol: 'kernel', prefsrc: '10.244.7.1' }
  expect(overlap('10.244.0.0/16', second)).toContain('10.244.7.0/24')
})

test.each<RouteInfo>([
  { dst: 'fd00:10:244::/48', gateway: 'fe80::9', dev: 'eth0', protocol: 'ra' },
  { dst: 'fd00:10:244:7::/64', dev: 'eth0', protocol: 'kernel' },
  { dst: 'fd00:10:244:7::1', dev: 'eth0', protocol: 'kernel' },
])('an IPv6 network is kept off routes of others as well: %j', (route) => {
  expect(overlap('fd00:10:244::/48', route)).not.toBeNull()
})

test.each<RouteInfo>([
  { dst: 'fd00:10:244::/48', dev: 'flannel.1', protocol: '142', prefsrc: 'fd00:10:244:1::' },
  { dst: 'fd00:10:244:1::/64', dev: 'cni0', protocol: 'kernel' },
  { dst: 'fe80::/64', dev: 'eth0', protocol: 'kernel' },
  { dst: 'default', gateway: 'fe80::9', dev: 'eth0', protocol: 'ra' },
])('and these are not in its way: %j', (route) => {
  expect(overlap('fd00:10:244::/48', route)).toBeNull()
})
