// Ten million packets of each kind through two engines on the memory driver: next to nothing is left to the garbage
// collector, and every packet is accounted for.
import { expect, test } from 'vitest'
import { runScenario, SCENARIOS } from '../../bench/engine/scenario.ts'

const PACKETS = 10_000_000
const PACKETS_PER_COLLECTION = 5_000_000

test.each(SCENARIOS)('$name: ten million packets cause at most two collections', async (scenario) => {
  const figures = await runScenario(scenario, PACKETS)
  expect(figures).toMatchObject({ dropped: 0, imbalance: 0 })
  expect(figures.collections).toBeLessThanOrEqual(figures.packets / PACKETS_PER_COLLECTION)
})
