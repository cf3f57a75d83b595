// Which underlay interface is chosen, as flannel would.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import type { FlanneletteError } from '../../../src/errors.ts'
import type { AddressInfo, LinkInfo } from '../../../src/host/ip.ts'
import { bestAddress, chooseUnderlay } from '../../../src/host/underlay-interface.ts'

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

const complaint = (...args: Parameters<typeof chooseUnderlay>) => {
  try {
    chooseUnderlay(...args)
  } catch (error) {
    return error as FlanneletteError
  }
  throw new Error('nothing was refused')
}

describe('the underlay interface', () => {
  test('is the one that --iface names', () => {
    expect(chooseUnderlay(LINKS, DEFAULT_ROUTE, { iface: 'eth0' })).toEqual({
      name: 'eth0',
      index: 2,
      address: number('192.0.2.1'),
      mtuBytes: 1500,
      how: '--iface eth0',
    })
  })

  test('may be named by any of its addresses, which is then used', () => {
    const chosen = chooseUnderlay(LINKS, DEFAULT_ROUTE, { iface: '192.0.2.9' })
    expect(chosen).toMatchObject({ name: 'eth0', address: number('192.0.2.9') })
  })

  test('follows the public address when no interface is given', () => {
    const chosen = chooseUnderlay(LINKS, DEFAULT_ROUTE, { publicIp: number('192.0.2.1') })
    expect(chosen).toMatchObject({ name: 'eth0', how: '--public-ip 192.0.2.1' })
  })

  test('keeps to --iface when the public address is not local', () => {
    const chosen = chooseUnderlay(LINKS, DEFAULT_ROUTE, { iface: 'eth1', publicIp: number('203.0.113.5') })
    expect(chosen).toMatchObject({ name: 'eth1', address: number('198.51.100.1'), mtuBytes: 9000 })
  })

  test('is the default route’s otherwise, the one with the lowest metric', () => {
    const routes = [
      { dst: 'default', dev: 'eth0', metric: 600 },
      { dst: 'default', dev: 'eth1', metric: 100 },
    ]
    expect(chooseUnderlay(LINKS, routes, {})).toMatchObject({ name: 'eth1', how: 'default route' })
  })
})

describe('an unsuitable choice names the candidates', () => {
  test.each([
    ['an unknown name', { iface: 'eth7' }, 'there is no interface eth7'],
    ['an interface without address', { iface: 'wlan0' }, 'no usable IPv4 address'],
    ['an address of nobody', { iface: '203.0.113.5' }, 'no interface has the address 203.0.113.5'],
    ['a public address of nobody', { publicIp: 0xcb007105 }, '--public-ip 203.0.113.5'],
    ['no default route', {}, 'no IPv4 default route'],
  ])('%s', (_, options, text) => {
    const error = complaint(LINKS, [], options)
    expect(error.code).toBe('interface-unsuitable')
    expect(error.message).toContain(text)
    expect(error.remedy).toBe('choose one with --iface: eth0 (192.0.2.1), eth1 (198.51.100.1)')
  })

  test.each(['flannel.1', '10.244.1.0'])('%s, our own overlay device, is refused and no candidate', (iface) => {
    const overlay = { ...link(5, 'flannel.1', 1450, address('10.244.1.0', { prefixlen: 32 })), ifalias: 'flannelette' }
    const error = complaint([...LINKS, overlay], [], { iface })
    expect([error.code, error.message]).toEqual(['interface-unsuitable', expect.stringContaining('overlay device')])
    expect(error.remedy).not.toContain('flannel.1')
  })

  test('a host without addresses is told to get one', () => {
    expect(complaint([link(1, 'eth0', 1500)], [], {}).remedy).toContain('give an interface an IPv4 address')
  })

  test('an MTU of zero is refused', () => {
    expect(complaint([link(2, 'eth0', 0, address('192.0.2.1'))], [], { iface: 'eth0' }).message).toContain('no MTU')
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
