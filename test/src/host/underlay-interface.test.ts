// Which underlay interface is chosen, as flannel would.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import type { UnderlayWishes } from '../../../src/config/options.ts'
import type { FlanneletteError } from '../../../src/errors.ts'
import type { AddressInfo, LinkInfo } from '../../../src/host/ip.ts'
import { bestAddress, chooseUnderlay, type UnderlayFacts } from '../../../src/host/underlay-interface.ts'

const address = (local: string, more: Partial<AddressInfo> = {}): AddressInfo => ({
  family: 'inet',
  local,
  prefixlen: 24,
  scope: 'global',
  ...more,
})
const link = (ifindex: number, ifname: string, mtu: number, ...addresses: AddressInfo[]): LinkInfo => ({
  ifindex,
  ifname,
  mtu,
  flags: ['UP'],
  addr_info: addresses,
})
const number = (text: string) => parseIpv4(text) ?? 0

const LINKS = [
  link(1, 'lo', 65536, address('127.0.0.1', { scope: 'host' })),
  link(2, 'eth0', 1500, address('192.0.2.1'), address('192.0.2.9')),
  link(3, 'eth1', 9000, address('198.51.100.1')),
  link(4, 'wlan0', 1500),
]
const DEFAULT_ROUTE = [{ dst: 'default', dev: 'eth1', gateway: '198.51.100.254' }]

/** The choice on a host with these links and routes. */
function choose(
  wishes: Partial<UnderlayWishes>,
  { links = LINKS, defaultRoutes = DEFAULT_ROUTE, routeToReach = null }: Partial<UnderlayFacts> = {},
) {
  return chooseUnderlay({ links, defaultRoutes, routeToReach }, { ifaces: [], ifaceRegexes: [], ...wishes })
}

const complaint = (...args: Parameters<typeof choose>) => {
  try {
    choose(...args)
  } catch (error) {
    return error as FlanneletteError
  }
  throw new Error('nothing was refused')
}

describe('the underlay interface', () => {
  test('is the one that --iface names', () => {
    expect(choose({ ifaces: ['eth0'] })).toEqual({
      name: 'eth0',
      index: 2,
      address: number('192.0.2.1'),
      mtuBytes: 1500,
      how: '--iface eth0',
      passedOver: [],
    })
  })

  test('may be named by any of its addresses, which is then used', () => {
    expect(choose({ ifaces: ['192.0.2.9'] })).toMatchObject({ name: 'eth0', address: number('192.0.2.9') })
  })

  test('follows the public address when no interface is given', () => {
    const chosen = choose({ publicIp: number('192.0.2.1') })
    expect(chosen).toMatchObject({ name: 'eth0', how: '--public-ip 192.0.2.1' })
  })

  test('keeps to --iface when the public address is not local', () => {
    const chosen = choose({ ifaces: ['eth1'], publicIp: number('203.0.113.5') })
    expect(chosen).toMatchObject({ name: 'eth1', address: number('198.51.100.1'), mtuBytes: 9000 })
  })

  test('is the default route’s otherwise, the one with the lowest metric', () => {
    const defaultRoutes = [
      { dst: 'default', dev: 'eth0', metric: 600 },
      { dst: 'default', dev: 'eth1', metric: 100 },
    ]
    expect(choose({}, { defaultRoutes })).toMatchObject({ name: 'eth1', how: 'default route' })
  })

  test('is the first of several that will do; what was passed over is told', () => {
    const chosen = choose({ ifaces: ['eth7', 'wlan0', 'eth1', 'eth0'], ifaceRegexes: [/^192/] })
    expect(chosen).toMatchObject({ name: 'eth1', how: '--iface eth1' })
    expect(chosen.passedOver).toEqual([
      'there is no interface eth7 (--iface eth7)',
      'interface wlan0 has no usable IPv4 address (--iface wlan0)',
    ])
  })

  test.each([
    ['an address that matches is taken, not the first of its interface', /2\.9/, 'eth0', '192.0.2.9'],
    ['a pattern is searched for anywhere, in the order of the kernel', /1/, 'eth0', '192.0.2.1'],
    ['addresses go before names, whatever the order', /98\.51|eth0/, 'eth1', '198.51.100.1'],
    ['a name counts where no address matches', /h1$/, 'eth1', '198.51.100.1'],
  ])('by --iface-regex: %s', (_, pattern, name, local) => {
    const chosen = choose({ ifaceRegexes: [/^nothing/, pattern] })
    expect(chosen).toMatchObject({ name, address: number(local), how: `--iface-regex ${pattern.source}` })
  })

  test('is, by --iface-can-reach, that of the route, with the address which the route prefers', () => {
    const routeToReach = { dst: '203.0.113.5', dev: 'eth0', prefsrc: '192.0.2.9' }
    const chosen = choose({ ifaceCanReach: number('203.0.113.5') }, { routeToReach })
    expect(chosen).toMatchObject({ name: 'eth0', address: number('192.0.2.9') })
    expect(chosen.how).toBe('--iface-can-reach 203.0.113.5')
  })

  test('names, patterns and the address to reach are asked in this order', () => {
    const routeToReach = { dst: '203.0.113.5', dev: 'eth0', prefsrc: '192.0.2.9' }
    const wishes = { ifaces: ['eth7'], ifaceRegexes: [/^nothing/], ifaceCanReach: number('203.0.113.5') }
    const chosen = choose(wishes, { routeToReach })
    expect([chosen.how, chosen.passedOver.length]).toEqual(['--iface-can-reach 203.0.113.5', 2])
  })
})

