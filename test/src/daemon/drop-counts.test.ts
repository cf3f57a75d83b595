// Drops as they are told: by reason, in all, and as unknown where nobody counts them.
import { expect, test } from 'vitest'
import { Counters } from '../../../dataplane/engine/counters.ts'
import { DROP_REASON_NAMES } from '../../../dataplane/index.ts'
import { dropCounts, droppedPackets } from '../../../src/daemon/drop-counts.ts'

test('they are summed over reasons and directions, with what the kernel lost before, and nothing else is, not their bytes', () => {
  const counters = {
    'outbound.packets.read': 100,
    'outbound.dropped.no-route': 2,
    'inbound.dropped.vni-unknown': 3,
    'inbound.lost.rx-queue-full': 4,
    'outbound.dropped-bytes.no-route': 2900,
  }
  expect(droppedPackets({ counters })).toBe(9)
  const told = dropCounts(counters).map(({ direction, reason, packets }) => [direction, reason, packets])
  expect(told).toEqual([
    ['outbound', 'no-route', 2],
    ['inbound', 'rx-queue-full', 4],
    ['inbound', 'vni-unknown', 3],
  ])
})

test('an engine that has dropped nothing says 0, of every reason', () => {
  const counters = new Counters().snapshot()
  expect([droppedPackets({ counters }), dropCounts(counters).length]).toEqual([0, 2 * DROP_REASON_NAMES.length])
})

test("the kernel's device tells numbers without reasons", () => {
  const counters = { 'outbound.dropped': 1, 'outbound.errors': 2, 'inbound.dropped': 0, 'inbound.errors': 0 }
  expect(droppedPackets({ counters })).toBe(3)
  expect(dropCounts(counters)).toMatchObject([
    { direction: 'outbound', reason: 'kernel', packets: 3, about: expect.stringContaining('no reason') },
    { direction: 'inbound', reason: 'kernel', packets: 0 },
  ])
})

test.each([{}, { 'outbound.packets.passed': 7 }])('of %j it is not known', (counters) => {
  expect([droppedPackets({ counters }), dropCounts(counters)]).toEqual([null, []])
})
