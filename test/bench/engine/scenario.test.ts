// The engine's benchmark moves what it says it moves; a short run, so that it never rots.
import { expect, test } from 'vitest'
import { runScenario, SCENARIOS, watchHeap } from '../../../bench/engine/scenario.ts'

test.each(SCENARIOS)('$name: every packet of the benchmark crosses and is accounted for', async (scenario) => {
  const figures = await runScenario(scenario, 5000)
  expect(figures.packets).toBeGreaterThanOrEqual(5000)
  expect(figures).toMatchObject({ dropped: 0, imbalance: 0 })
  expect(figures.outbound.packetsPerSecond).toBeGreaterThan(0)
  expect(figures.inbound.packetsPerSecond).toBeGreaterThan(0)
})

test('work that leaves garbage is noticed', async () => {
  const kept: number[][] = []
  const { collections } = await watchHeap(() => {
    for (let i = 0; i < 2_000_000; i++) kept[i % 1000] = [i, i]
  })
  expect(collections).toBeGreaterThan(2)
})
