// The overlay device's address, MTU and route, planned from what the kernel shows.
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseIpv6 } from '../../../dataplane/wire/address.ts'
import { parseIpv6Prefix } from '../../../dataplane/wire/prefix.ts'
import type { LinkInfo, RouteInfo } from '../../../src/host/ip.ts'
import { judgeOverlayDevice, planOverlayLink } from '../../../src/host/overlay-link.ts'

const OVERLAY = {
  name: 'flannel.1',
  overlayAddress: parseIpv4('10.244.1.0') ?? 0,
  mtuBytes: 1450,
  network: { address: parseIpv4('10.244.0.0') ?? 0, length: 16 },
  ipv6: null,
}
const ROUTE_COMMAND = 'route add 10.244.0.0/16 dev flannel.1 proto 142 scope link src 10.244.1.0'
const AGAIN = ROUTE_COMMAND.replace('add', 'replace')

const FRESH: LinkInfo = {
  ifindex: 7,
  ifname: 'flannel.1',
  flags: ['POINTOPOINT', 'NOARP'],
  mtu: 1500,
  txqlen: 500,
  linkinfo: { info_kind: 'tun', info_data: { type: 'tun' } },
}
const inet = (local: string, prefixlen: number) => ({ family: 'inet' as const, local, prefixlen, scope: 'global' })
const DONE: LinkInfo = {
  ...FRESH,
  flags: ['POINTOPOINT', 'NOARP', 'UP'],
  mtu: 1450,
  txqlen: 4000,
  ifalias: 'flannelette',
  addr_info: [inet('10.244.1.0', 32)],
}

describe('the overlay device', () => {
  test('gets alias, MTU, queue, one /32 address and one route for the whole network', () => {
    expect(planOverlayLink(OVERLAY, FRESH, [])).toEqual([
      'link set dev flannel.1 alias flannelette',
      'link set dev flannel.1 mtu 1450 txqueuelen 4000',
      'link set dev flannel.1 addrgenmode none',
      'link set dev flannel.1 up',
      'address add 10.244.1.0/32 dev flannel.1',
      ROUTE_COMMAND,
    ])
  })

  test('is told not to make a link-local address before it comes up', () => {
    const plan = planOverlayLink(OVERLAY, FRESH, [])
    expect(plan.indexOf('link set dev flannel.1 addrgenmode none')).toBeLessThan(
      plan.indexOf('link set dev flannel.1 up'),
    )
  })

  test('is not asked for an IPv6 property by a kernel without IPv6, which would refuse', () => {
    const plan = planOverlayLink(OVERLAY, FRESH, [], false)
    expect(plan).toContain('link set dev flannel.1 up')
    expect(plan.join()).not.toContain('addrgenmode')
  })

  test('that persists and fits is left alone but for the route', () => {
    const route: RouteInfo = { dst: '10.244.0.0/16', dev: 'flannel.1', protocol: '142', prefsrc: '10.244.1.0' }
    expect(planOverlayLink(OVERLAY, DONE, [route])).toEqual([AGAIN])
  })

  test('loses a former address of the network only after the route has its new source', () => {
    const moved = { ...DONE, addr_info: [inet('10.244.9.0', 32), inet('192.0.2.7', 24)] }
    expect(planOverlayLink(OVERLAY, moved, [])).toEqual([
      'address add 10.244.1.0/32 dev flannel.1',
      ROUTE_COMMAND,
      'address delete 10.244.9.0/32 dev flannel.1',
    ])
  })

  test('loses the address of a former network, which our route into it still names, and no other', () => {
    const address = (local: string) => ({ family: 'inet', local, prefixlen: 32, scope: 'global' }) as const
    const link = { ...DONE, addr_info: [address('10.99.1.0'), address('172.16.0.1'), address('10.244.1.0')] }
    const routes: RouteInfo[] = [{ dst: '10.99.0.0/16', dev: 'flannel.1', protocol: '142', prefsrc: '10.99.1.0' }]
    expect(planOverlayLink(OVERLAY, link, routes)).toEqual([
      ROUTE_COMMAND,
      'route delete 10.99.0.0/16 dev flannel.1 proto 142',
      'address delete 10.99.1.0/32 dev flannel.1',
    ])
  })

  test('loses routes into it that carry our tag and no longer apply, never those of others', () => {
    const routes: RouteInfo[] = [
      { dst: '10.99.0.0/16', dev: 'flannel.1', protocol: '142' },
      { dst: '10.244.3.0/24', gateway: '192.0.2.3', dev: 'eth0', protocol: '142' },
      { dst: '10.244.4.0/24', gateway: '192.0.2.4', dev: 'eth0', protocol: 'static' },
    ]
    expect(planOverlayLink(OVERLAY, DONE, routes)).toEqual([
      ROUTE_COMMAND,
      'route delete 10.99.0.0/16 dev flannel.1 proto 142',
    ])
  })
})

describe('a route of somebody else in the network’s place', () => {
  const foreign: RouteInfo = { dst: '10.244.0.0/16', dev: 'eth0', protocol: 'static' }

  test('stays, and all but the route is done', () => {
    expect(planOverlayLink(OVERLAY, DONE, [foreign])).toEqual([])
    const bare = { ...DONE, addr_info: [] }
    expect(planOverlayLink(OVERLAY, bare, [foreign])).toEqual(['address add 10.244.1.0/32 dev flannel.1'])
  })

  test.each([
    ['with another metric is another place', { metric: 50 }, ROUTE_COMMAND],
    ['into our own device becomes ours', { dev: 'flannel.1', protocol: 'boot' }, AGAIN],
    ['under our tag on another device is ours', { protocol: '142' }, AGAIN],
  ])('%s', (_what, change, command) => {
    expect(planOverlayLink(OVERLAY, DONE, [{ ...foreign, ...change }])).toEqual([command])
  })
})

