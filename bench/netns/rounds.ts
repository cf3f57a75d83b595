// Fair comparison: contestants take turns, round by round, so that a slow minute of the machine hits all of them; what
// counts is the median, and the spread beside it says how much the machine wavered.

export interface Sample {
  /** Gbit/s or packets/s, whatever is compared. */
  readonly value: number
  /** CPU seconds of the whole machine during the run. */
  readonly cpuSeconds: number
  /** What was moved in it: Gbit or packets. */
  readonly moved: number
}

export interface Summary {
  readonly median: number
  readonly lowest: number
  readonly highest: number
  /** CPU seconds of the whole machine for each unit moved, median of the rounds. */
  readonly cpuPerMoved: number
  readonly rounds: readonly number[]
}

/**
 * Measures every contestant once a round, `rounds` times; each round begins with another one. `progress` hears every
 * sample.
 */
export async function takeTurns<Name extends string>(
  contestants: readonly Name[],
  rounds: number,
  measure: (contestant: Name) => Promise<Sample>,
  progress: (contestant: Name, round: number, sample: Sample) => void = () => {},
): Promise<Map<Name, Sample[]>> {
  const samples = new Map<Name, Sample[]>(contestants.map((name) => [name, []]))
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < contestants.length; turn++) {
      const name = contestants[(round + turn) % contestants.length]
      if (name === undefined) continue
      const sample = await measure(name)
      samples.get(name)?.push(sample)
      progress(name, round, sample)
    }
  }
  return samples
}

/** @throws RangeError without samples: a median of nothing must not pass for a figure. */
export function summarize(samples: readonly Sample[]): Summary {
  const rounds = samples.map(({ value }) => value)
  return {
    median: median(rounds),
    lowest: Math.min(...rounds),
    highest: Math.max(...rounds),
    cpuPerMoved: median(samples.map(({ cpuSeconds, moved }) => cpuSeconds / moved)),
    rounds,
  }
}

/** Middle value; the mean of the two in the middle when their number is even. @throws RangeError when empty */
export function median(values: readonly number[]): number {
  if (values.length === 0) throw new RangeError('no values')
  const sorted = [...values].sort((a, b) => a - b)
  const upper = sorted[Math.floor(sorted.length / 2)] ?? 0
  const lower = sorted[Math.ceil(sorted.length / 2) - 1] ?? 0
  return (lower + upper) / 2
}
