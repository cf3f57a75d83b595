// Which peers' subnets lose packets to somebody else's more specific route.
import { describe, expect, test } from 'vitest'
import {
  type PeerSubnet,
  partTaken,
  partTakers,
  placedRoutes,
  tellOfForeign,
  tunnelWays,
  wholeTaken,
  wholeTakers,
} from '../../../src/host/foreign-routes.ts'
import type { RouteInfo } from '../../../src/host/ip.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const SUBNETS: readonly PeerSubnet[] = [
  { subnet: '10.244.2.0/24', peerAddress: '192.0.2.2' },
  { subnet: '10.244.3.0/24', peerAddress: '192.0.2.3' },
  { subnet: 'fd00:2::/64', peerAddress: '2001:db8::2' },
]
const route = (dst: string, more: Partial<RouteInfo> = {}): RouteInfo => ({ dst, dev: 'eth0', ...more })
const found = (...routes: RouteInfo[]) => placedRoutes(routes, 'flannel.1')
const parts = (...routes: RouteInfo[]) => [...partTakers(SUBNETS, found(...routes)).keys()]
const wholes = (...routes: RouteInfo[]) => [...wholeTakers(SUBNETS, found(...routes)).keys()]

describe('somebody else’s are not', () => {
  test.each<[string, RouteInfo]>([
    ['those with our tag', route('10.244.2.0/25', { protocol: '142' })],
    ['blackholes of ours', route('10.244.2.0/25', { protocol: '142', type: 'blackhole' })],
    ['those into our device', route('10.244.2.0/25', { dev: 'flannel.1' })],
    ['the default route', route('default')],
  ])('%s', (_, one) => {
    expect(found(one).filter(({ isForeign }) => isForeign)).toEqual([])
  })
})

describe('a part is taken', () => {
  test.each<[string, RouteInfo, string[]]>([
    ['by a route to half of the subnet', route('10.244.2.128/25'), ['10.244.2.0/24']],
    ['by one to a single pod', route('10.244.3.7'), ['10.244.3.0/24']],
    ['by one that leads nowhere', { dst: '10.244.2.128/25', type: 'blackhole' }, ['10.244.2.0/24']],
    ['of an IPv6 subnet', route('fd00:2::8000:0:0:0/65'), ['fd00:2::/64']],
    ['by none to the subnet itself', route('10.244.2.0/24'), []],
    ['by none to more than it', route('10.244.2.0/23'), []],
    ['by none to somewhere else', route('10.244.9.0/25'), []],
    ['by none to the peer', route('10.244.2.128/25', { gateway: '192.0.2.2' }), []],
    ['by one to another peer', route('10.244.2.128/25', { gateway: '192.0.2.3' }), ['10.244.2.0/24']],
  ])('%s', (_, one, subnets) => {
    expect(parts(one)).toEqual(subnets)
  })
})

test('all that take a part of one subnet are found, and each of its own', () => {
  const routes = ['10.244.2.7', '10.244.3.7', '10.244.2.128/25'].map((dst) => route(dst))
  const takers = [...partTakers(SUBNETS, found(...routes))].map(([subnet, some]) => [subnet, some.length])
  expect(takers).toEqual([
    ['10.244.2.0/24', 2],
    ['10.244.3.0/24', 1],
  ])
})

describe('all is taken', () => {
  test.each<[string, RouteInfo, string[]]>([
    ['by a route to the subnet', route('10.244.2.0/24'), ['10.244.2.0/24']],
    ['by one to two of them', route('10.244.2.0/23'), ['10.244.2.0/24', '10.244.3.0/24']],
    ['by none to the peer', route('10.244.2.0/24', { gateway: '192.0.2.2' }), []],
    ['by none to a part', route('10.244.2.0/25'), []],
  ])('%s', (_, one, subnets) => {
    expect(wholes(one)).toEqual(subnets)
  })

  const OURS = route('10.244.2.0/24', { gateway: '192.0.2.2', protocol: '142' })

  test('by none that one of ours is more specific than', () => {
    expect(wholes(route('10.244.2.0/23'), OURS)).toEqual(['10.244.3.0/24'])
  })

  test('by none that stands behind ours, with a higher metric', () => {
    expect(wholes(OURS, route('10.244.2.0/24', { metric: 50 }))).toEqual([])
  })
})

test('the words name the route', () => {
  const [foreign] = found(route('10.244.2.128/25', { protocol: 'static' }))
  const taken = 'a route that is not ours takes a part of it: 10.244.2.128/25 dev eth0 proto static'
  expect(partTaken([foreign!])).toBe(taken)
  const [other, third] = found(route('10.244.2.7'), route('10.244.2.8'))
  expect(partTaken([foreign!, other!])).toBe(`${taken}, and 1 other`)
  expect(partTaken([foreign!, other!, third!])).toBe(`${taken}, and 2 others`)
  expect(wholeTaken(foreign!)).toBe('a route that is not ours is in the way: 10.244.2.128/25 dev eth0 proto static')
})

test('a tunnel says by which ways it leads only while there is trouble', () => {
  expect(tunnelWays(['a', 'b'], new Map())).toBeNull()
  expect([...tunnelWays(['a', 'b'], new Map([['b', 'taken']]))!]).toEqual([
    ['a', { way: 'tunnel', why: '' }],
    ['b', { way: 'tunnel', why: 'taken' }],
  ])
})

test('each is told once, and so is its end', () => {
  const log = new RecordingLog()
  const [none, some] = [new Map<string, string>(), new Map([['10.244.2.0/24', partTaken(found(route('10.244.2.9')))]])]
  tellOfForeign(log, none, some)
  tellOfForeign(log, some, some)
  tellOfForeign(log, some, none)
  tellOfForeign(log, none, new Map([['10.244.2.0/24', 'by a route that is not ours']]))
  expect(log.lines.map(({ level, event }) => [level, event])).toEqual([
    ['warn', 'foreign-route'],
    ['info', 'foreign-route-gone'],
  ])
})

test('that there are more or fewer beside the one that is named is not told again', () => {
  const log = new RecordingLog()
  const told = (...dst: string[]) => new Map([['10.244.2.0/24', partTaken(found(...dst.map((one) => route(one))))]])
  tellOfForeign(log, new Map(), told('10.244.2.7', '10.244.2.8'))
  tellOfForeign(log, told('10.244.2.7', '10.244.2.8'), told('10.244.2.7'))
  expect(log.lines).toHaveLength(1)
  tellOfForeign(log, told('10.244.2.7'), told('10.244.2.8'))
  expect(log.lines.map(({ event }) => event)).toEqual(['foreign-route', 'foreign-route'])
})
