// The micro-benchmarks run what they say they run; a short look, so that they never rot.
import { expect, test } from 'vitest'
import { CASES } from '../../../bench/micro/cases.ts'
import { measure } from '../../../bench/micro/measure.ts'

test.each(CASES)('$name: each run handles the packets that it is divided by', ({ prepare }) => {
  const { run, packets, counters } = prepare()
  expect(packets).toBeGreaterThan(0)
  const before = counters?.snapshot() ?? {}
  for (let round = 0; round < 3; round++) run()
  if (counters === undefined) return
  const grown = Object.entries(counters.snapshot()).map(([name, value]) => [name, value - (before[name] ?? 0)] as const)
  const passed = grown.filter(([name]) => name.endsWith('packets.passed')).reduce((sum, [, value]) => sum + value, 0)
  expect(passed).toBe(3 * packets)
  expect(counters.imbalance()).toMatchObject({ packets: 0 })
})

test('a measurement has a time, a margin, and sees what is left on the heap', async () => {
  const kept: number[][] = []
  const wasteful = { run: () => kept.push([kept.length, 1, 2, 3]), packets: 1 }
  const measured = await measure(wasteful, 0.05)
  expect(measured.nanosecondsPerPacket).toBeGreaterThan(0)
  expect(measured.marginPercent).toBeGreaterThanOrEqual(0)
  if (measured.heapBytesPerPacket !== null) expect(measured.heapBytesPerPacket).toBeGreaterThan(30)
})
