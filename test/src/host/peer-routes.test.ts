// Routes to peers kept in a table that somebody else changes as well.
import { describe, expect, test } from 'vitest'
import { parsePrefix } from '../../../dataplane/wire/prefix.ts'
import type { PeerRoute } from '../../../src/host/peer-route-plan.ts'
import { PeerRoutes } from '../../../src/host/peer-routes.ts'
import { isForeignRoute } from '../../../src/host/route-place.ts'
import { FakeRouteTable } from '../../support/fake-route-table.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const route = (number: number, more: Partial<PeerRoute> = {}): PeerRoute => ({
  ...{ subnet: `10.244.${number}.0/24`, gateway: `192.0.2.${number}`, device: 'eth0' },
  ...more,
})
const V6: PeerRoute = { subnet: 'fd00:2::/64', gateway: '2001:db8::2', device: 'eth0' }

function keeper(isWatched = false) {
  const table = new FakeRouteTable()
  const log = new RecordingLog()
  const networks = [parsePrefix('10.244.0.0/16')!]
  return { table, log, routes: new PeerRoutes({ table, log, networks, sparedDevice: 'flannel.1', isWatched }) }
}

const inForce = (routes: PeerRoutes) => [...routes.states.values()].map((state) => state.inForce)

describe('routes to peers', () => {
  test('are there after one pass, and a second one runs nothing', async () => {
    const { table, routes } = keeper()
    await routes.keep([route(2), V6])
    expect(table.lines).toEqual([
      '10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142',
      'fd00:2::/64 via 2001:db8::2 dev eth0 proto 142 metric 1024',
    ])
    table.take()
    await routes.keep([route(2), V6])
    expect(table.take()).toEqual([])
  })

  test('that somebody took away or altered are as they were, told of and counted', async () => {
    const { table, routes, log } = keeper()
    await routes.keep([route(2), route(3)])
    table.routes = [{ dst: '10.244.3.0/24', gateway: '192.0.2.9', dev: 'eth0', protocol: '142' }]
    await routes.keep([route(2), route(3)])
    expect([...table.lines].sort()).toEqual([
      '10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142',
      '10.244.3.0/24 via 192.0.2.3 dev eth0 proto 142',
    ])
    expect([routes.restored, log.of('route-restored').length]).toEqual([2, 2])
  })

  test('follow a peer to its new address, which is no repair', async () => {
    const { table, routes } = keeper()
    await routes.keep([route(2)])
    await routes.keep([route(2, { gateway: '192.0.2.7' })])
    expect(table.lines).toEqual(['10.244.2.0/24 via 192.0.2.7 dev eth0 proto 142'])
    expect(routes.restored).toBe(0)
  })

  test('go with their peer, one family without the other', async () => {
    const { table, routes } = keeper()
    await routes.keep([route(2), V6])
    await routes.keep([route(2)])
    expect(table.lines).toEqual(['10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142'])
    await routes.keep([])
    expect(table.lines).toEqual([])
  })

  test('by a gateway that is no neighbour wait, and hold up no other', async () => {
    const { table, routes, log } = keeper()
    table.ways.set('192.0.2.2', null)
    await routes.keep([route(2), route(3)])
    await routes.keep([route(2), route(3)])
    expect(inForce(routes)).toEqual([false, true])
    expect(routes.states.get('10.244.2.0/24')?.why).toBe(
      '192.0.2.2 is no neighbour on eth0 (Nexthop has invalid gateway.)',
    )
    expect(log.of('peer-pending')).toHaveLength(1)
    table.ways.delete('192.0.2.2')
    await routes.keep([route(2), route(3)])
    expect(inForce(routes)).toEqual([true, true])
    expect(log.of('peer-programmed')).toHaveLength(1)
  })

  test('to where a peer was do not stay when there is none to where it is', async () => {
    const { table, routes } = keeper()
    await routes.keep([route(2)])
    table.ways.set('198.51.100.2', { gateway: '192.0.2.254' })
    await routes.keep([route(2, { gateway: '198.51.100.2' })])
    expect([table.lines, inForce(routes)]).toEqual([[], [false]])
  })

  test('leave another’s in place, and take the place when it is gone', async () => {
    const { table, routes } = keeper()
    const foreign = { dst: '10.244.2.0/24', gateway: '192.0.2.9', dev: 'eth0', protocol: 'static' }
    table.routes = [foreign]
    await routes.keep([route(2)])
    expect(table.take()).toEqual([])
    const state = routes.states.get('10.244.2.0/24')!
    expect([state.inForce, isForeignRoute(state.why)]).toEqual([false, true])
    table.routes = []
    await routes.keep([route(2)])
    expect(inForce(routes)).toEqual([true])
  })

  test('of which another’s takes a part are not told of a second time where somebody else does', async () => {
    const { table, routes, log } = keeper(true)
    table.routes = [{ dst: '10.244.2.128/25', dev: 'eth1', protocol: 'static' }]
    await routes.keep([route(2)])
    expect([isForeignRoute(routes.states.get('10.244.2.0/24')!.why), log.of('foreign-route')]).toEqual([true, []])
  })

  test('of which another’s takes a part are in force, told once, and quiet again when it is gone', async () => {
    const { table, routes, log } = keeper()
    table.routes = [{ dst: '10.244.2.128/25', dev: 'eth1', protocol: 'static' }]
    await routes.keep([route(2), route(3)])
    await routes.keep([route(2), route(3)])
    expect([...routes.states.values()].map(({ inForce, why }) => [inForce, why])).toEqual([
      [true, 'a route that is not ours takes a part of it: 10.244.2.128/25 dev eth1 proto static'],
      [true, ''],
    ])
    expect(log.lines.map(({ event }) => event)).toEqual(['foreign-route'])
    table.routes = table.routes.slice(1)
    await routes.keep([route(2), route(3)])
    expect([routes.states.get('10.244.2.0/24')?.why, log.of('foreign-route-gone').length]).toEqual(['', 1])
  })

  test('are believed to be there while nobody can look', async () => {
    const { table, routes, log } = keeper()
    await routes.keep([route(2)])
    table.broken = true
    await routes.keep([route(2), route(3)])
    expect(inForce(routes)).toEqual([true, false])
    expect(log.of('routes-unreadable')).toHaveLength(1)
  })

  test('are taken away to the last, and nothing else is', async () => {
    const { table, routes } = keeper()
    await routes.keep([route(2), V6])
    const others = [
      { dst: '10.244.0.0/16', dev: 'flannel.1', protocol: '142' },
      { dst: '10.244.9.0/24', gateway: '192.0.2.9', dev: 'eth0', protocol: 'static' },
    ]
    table.routes.push(...others)
    await routes.remove()
    expect(table.routes).toEqual(others)
  })
})
