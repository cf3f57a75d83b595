// Which peers are reached past the tunnel, when that changes, and what the dataplane inside is told.
import { describe, expect, test } from 'vitest'
import { formatPrefix, parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { DirectRouting } from '../../../src/daemon/direct-routing.ts'
import type { Dataplane, LocalVtep, PeerWay } from '../../../src/host/dataplane.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { FakeDataplane } from '../../support/fake-dataplane.ts'
import { FakeRouteTable } from '../../support/fake-route-table.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const LOCAL = {
  ...{ encapsulation: 'vxlan', deviceName: 'flannel.1', underlayInterface: 'eth0', directRouting: true },
  ...{ network: parsePrefix('10.244.0.0/16')!, ipv6Network: null },
} as LocalVtep
const NEAR = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const FAR = peerLease('10.244.3.0/24', '198.51.100.3', '02:00:00:00:00:03')
const BEHIND_ROUTER = { gateway: '192.0.2.254' }
const TO_NEAR = '10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142'

class FakeKernel extends FakeDataplane {
  override readonly kind = 'kernel'
}

async function node(inner: FakeDataplane = new FakeDataplane(), local = LOCAL) {
  const [table, clock, log] = [new FakeRouteTable(), new VirtualClock(), new RecordingLog()]
  table.ways.set('198.51.100.3', BEHIND_ROUTER)
  let bell = () => {}
  const doorbell = (ring: () => void) => {
    bell = ring
    return { stop: () => {} }
  }
  const routing = new DirectRouting(inner as Dataplane, { table, clock, log, doorbell })
  await routing.prepare(local)
  await routing.start(local)
  /** Somebody changes something on the host; resolves half a second later. */
  const changed = async () => {
    bell()
    await clock.advance(500)
  }
  const ways = () => Object.fromEntries([...(routing.ways() ?? [])].map(([subnet, { way }]) => [subnet, way]))
  return { routing, inner, table, clock, log, changed, ways }
}

const subnets = (peers: readonly Lease[]) => peers.map(({ subnet }) => formatPrefix(subnet!))
const moved = (lease: Lease, from: Lease): Lease => ({
  ...lease,
  attributes: { ...lease.attributes, publicIp: from.attributes.publicIp },
})

