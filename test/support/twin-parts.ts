// The long form of the comparison with the slow twin: ten million mutated frames each way in all, half of them for
// either encapsulation, in parts with seeds of their own (`FLANNELETTE_SEED` moves them).
import { expect, test } from 'vitest'
import type { EncapsulationName } from './engine-pair.ts'
import { feedTwins } from './twin-load.ts'

const SEED = Number(process.env.FLANNELETTE_SEED ?? 40)
const PARTS = 5
const FRAMES = 1_000_000

/** Defines the tests of one encapsulation. */
export function twinParts(encapsulation: EncapsulationName): void {
  const seeds = Array.from({ length: PARTS }, (_, part) => SEED + part)
  test.each(seeds)(`a million frames each way, ${encapsulation}, seed %i`, (seed) => {
    const twin = feedTwins(encapsulation, seed, FRAMES)
    for (const direction of ['outbound', 'inbound'] as const) {
      expect(twin.seen(direction, 'passed')).toBeGreaterThan(FRAMES / 4)
    }
  })
}
