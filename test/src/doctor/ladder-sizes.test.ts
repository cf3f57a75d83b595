// The rung of sizes: what a measured tunnel and underlay mean, and what is said to do.
import { expect, test } from 'vitest'
import { judgeSizes } from '../../../src/doctor/ladder-sizes.ts'
import type { LadderPlace } from '../../../src/doctor/rung.ts'
import { PLACE } from '../../support/described-network.ts'

/** As PLACE, with DF set. */
const TELLING: LadderPlace = { ...PLACE, outerDf: 'set' }

const ruler = (largestBytes: number | null, namedBytes: number | null = null) => ({ largestBytes, namedBytes })
const refused = { passes: false, limitBytes: 1450 }

test.each([
  ['measured below', ruler(1400)],
  ['not proven below', null],
])('a hole is mended by the MTU; with DF set also by letting ICMP through, or by DF clear: %s', (_, underlay) => {
  const nextOf = (place: LadderPlace) => judgeSizes(place, ruler(1350), refused, underlay).next
  expect(nextOf(PLACE)).toMatch(/set Backend\.MTU to 1400/)
  expect(nextOf(PLACE)).not.toMatch(/ICMP|outer-df/)
  expect(nextOf(TELLING)).toMatch(
    /set Backend\.MTU to 1400 .*; or let ICMP .* reach the nodes; or .* --outer-df clear$/,
  )
})

test.each([
  ['cut on the way', PLACE, ruler(1450), ruler(1400, 1400), 'warning', /passes 1400 of 1500: large packets are cut/],
  ['not proven below', PLACE, ruler(1450), null, 'good', /underlay not proven/],
  ['a limit that a router names', PLACE, ruler(1350, 1350), ruler(1400), 'bad', /are refused \(limit named: 1350\)/],
  [
    'an MTU that never fitted, and large packets are lost',
    { ...PLACE, underlayMtuBytes: 1400 },
    ruler(1350),
    ruler(1400),
    'bad',
    /expected 1450 \(1450 \+ 50 is more than the underlay's 1400\)$/,
  ],
  [
    'a way that pods are told of',
    TELLING,
    ruler(1350, 1350),
    ruler(1400),
    'warning',
    /1350\); .*pods are told and adapt/,
  ],
  ['a way that nobody tells of, with DF set', TELLING, ruler(1350), null, 'bad', /1351 to 1450 vanish/],
  ['a limit named that is not what passes', TELLING, ruler(1300, 1350), null, 'bad', /1300 passes/],
  ['nothing large', PLACE, ruler(null), null, 'bad', /nothing large passes, 576 to 1450 vanish/],
  [
    'an MTU that does not fit',
    { ...PLACE, underlayMtuBytes: 1480 },
    ruler(1450),
    ruler(1480),
    'warning',
    /1450 passes/,
  ],
] as const)('%s', (_, place, tunnel, underlay, verdict, text) => {
  expect(judgeSizes(place, tunnel, refused, underlay)).toMatchObject({ verdict, text: expect.stringMatching(text) })
})
