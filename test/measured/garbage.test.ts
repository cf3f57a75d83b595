// Millions of packets of each kind through two engines on the memory driver: next to nothing is left to the garbage
// collector, and every packet is accounted for. In processes of their own, where no test runner leaves garbage besides.
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { type Figures, SCENARIOS } from '../../bench/engine/scenario.ts'
import { ROOT } from '../support/source-tree.ts'

const PACKETS_PER_COLLECTION = 5_000_000
const MAIN = join(ROOT, 'dist/bench/engine/main.js')
/** V8 shrinks a heap that changes little after some seconds: a collection that says nothing of garbage. */
const FLAGS = ['--no-memory-reducer']

test.each(SCENARIOS.map(({ name }, index) => [name, index]))(
  '%s: at most one collection in five million packets',
  (_, index) => {
    const packets = (index === 0 ? 2 : 1) * PACKETS_PER_COLLECTION
    const output = execFileSync(process.execPath, [...FLAGS, MAIN, String(packets), String(index)], {
      encoding: 'utf8',
    })
    const figures = JSON.parse(output) as Figures
    expect(figures.packets).toBeGreaterThanOrEqual(packets)
    expect(figures).toMatchObject({ dropped: 0, imbalance: 0 })
    expect(figures.collections).toBeLessThanOrEqual(packets / PACKETS_PER_COLLECTION)
  },
)
