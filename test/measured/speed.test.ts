// Speed that must not be lost: medians as a share of another way to forward in the same run, on this machine.
import { expect, test } from 'vitest'
import { compare } from '../../bench/netns/compare.ts'
import { GUARDS, type Guard } from '../../bench/netns/guards.ts'

const ROUNDS = 5
const SECONDS = 4

async function ratioOf({ baseline, challenger, load, underlay }: Guard): Promise<number> {
  const progress = (line: string) => console.log(line)
  const match = { baseline, challenger }
  const [comparison] = await compare({ match, underlay, loads: [load], rounds: ROUNDS, seconds: SECONDS, progress })
  return comparison?.ratio ?? 0
}

test.each(GUARDS)('$load over $underlay: $challenger reaches $atLeast of $baseline', async (guard) => {
  // A shared machine may have one bad run; two in a row are a finding.
  const first = await ratioOf(guard)
  const ratio = first >= guard.atLeast ? first : await ratioOf(guard)
  expect(ratio).toBeGreaterThanOrEqual(guard.atLeast)
})