describe('an unsuitable choice names the candidates', () => {
  test.each<[string, Partial<UnderlayWishes>, string]>([
    ['an unknown name', { ifaces: ['eth7'] }, 'there is no interface eth7'],
    ['an interface without address', { ifaces: ['wlan0'] }, 'no usable IPv4 address'],
    ['an address of nobody', { ifaces: ['203.0.113.5'] }, 'no interface has the address 203.0.113.5'],
    ['a public address of nobody', { publicIp: 0xcb007105 }, '--public-ip 203.0.113.5'],
    ['a pattern that nothing matches', { ifaceRegexes: [/^ib/] }, '(--iface-regex ^ib)'],
    ['an address out of reach', { ifaceCanReach: 0xcb007105 }, 'no route (--iface-can-reach 203.0.113.5)'],
    ['several, all of them named', { ifaces: ['eth7', 'eth8'] }, 'eth7 (--iface eth7); there is no interface eth8'],
    ['no default route', {}, 'no IPv4 default route'],
  ])('%s', (_, wishes, text) => {
    const error = complaint(wishes, { defaultRoutes: [] })
    expect(error.code).toBe('interface-unsuitable')
    expect(error.message).toContain(text)
    expect(error.remedy).toBe('choose one with --iface: eth0 (192.0.2.1), eth1 (198.51.100.1)')
  })

  test.each(['flannel.1', '10.244.1.0'])('%s, our own overlay device, is refused and no candidate', (iface) => {
    const overlay = { ...link(5, 'flannel.1', 1450, address('10.244.1.0', { prefixlen: 32 })), ifalias: 'flannelette' }
    const links = [overlay, ...LINKS]
    const error = complaint({ ifaces: [iface] }, { links })
    expect([error.code, error.message]).toEqual(['interface-unsuitable', expect.stringContaining('overlay device')])
    expect(error.remedy).not.toContain('flannel.1')
    expect(choose({ ifaceRegexes: [/1/] }, { links }).name).toBe('eth0')
  })

  test('a host without addresses is told to get one', () => {
    expect(complaint({}, { links: [link(1, 'eth0', 1500)] }).remedy).toContain('give an interface an IPv4 address')
  })

  test('an MTU of zero is refused', () => {
    expect(complaint({ ifaces: ['eth0'] }, { links: [link(2, 'eth0', 0, address('192.0.2.1'))] }).message).toContain(
      'no MTU',
    )
  })
})

describe('of several addresses', () => {
  test('global goes before link scope, permanent before leased, lasting before temporary', () => {
    const leased = address('192.0.2.2', { dynamic: true })
    const linkScope = address('169.254.1.1', { scope: 'link' })
    const temporary = address('192.0.2.3', { temporary: true })
    const best = (...addresses: AddressInfo[]) => bestAddress(link(2, 'eth0', 1500, ...addresses))
    expect(best(linkScope, leased, temporary, address('192.0.2.4'))).toBe(number('192.0.2.4'))
    expect(best(linkScope, leased, temporary)).toBe(number('192.0.2.3'))
    expect(best(linkScope, leased)).toBe(number('192.0.2.2'))
    expect(best(linkScope)).toBe(number('169.254.1.1'))
  })

  test('deprecated, loopback and IPv6 ones are never taken', () => {
    const deprecated = address('192.0.2.2', { deprecated: true })
    const loopback = address('127.0.0.1', { scope: 'host' })
    const ipv6: AddressInfo = { family: 'inet6', local: '2001:db8::1', prefixlen: 64, scope: 'global' }
    expect(bestAddress(link(2, 'eth0', 1500, deprecated, loopback, ipv6))).toBeNull()
  })
})
