// Time spans as people read them.
import { expect, test } from 'vitest'
import { formatSpan } from '../../src/time-span.ts'

test.each([
  [-5000, '0s'],
  [400, '0s'],
  [59_400, '59s'],
  [61_000, '1m1s'],
  [3_600_000, '1h'],
  [86_220_000, '23h57m'],
  [90_061_000, '1d1h'],
])('%d ms read %s', (ms, text) => {
  expect(formatSpan(ms)).toBe(text)
})