describe('the overlay device of a dual-stack node', () => {
  const DUAL = {
    ...OVERLAY,
    ipv6: { address: parseIpv6('fd00:10:244:1::')!, network: parseIpv6Prefix('fd00:10:244::/48')! },
  }
  const IPV6_ROUTE = 'route add fd00:10:244::/48 dev flannel.1 proto 142 src fd00:10:244:1::'
  const inet6 = (local: string) => ({ family: 'inet6' as const, local, prefixlen: 128, scope: 'global' })
  const dressed = { ...DONE, addr_info: [inet('10.244.1.0', 32), inet6('fd00:10:244:1::')] }

  test('gets a /128 address and one route for the IPv6 network beside those of IPv4', () => {
    expect(planOverlayLink(DUAL, DONE, [])).toEqual([
      ROUTE_COMMAND,
      'address add fd00:10:244:1::/128 dev flannel.1 nodad',
      IPV6_ROUTE,
    ])
    expect(planOverlayLink(DUAL, dressed, [])).toEqual([ROUTE_COMMAND, IPV6_ROUTE])
  })

  test('loses an address of a former subnet, and the route and address of a former network', () => {
    const link = { ...dressed, addr_info: [...dressed.addr_info, inet6('fd00:10:244:9::'), inet6('fd99:1::')] }
    const routes: RouteInfo[] = [{ dst: 'fd99::/16', dev: 'flannel.1', protocol: '142', prefsrc: 'fd99:1::' }]
    expect(planOverlayLink(DUAL, link, routes)).toEqual([
      ROUTE_COMMAND,
      IPV6_ROUTE,
      'route delete fd99::/16 dev flannel.1 proto 142',
      'address delete fd00:10:244:9::/128 dev flannel.1',
      'address delete fd99:1::/128 dev flannel.1',
    ])
  })

  test('of one family leaves the routes of the other on another device of ours alone', () => {
    const other: RouteInfo[] = [
      { dst: 'fd00:10:244::/48', dev: 'flannel-v6.1', protocol: '142', metric: 1024 },
      { dst: '10.244.0.0/16', dev: 'flannel.1', protocol: '142' },
    ]
    expect(planOverlayLink(OVERLAY, DONE, other)).toEqual([AGAIN])
    const alone = { ...DUAL, name: 'flannel-v6.1', overlayAddress: null, network: null }
    const fresh = { ...DONE, ifname: 'flannel-v6.1', addr_info: [] }
    expect(planOverlayLink(alone, fresh, other)).toEqual([
      'address add fd00:10:244:1::/128 dev flannel-v6.1 nodad',
      IPV6_ROUTE.replace('add', 'replace').replace('flannel.1', 'flannel-v6.1'),
    ])
  })

  test('keeps one family’s route where somebody else’s is in the place of the other’s', () => {
    const foreign: RouteInfo = { dst: 'fd00:10:244::/48', dev: 'eth0', protocol: 'static', metric: 1024 }
    expect(planOverlayLink(DUAL, dressed, [foreign])).toEqual([ROUTE_COMMAND])
  })

  test('that carries IPv4 only from now on loses IPv6 again', () => {
    const routes: RouteInfo[] = [
      { dst: 'fd00:10:244::/48', dev: 'flannel.1', protocol: '142', prefsrc: 'fd00:10:244:1::' },
      { dst: 'fd00:99::/48', dev: 'eth0', protocol: 'static' },
    ]
    expect(planOverlayLink(OVERLAY, dressed, routes)).toEqual([
      ROUTE_COMMAND,
      'route delete fd00:10:244::/48 dev flannel.1 proto 142',
      'address delete fd00:10:244:1::/128 dev flannel.1',
    ])
  })
})

describe('a device under the overlay’s name', () => {
  const device = (kind: string | undefined, type: string | undefined, ifalias?: string): LinkInfo => ({
    ...FRESH,
    linkinfo: { ...(kind === undefined ? {} : { info_kind: kind }), info_data: { type } },
    ...(ifalias === undefined ? {} : { ifalias }),
  })

  test('may be absent', () => {
    expect(judgeOverlayDevice('flannel.1', null)).toEqual({ kind: 'absent' })
  })

  test('is ours when it is a TUN with our alias', () => {
    expect(judgeOverlayDevice('flannel.1', DONE)).toEqual({ kind: 'ours', link: DONE })
  })

  test.each([
    [device('vxlan', undefined), 'a vxlan device'],
    [device('vxlan', undefined, 'flannelette'), 'a vxlan device'],
    [device('tun', 'tap', 'flannelette'), 'a tap device'],
    [device('tun', 'tun'), 'a tun device without the alias "flannelette"'],
    [device(undefined, undefined), 'a physical device'],
  ])('is foreign otherwise, and said to be %2$s', (link, what) => {
    expect(judgeOverlayDevice('flannel.1', link)).toEqual({
      kind: 'foreign',
      what,
      removeCommand: 'ip link delete dev flannel.1',
    })
  })
})
