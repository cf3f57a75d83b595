// Which underlay interface and addresses are chosen where tunnels go between IPv6 addresses, alone or beside IPv4.
import { describe, expect, test } from 'vitest'
import type { UnderlayWishes } from '../../../src/config/options.ts'
import type { UnderlayFamilies } from '../../../src/config/tunnel-backend.ts'
import type { AddressInfo, LinkInfo } from '../../../src/host/ip.ts'
import { bestAddress, carries, chooseUnderlay, type UnderlayFacts } from '../../../src/host/underlay-interface.ts'
import { ip, ip6 } from '../../support/packets.ts'

const inet = (local: string): AddressInfo => ({ family: 'inet', local, prefixlen: 24, scope: 'global' })
const inet6 = (local: string, more: Partial<AddressInfo> = {}): AddressInfo => {
  return { family: 'inet6', local, prefixlen: 64, scope: local.startsWith('fe80') ? 'link' : 'global', ...more }
}
const link = (ifindex: number, ifname: string, ...addr_info: AddressInfo[]): LinkInfo => {
  return { ifindex, ifname, mtu: 1500, flags: ['UP'], addr_info }
}

const LINKS = [
  link(2, 'eth0', inet('192.0.2.1'), inet6('fe80::1'), inet6('2001:db8::1'), inet6('2001:db8::9')),
  link(3, 'eth1', inet6('2001:db8:1::1')),
  link(4, 'eth2', inet('198.51.100.1'), inet6('fe80::3')),
]
const via = (dev: string, metric = 0) => [{ dst: 'default', dev, metric }]

function choose(wishes: Partial<UnderlayWishes>, families: UnderlayFamilies, facts: Partial<UnderlayFacts> = {}) {
  const known = { links: LINKS, defaultRoutes: via('eth0'), ipv6DefaultRoutes: via('eth0'), routeToReach: null }
  return chooseUnderlay({ ...known, ...facts }, { ifaces: [], ifaceRegexes: [], ...wishes }, families)
}

describe('without IPv4', () => {
  test('the interface of the IPv6 default route is taken, by its first global address', () => {
    expect(choose({}, 'ipv6', { defaultRoutes: [] })).toEqual({
      ...{ name: 'eth0', index: 2, address: ip6('2001:db8::1'), mtuBytes: 1500, how: 'default route', passedOver: [] },
    })
    expect(choose({}, 'ipv6', { ipv6DefaultRoutes: via('eth1') })).toMatchObject({ address: ip6('2001:db8:1::1') })
  })

  test.each<[string, Partial<UnderlayWishes>, string]>([
    ['a name', { ifaces: ['eth1'] }, '2001:db8:1::1'],
    ['an address', { ifaces: ['2001:db8::9'] }, '2001:db8::9'],
    ['a pattern for an address', { ifaceRegexes: [/^2001:db8:1:/] }, '2001:db8:1::1'],
    ['the public address', { publicIpv6: ip6('2001:db8::9') }, '2001:db8::9'],
    [
      'a name, with a public address of that interface',
      { ifaces: ['eth0'], publicIpv6: ip6('2001:db8::9') },
      '2001:db8::9',
    ],
    [
      'a name, with a public address of nobody here',
      { ifaces: ['eth0'], publicIpv6: ip6('2001:db8:9::9') },
      '2001:db8::1',
    ],
  ])('%s may be said', (_, wishes, address) => {
    expect(choose(wishes, 'ipv6')).toMatchObject({ address: ip6(address) })
  })

  test('the way to an address may be said', () => {
    const routeToReach = { dst: '2001:db8:7::7', dev: 'eth0', prefsrc: '2001:db8::9' }
    const chosen = choose({ ifaceCanReach: ip6('2001:db8:7::7') }, 'ipv6', { routeToReach })
    expect(chosen).toMatchObject({ address: ip6('2001:db8::9'), how: '--iface-can-reach 2001:db8:7::7' })
  })

  test('an IPv4 public address has no say', () => {
    expect(choose({ publicIp: ip('198.51.100.1') }, 'ipv6')).toMatchObject({ name: 'eth0', how: 'default route' })
  })

  test('an interface with a link-local address only is none, and others are named', () => {
    expect(() => choose({ ifaces: ['eth2'] }, 'ipv6')).toThrow(
      expect.objectContaining({
        message: 'interface eth2 has no usable IPv6 address (--iface eth2)',
        remedy: 'choose one with --iface: eth0 (2001:db8::1), eth1 (2001:db8:1::1)',
      }),
    )
    expect(() => choose({}, 'ipv6', { ipv6DefaultRoutes: [] })).toThrow(/no IPv6 default route/)
  })
})

describe('with both families', () => {
  test('one interface has both addresses', () => {
    expect(choose({}, 'dual')).toMatchObject({ address: ip('192.0.2.1'), ipv6Address: ip6('2001:db8::1') })
  })

  test('an address of either family names the interface, and is used', () => {
    const one = choose({ ifaces: ['2001:db8::9'] }, 'dual')
    expect(one).toMatchObject({ address: ip('192.0.2.1'), ipv6Address: ip6('2001:db8::9') })
    expect(choose({ publicIpv6: ip6('2001:db8::9') }, 'dual')).toEqual({ ...one, how: '--public-ipv6 2001:db8::9' })
  })

  test('default routes by two interfaces are no choice', () => {
    expect(() => choose({}, 'dual', { ipv6DefaultRoutes: via('eth1') })).toThrow(/IPv4 by eth0 and IPv6 by eth1/)
  })

  test('an interface without one of both is passed over', () => {
    const chosen = choose({ ifaces: ['eth1', 'eth2', 'eth0'] }, 'dual')
    expect([chosen.name, chosen.passedOver]).toEqual([
      'eth0',
      [
        'interface eth1 has no usable IPv4 address (--iface eth1)',
        'interface eth2 has no usable IPv6 address (--iface eth2)',
      ],
    ])
  })

  test('a pattern for addresses must match one of each', () => {
    expect(choose({ ifaceRegexes: [/^(192\.0\.2|2001:db8:):?/] }, 'dual')).toMatchObject({ name: 'eth0' })
    expect(() => choose({ ifaceRegexes: [/^2001:db8:1/] }, 'dual')).toThrow(/no interface has an address or name/)
  })
})

test('a network without IPv6 tunnels has no use for IPv6 addresses', () => {
  expect(choose({ publicIpv6: ip6('2001:db8::9') }, 'ipv4')).not.toHaveProperty('ipv6Address')
})

test.each<[string, Partial<AddressInfo>]>([
  ['not known to be unique yet', { tentative: true }],
  ['known to be somebody else’s', { dadfailed: true }],
  ['deprecated', { deprecated: true }],
])('an address that is %s is not taken', (_, state) => {
  const one = link(2, 'eth0', inet6('2001:db8::1', state), inet6('2001:db8::2'))
  expect(bestAddress(one, 'inet6')).toBe(ip6('2001:db8::2'))
  expect(carries(one, ip6('2001:db8::2'))).toBe(true)
  if (state.deprecated !== true) expect(carries(one, ip6('2001:db8::1'))).toBe(false)
})

test('a lasting address comes before a temporary one', () => {
  const one = link(2, 'eth0', inet6('2001:db8::1', { temporary: true }), inet6('2001:db8::2'))
  expect(bestAddress(one, 'inet6')).toBe(ip6('2001:db8::2'))
})
