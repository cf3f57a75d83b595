// The arithmetic behind every figure of the benchmark.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { median, type Sample, summarize, takeTurns } from '../../../bench/netns/rounds.ts'

const sample = (value: number, cpuSeconds = 1, moved = 1): Sample => ({ value, cpuSeconds, moved })

describe('median', () => {
  test('has as many values below it as above', () => {
    fc.assert(
      fc.property(fc.array(fc.integer(), { minLength: 1 }), (values) => {
        const middle = median(values)
        const below = values.filter((value) => value < middle).length
        const above = values.filter((value) => value > middle).length
        return below <= values.length / 2 && above <= values.length / 2
      }),
    )
  })

  test('of an even number of values lies between the two in the middle', () => {
    expect(median([10, 1, 2, 3])).toBe(2.5)
  })

  test('of nothing is an error, not a figure', () => {
    expect(() => median([])).toThrow(RangeError)
  })
})

test('a summary tells the spread and the cost of a unit', () => {
  const summary = summarize([sample(5, 8, 2), sample(7, 9, 3), sample(6, 10, 1)])
  expect(summary).toEqual({ median: 6, lowest: 5, highest: 7, cpuPerMoved: 4, rounds: [5, 7, 6] })
})

test('contestants take turns, and each begins a round as often as the other', async () => {
  const order: string[] = []
  const samples = await takeTurns(['a', 'b'], 4, async (name) => {
    order.push(name)
    return sample(order.length)
  })
  expect(order.join('')).toBe('abbaabba')
  expect(samples.get('a')?.map(({ value }) => value)).toEqual([1, 4, 5, 8])
})
