// A result that is kept while it is asked of the very same things.
import { expect, test } from 'vitest'
import { lastResult } from '../../src/last-result.ts'

test('it is computed anew for other arguments, the last ones alone are known, and equal ones are others', () => {
  const asked: (readonly unknown[])[] = []
  const sum = lastResult((numbers: readonly number[], more: number) => {
    asked.push([numbers, more])
    return numbers.reduce((a, b) => a + b, more)
  })
  const numbers = [1, 2]
  expect([sum(numbers, 1), sum(numbers, 1), asked.length]).toEqual([4, 4, 1])
  expect([sum(numbers, 2), sum(numbers, 1), sum([1, 2], 1), asked.length]).toEqual([5, 4, 4, 4])
})
