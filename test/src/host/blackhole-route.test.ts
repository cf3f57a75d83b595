// From the blackhole routes that are there to those that are wanted.
import { expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { planBlackholeRoutes } from '../../../src/host/blackhole-route.ts'

const SUBNETS = [parsePrefix('10.244.1.0/24')!, parseIpv6Prefix('fd00:10:244:1::/64')!]
const present = (...subnets: string[]) => subnets.map((dst) => ({ type: 'blackhole', dst, protocol: '142' }))
const ADD = 'route add blackhole 10.244.1.0/24 proto 142 metric 4000000'
const ADD6 = 'route add blackhole fd00:10:244:1::/64 proto 142 metric 4000000'

test.each([
  ['all are there', present('10.244.1.0/24', 'fd00:10:244:1::/64'), []],
  ['none is there', [], [ADD, ADD6]],
  ['one is gone', present('10.244.1.0/24'), [ADD6]],
  [
    'one is of a former subnet',
    present('10.244.9.0/24', 'fd00:10:244:1::/64'),
    ['route delete blackhole 10.244.9.0/24 proto 142', ADD],
  ],
])('%s', (_, routes, commands) => {
  expect(planBlackholeRoutes(SUBNETS, routes)).toEqual(commands)
})

test('none are wanted', () => {
  expect(planBlackholeRoutes([], present('10.244.1.0/24'))).toEqual(['route delete blackhole 10.244.1.0/24 proto 142'])
})
