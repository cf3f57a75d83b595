// Whose a route in the place of ours is, and what may be done about it.
import { describe, expect, test } from 'vitest'
import type { RouteInfo } from '../../../src/host/ip.ts'
import {
  deleteRoute,
  describeRoute,
  findForeign,
  foreignInTheWay,
  foreignRouteIn,
  foreignTakesPart,
  isForeignRoute,
  isInUsualPlace,
  isPartTaken,
  isUntagged,
  otherRoutesIn,
  verbFor,
} from '../../../src/host/route-place.ts'

const NETWORK = '10.244.0.0/16'
const FOREIGN: RouteInfo = { dst: NETWORK, gateway: '192.0.2.9', dev: 'eth0', protocol: 'static' }

test('a place is the usual one without a metric for IPv4, and with that of `ip` for IPv6', () => {
  const metrics = (dst: string) => [undefined, 50, 1024].map((metric) => ({ dst, ...(metric && { metric }) }))
  expect(metrics(NETWORK).map(isInUsualPlace)).toEqual([true, false, false])
  expect(metrics('fd00::/48').map(isInUsualPlace)).toEqual([false, false, true])
})

test('only what is ours is replaced', () => {
  expect([true, false].map(verbFor)).toEqual(['replace', 'add'])
})

test.each([
  [undefined, true],
  ['boot', true],
  ['static', false],
  ['kernel', false],
  ['142', false],
])('protocol %s: nobody has said whose it is: %s', (protocol, untagged) => {
  expect(isUntagged({ dst: NETWORK, ...(protocol === undefined ? {} : { protocol }) })).toBe(untagged)
})

describe('in the place of our route', () => {
  const found = (...routes: RouteInfo[]) => findForeign(routes, NETWORK, 'flannel.1')

  test('another’s is found', () => {
    expect(found({ ...FOREIGN, dst: '10.9.0.0/16' }, FOREIGN)).toBe(FOREIGN)
  })

  test.each([
    ['ours', { protocol: '142' }],
    ['one into our device', { dev: 'flannel.1' }],
    ['one with another metric', { metric: 50 }],
    ['one to a part of the network', { dst: '10.244.2.0/24' }],
  ])('%s is not another’s', (_what, change) => {
    expect(found({ ...FOREIGN, ...change })).toBeNull()
  })
})

test('a reason that names such a route is known again', () => {
  const why = foreignInTheWay(describeRoute({ ...FOREIGN, type: 'unicast', metric: 5 }))
  expect(why).toBe('a route that is not ours is in the way: 10.244.0.0/16 via 192.0.2.9 dev eth0 proto static metric 5')
  const other = 'No buffer space available'
  expect([isForeignRoute(why), isForeignRoute(other)]).toEqual([true, false])
  const part = foreignTakesPart('10.244.2.128/25 dev eth0')
  expect([isForeignRoute(part), isPartTaken(part), isPartTaken(why)]).toEqual([true, true, false])
  const [two, many] = [1, 300].map((others) => foreignTakesPart('10.244.2.128/25 dev eth0', others))
  expect([part, two, many, other].map((one) => foreignRouteIn(one!))).toEqual([
    ...Array(3).fill('10.244.2.128/25 dev eth0'),
    null,
  ])
  expect([why, part, two, many, other].map((one) => otherRoutesIn(one!))).toEqual([0, 0, 1, 300, 0])
})

test('a deletion names all that makes a route of ours what it is', () => {
  expect(deleteRoute(FOREIGN)).toBe('route delete 10.244.0.0/16 via 192.0.2.9 dev eth0 proto 142')
  expect(deleteRoute({ dst: NETWORK })).toBe('route delete 10.244.0.0/16 proto 142')
})
