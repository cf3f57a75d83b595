// The overlay device's address, MTU and route, planned from what the kernel shows.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import type { LinkInfo, RouteInfo } from '../../../src/host/ip.ts'
import { judgeOverlayDevice, planOverlayLink } from '../../../src/host/overlay-link.ts'

const OVERLAY = {
  name: 'flannel.1',
  overlayAddress: parseIpv4('10.244.1.0') ?? 0,
  mtuBytes: 1450,
  network: { address: parseIpv4('10.244.0.0') ?? 0, length: 16 },
  ipv6: null,
}
const ROUTE_COMMAND = 'route replace 10.244.0.0/16 dev flannel.1 proto 142 scope link src 10.244.1.0'

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
    expect(planOverlayLink(OVERLAY, DONE, [route])).toEqual([ROUTE_COMMAND])
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

  test('loses routes that carry our tag and no longer apply, never those of others', () => {
    const routes: RouteInfo[] = [
      { dst: '10.99.0.0/16', dev: 'flannel.1', protocol: '142' },
      { dst: '10.244.3.0/24', gateway: '192.0.2.3', dev: 'eth0', protocol: '142' },
      { dst: '10.244.4.0/24', gateway: '192.0.2.4', dev: 'eth0', protocol: 'static' },
    ]
    expect(planOverlayLink(OVERLAY, DONE, routes)).toEqual([
      ROUTE_COMMAND,
      'route delete 10.99.0.0/16 dev flannel.1 proto 142',
      'route delete 10.244.3.0/24 via 192.0.2.3 dev eth0 proto 142',
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
