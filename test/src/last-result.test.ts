// A result that is kept while it is asked of the very same things.
import { expect, test } from 'vitest'
import { lastResult, resultPer } from '../../src/last-result.ts'

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

test('of each object it is computed once, also where it is nothing', () => {
  const asked: string[] = []
  const lengthOf = resultPer(({ text }: { readonly text: string }) => {
    asked.push(text)
    return text === '' ? null : text.length
  })
  const [some, none, alike] = [{ text: 'abc' }, { text: '' }, { text: 'abc' }]
  expect([some, none, some, none, alike].map(lengthOf)).toEqual([3, null, 3, null, 3])
  expect(asked).toEqual(['abc', '', 'abc'])
})