describe('with our own engine', () => {
  test('a neighbour has a route, one behind a router has none, and the engine keeps both', async () => {
    const { routing, inner, table, ways } = await node()
    expect(await routing.replacePeers([NEAR, FAR], 'test')).toBe(1)
    expect(table.lines).toEqual([TO_NEAR])
    expect(inner.subnets).toEqual(['10.244.2.0/24', '10.244.3.0/24'])
    expect(ways()).toEqual({ '10.244.2.0/24': 'direct', '10.244.3.0/24': 'tunnel' })
    expect(routing.ways()?.get('10.244.3.0/24')?.why).toBe('its address is behind 192.0.2.254')
  })

  test('a peer that moves behind the router takes the tunnel at once, and back', async () => {
    const { routing, table, ways } = await node()
    await routing.replacePeers([NEAR], 'test')
    await routing.replacePeers([moved(NEAR, FAR)], 'it moved')
    expect([table.lines, ways()]).toEqual([[], { '10.244.2.0/24': 'tunnel' }])
    await routing.replacePeers([NEAR], 'it moved back')
    expect([table.lines, ways()]).toEqual([[TO_NEAR], { '10.244.2.0/24': 'direct' }])
  })

  test('a route of this host that changes the way to a peer is heard of, with or without the bell', async () => {
    const { routing, table, changed, clock, ways, log } = await node()
    await routing.replacePeers([NEAR, FAR], 'test')
    table.ways.set('192.0.2.2', BEHIND_ROUTER)
    await changed()
    expect([table.lines, ways()['10.244.2.0/24']]).toEqual([[], 'tunnel'])
    table.ways.delete('192.0.2.2')
    await clock.advance(10_000)
    expect([table.lines, ways()['10.244.2.0/24']]).toEqual([[TO_NEAR], 'direct'])
    expect(log.of('peer-way').map(({ fields }) => fields.way)).toEqual(['direct', 'tunnel', 'direct'])
  })

  test.each([
    ['another interface', { dev: 'eth1' }],
    ['this very host', { type: 'local', dev: 'lo' }],
    ['nowhere', null],
  ])('a peer whose address leads to %s is no neighbour', async (_where, way) => {
    const { routing, table, ways } = await node()
    table.ways.set('192.0.2.2', way)
    await routing.replacePeers([NEAR], 'test')
    expect([table.lines, ways()]).toEqual([[], { '10.244.2.0/24': 'tunnel' }])
  })

  test('routes that a link took with it come back, the others stay', async () => {
    const { routing, table, changed } = await node()
    await routing.replacePeers([NEAR, FAR], 'test')
    table.routes = []
    await changed()
    expect(table.lines).toEqual([TO_NEAR])
  })

  test('another’s route is left alone, and said to be in the way', async () => {
    const { routing, table, ways } = await node()
    table.routes = [{ dst: '10.244.2.0/24', gateway: '192.0.2.9', dev: 'eth0', protocol: 'static' }]
    await routing.replacePeers([NEAR], 'test')
    expect(table.lines).toEqual(['10.244.2.0/24 via 192.0.2.9 dev eth0 proto static'])
    expect(ways()).toEqual({ '10.244.2.0/24': 'tunnel' })
    expect(routing.ways()?.get('10.244.2.0/24')?.why).toMatch(/not ours/)
  })

  test('another’s route to a part is told of a direct peer, and of one that takes the tunnel', async () => {
    const why = (subnet: string) => `a route that is not ours takes a part of it: ${subnet} dev eth1 proto static`
    const inner = new FakeDataplane()
    const kept = new Map<string, PeerWay>([['10.244.3.0/24', { way: 'tunnel', why: why('10.244.3.0/25') }]])
    const { routing, table } = await node(Object.assign(inner, { ways: () => kept }))
    table.routes = [{ dst: '10.244.2.0/25', dev: 'eth1', protocol: 'static' }]
    await routing.replacePeers([NEAR, FAR], 'test')
    expect(Object.fromEntries(routing.ways()!)).toEqual({
      '10.244.2.0/24': { way: 'direct', why: why('10.244.2.0/25') },
      '10.244.3.0/24': { way: 'tunnel', why: why('10.244.3.0/25') },
    })
  })

  test('both families have routes of their own: one goes, the other stays, and in the end neither does', async () => {
    const { routing, table } = await node(new FakeDataplane(), {
      ...LOCAL,
      ipv6Network: parseIpv6Prefix('fd00::/16'),
    })
    const lease = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02', 'fd00:2::/64')
    const dual = { ...lease, attributes: { ...lease.attributes, publicIpv6: '2001:db8::2' } }
    const to6 = 'fd00:2::/64 via 2001:db8::2 dev eth0 proto 142 metric 1024'
    await routing.replacePeers([dual], 'test')
    expect(table.lines).toEqual([TO_NEAR, to6])
    table.take()
    await routing.replacePeers([{ ...dual, ipv6Subnet: null }], 'IPv6 is gone')
    expect(table.lines).toEqual([TO_NEAR])
    expect(table.take()).toEqual(['route delete fd00:2::/64 via 2001:db8::2 dev eth0 proto 142 metric 1024'])
    await routing.replacePeers([dual], 'and back')
    await routing.replacePeers([], 'all is gone')
    expect(table.lines).toEqual([])
  })
})

