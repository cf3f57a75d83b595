// What stands in the route table against what should: what is run, what is left alone, what is taken away.
import { describe, expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import type { RouteInfo } from '../../../src/host/ip.ts'
import { allCarried, type PeerRoute, planPeerRoutes, routesTo } from '../../../src/host/peer-route-plan.ts'
import { peerLease } from '../../support/peer-lease.ts'

const NETWORK = parsePrefix('10.244.0.0/16')!
const NETWORK6 = parseIpv6Prefix('fd00::/48')!
const WANTED: PeerRoute = { subnet: '10.244.2.0/24', gateway: '192.0.2.2', device: 'eth0' }
const WANTED6: PeerRoute = { subnet: 'fd00:2::/64', gateway: '2001:db8::2', device: 'eth0' }
const OURS: RouteInfo = { dst: WANTED.subnet, gateway: WANTED.gateway, dev: 'eth0', protocol: '142' }
const OURS6: RouteInfo = { dst: WANTED6.subnet, gateway: WANTED6.gateway, dev: 'eth0', protocol: '142', metric: 1024 }

function plan(wanted: readonly PeerRoute[], ...present: RouteInfo[]) {
  const { steps, removals } = planPeerRoutes(wanted, present, ({ dev }) => dev !== 'flannel.1')
  return { steps: [...steps.values()], removals }
}

const run = (command: string, instead: string | null = null) => ({ kind: 'run', command, instead })

describe('a wanted route', () => {
  test.each([
    [WANTED, OURS],
    [WANTED6, OURS6],
  ])('that is there takes nothing', (wanted, ours) => {
    expect(plan([wanted], ours)).toEqual({ steps: [{ kind: 'none' }], removals: [] })
  })

  test.each([
    [WANTED, 'route add 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142'],
    [WANTED6, 'route add fd00:2::/64 via 2001:db8::2 dev eth0 proto 142'],
  ])('that is missing is added, and replaces nothing', (wanted, command) => {
    expect(plan([wanted])).toEqual({ steps: [run(command)], removals: [] })
  })

  test.each([
    ['gateway', { gateway: '192.0.2.9' }, 'via 192.0.2.9 dev eth0'],
    ['device', { dev: 'eth1' }, 'via 192.0.2.2 dev eth1'],
  ])('takes the place of one of ours with another %s', (_what, change, words) => {
    const command = 'route replace 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142'
    expect(plan([WANTED], { ...OURS, ...change })).toEqual({
      steps: [run(command, `route delete 10.244.2.0/24 ${words} proto 142`)],
      removals: [],
    })
  })

  test('takes the place of the tunnel’s route of ours', () => {
    const overlay = { dst: WANTED.subnet, gateway: '10.244.2.0', dev: 'flannel.1', protocol: '142' }
    expect(plan([WANTED], overlay).steps[0]).toMatchObject({ command: expect.stringMatching(/^route replace/) })
  })

  test('leaves one of ours with another metric no place', () => {
    const command = 'route delete 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142 metric 50'
    expect(plan([WANTED], OURS, { ...OURS, metric: 50 })).toEqual({ steps: [{ kind: 'none' }], removals: [command] })
  })
})

describe('a route of somebody else', () => {
  const foreign = { ...OURS, protocol: 'static' }

  test('that leads the same way serves', () => {
    expect(plan([WANTED], foreign)).toEqual({ steps: [{ kind: 'served' }], removals: [] })
  })

  test.each([
    ['gateway', { gateway: '192.0.2.9' }, '10.244.2.0/24 via 192.0.2.9 dev eth0 proto static'],
    ['device', { dev: 'eth1' }, '10.244.2.0/24 via 192.0.2.2 dev eth1 proto static'],
    ['type', { type: 'unreachable', gateway: undefined }, 'unreachable 10.244.2.0/24 dev eth0 proto static'],
  ])('with another %s is in the way, named, and left alone', (_what, change, what) => {
    const rival = { ...foreign, ...change } as RouteInfo
    expect(plan([WANTED], rival)).toEqual({ steps: [{ kind: 'blocked', what }], removals: [] })
  })

  test('of a higher metric is no obstacle', () => {
    expect(plan([WANTED], { ...foreign, gateway: '192.0.2.9', metric: 100 }).steps[0]).toMatchObject({ kind: 'run' })
  })

  test('of IPv6 with a lower metric than ours hides it', () => {
    const hiding = { ...OURS6, protocol: 'static', gateway: '2001:db8::9', metric: 512 }
    const { steps, removals } = plan([WANTED6], hiding, OURS6)
    expect(steps[0]).toMatchObject({ kind: 'blocked' })
    expect(removals).toEqual(['route delete fd00:2::/64 via 2001:db8::2 dev eth0 proto 142 metric 1024'])
  })
})

describe('what nobody wants', () => {
  test('is deleted exactly where it is ours, whatever device it is on', () => {
    expect(plan([], OURS, { ...OURS6, dev: 'eth1' }).removals).toEqual([
      'route delete 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142',
      'route delete fd00:2::/64 via 2001:db8::2 dev eth1 proto 142 metric 1024',
    ])
  })

  test.each([
    ['of another protocol', { protocol: 'static' }],
    ['into the tunnel', { dev: 'flannel.1' }],
    ['a blackhole', { type: 'blackhole' }],
  ])('stays where it is %s', (_what, change) => {
    expect(plan([], { ...OURS, ...change }).removals).toEqual([])
  })
})

describe('a lease', () => {
  test('has a route for each half whose family its node has an address of', () => {
    const lease = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02', 'fd00:2::/64')
    const end = { network: NETWORK, ipv6Network: NETWORK6, underlayInterface: 'eth0' }
    expect(routesTo(lease, end)).toEqual([WANTED])
    const dual = { ...lease, attributes: { ...lease.attributes, publicIpv6: '2001:db8::2' } }
    expect(routesTo(dual, end)).toEqual([WANTED, WANTED6])
    expect(routesTo(dual, { ...end, ipv6Network: null })).toEqual([WANTED])
  })
})

test('what is pending of all peers is what crosses here', () => {
  const peers = [peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02', 'fd00:0:0:2::/64')]
  const subnets = (ipv6Network: typeof NETWORK6 | null) => [
    ...allCarried(peers, { network: NETWORK, ipv6Network }, 'gone'),
  ]
  expect(subnets(null)).toEqual([['10.244.2.0/24', 'gone']])
  expect(subnets(NETWORK6)).toEqual([
    ['10.244.2.0/24', 'gone'],
    ['fd00:0:0:2::/64', 'gone'],
  ])
})
