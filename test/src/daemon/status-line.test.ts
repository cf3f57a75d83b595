// A node, and a store that is away, in few words.
import { expect, test } from 'vitest'
import { awayInWords } from '../../../src/daemon/status-line.ts'

test.each([
  [
    'etcd:a',
    'store etcd:a cannot be reached (it closed the connection)',
    'etcd:a cannot be reached (it closed the connection)',
  ],
  ['etcd:a', 'switched off', 'etcd:a is away: switched off'],
  ['etcd:a', '', 'etcd:a is away'],
])('a store is named once: %s, %s', (name, why, words) => {
  expect(awayInWords({ name, reachable: false, why })).toBe(words)
})
