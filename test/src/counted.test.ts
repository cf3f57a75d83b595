// A noun agrees with its number.
import { expect, test } from 'vitest'
import { counted } from '../../src/counted.ts'

test.each([
  [0, '0 hosts'],
  [1, '1 host'],
  [2, '2 hosts'],
])('%d', (count, text) => {
  expect(counted(count, 'host')).toBe(text)
})