describe('with the kernel’s VTEP', () => {
  test('it is given those peers only that take the tunnel', async () => {
    const { routing, inner, table } = await node(new FakeKernel())
    await routing.replacePeers([NEAR, FAR], 'test')
    expect([inner.subnets, table.lines]).toEqual([['10.244.3.0/24'], [TO_NEAR]])
  })

  test('the tunnel is ready before a route goes, and the route there before the tunnel goes', async () => {
    const { routing, inner, table, changed } = await node(new FakeKernel())
    await routing.replacePeers([NEAR, FAR], 'test')
    const steps: string[] = []
    const replace = inner.replacePeers.bind(inner)
    inner.replacePeers = (peers, cause) => {
      steps.push(`tunnel ${subnets(peers)}`)
      return replace(peers, cause)
    }
    const apply = table.apply.bind(table)
    table.apply = (commands) => {
      steps.push(...commands.map((command) => command.split(' ').slice(0, 3).join(' ')))
      return apply(commands)
    }
    table.ways.set('192.0.2.2', BEHIND_ROUTER)
    await changed()
    expect(steps.splice(0)).toEqual(['tunnel 10.244.2.0/24,10.244.3.0/24', 'route delete 10.244.2.0/24'])
    table.ways.delete('192.0.2.2')
    await changed()
    expect(steps.splice(0)).toEqual(['route add 10.244.2.0/24', 'tunnel 10.244.3.0/24'])
  })

  test('a peer whose route the host refuses takes the tunnel', async () => {
    const { routing, inner, table, ways } = await node(new FakeKernel())
    table.routes = [{ dst: '10.244.2.0/24', gateway: '192.0.2.9', dev: 'eth1', protocol: 'static' }]
    await routing.replacePeers([NEAR], 'test')
    expect([inner.subnets, ways()]).toEqual([['10.244.2.0/24'], { '10.244.2.0/24': 'tunnel' }])
  })

  test.each([true, false])('a tunnel that is kept from a peer says so (direct routing %s)', async (directRouting) => {
    const inner = new FakeKernel()
    const why = 'a route that is not ours is in the way: 10.244.3.0/24 dev eth1 proto static'
    inner.waiting = new Map([['10.244.3.0/24', why]])
    const { routing } = await node(inner, { ...LOCAL, directRouting })
    await routing.replacePeers([NEAR, FAR], 'test')
    expect(Object.fromEntries(routing.pendingSubnets())).toEqual({ '10.244.3.0/24': why })
    expect(routing.ways()?.get('10.244.2.0/24')?.way).toBe(directRouting ? 'direct' : undefined)
  })

  test('a tunnel that fails to take a peer keeps its route, and is asked again', async () => {
    const { routing, inner, table, changed, clock, log } = await node(new FakeKernel())
    await routing.replacePeers([NEAR], 'test')
    inner.replaceFailures.push(new Error('no buffer space'))
    table.ways.set('192.0.2.2', BEHIND_ROUTER)
    await changed()
    expect([table.lines, log.of('ways-unkept').length]).toEqual([[TO_NEAR], 1])
    await clock.advance(1000)
    expect([table.lines, inner.subnets]).toEqual([[], ['10.244.2.0/24']])
  })

  test('that cannot look says so, as its tunnel does, and looks again soon', async () => {
    const { routing, inner, table, changed, clock } = await node()
    await routing.replacePeers([NEAR], 'test')
    table.broken = true
    await changed()
    expect(routing.unseen()).toBe('no more memory')
    Object.assign(table, { broken: false, routes: [] })
    await clock.advance(2000)
    expect([routing.unseen(), table.lines]).toEqual([null, [TO_NEAR]])
    inner.blindness = 'the log says why'
    expect(routing.unseen()).toBe('the log says why')
  })

  test('a look at a host that did not change tells it nothing', async () => {
    const { routing, inner, table, clock } = await node(new FakeKernel())
    await routing.replacePeers([NEAR, FAR], 'test')
    const [tables, commands] = [inner.tables.length, table.commands.length]
    await clock.advance(60_000)
    expect([inner.tables.length, table.commands.length]).toEqual([tables, commands])
  })
})

describe('routes that a former run left', () => {
  const LEFT = { dst: '10.244.2.0/24', gateway: '192.0.2.2', dev: 'eth0', protocol: '142' }

  test('go with the first peers when direct routing is off, and nothing is watched', async () => {
    const { routing, table, clock } = await node(new FakeDataplane(), { ...LOCAL, directRouting: false })
    table.routes = [LEFT]
    await routing.replacePeers([NEAR], 'test')
    expect([table.lines, routing.ways()]).toEqual([[], null])
    expect(clock.timers).toBe(0)
  })

  test.each([
    ['could not be looked at', 'broken'],
    ['were not let go', 'frozen'],
  ] as const)('that %s go with a later change, and are not looked for again after that', async (_what, hindrance) => {
    const { routing, table, log } = await node(new FakeDataplane(), { ...LOCAL, directRouting: false })
    table.routes = [LEFT]
    table[hindrance] = true
    expect(await routing.replacePeers([NEAR], 'test')).toBe(1)
    expect([table.lines, log.of('routes-unreadable').length]).toEqual([[TO_NEAR], hindrance === 'broken' ? 1 : 0])
    table[hindrance] = false
    await routing.replacePeers([NEAR, FAR], 'test')
    expect(table.lines).toEqual([])
    const { looks } = table
    await routing.replacePeers([NEAR], 'test')
    expect(table.looks).toBe(looks)
  })

  test('are not touched before the first peers are known', async () => {
    const { table, changed } = await node()
    table.routes = [LEFT]
    await changed()
    expect(table.lines).toEqual([TO_NEAR])
  })

  test('stay with a stop that keeps, and go with one that removes', async () => {
    const { routing, table, inner } = await node()
    await routing.replacePeers([NEAR], 'test')
    await routing.stop('keep')
    expect(table.lines).toEqual([TO_NEAR])
    await routing.stop('remove')
    expect([table.lines, inner.stops]).toEqual([[], ['keep', 'remove']])
  })
})
