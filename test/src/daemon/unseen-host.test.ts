// The note of a daemon that cannot look at its host, and who reads it.
import { expect, test } from 'vitest'
import { unseenInWords, whyUnseen } from '../../../src/daemon/unseen-host.ts'

test('the reason is read from the note of health, and from no other note', () => {
  const why = 'the program `ip` is missing: or is it?'
  expect(whyUnseen(unseenInWords(why))).toBe(why)
  expect(whyUnseen('the lease is not confirmed by the store')).toBeNull()
})
