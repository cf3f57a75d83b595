// What the lab refuses before it pings.
import { expect, test } from 'vitest'
import { type PingOptions, ping } from '../../../src/lab/ping.ts'

// A namespace that does not exist: whoever got as far would say so instead.
const nobody = { name: 'pod1.1', namespace: 'flannelette-none', address: '192.0.2.1' }

test.each<[PingOptions, RegExp]>([
  [{ count: 0 }, /^--count 0 .*1 to 10000/],
  [{ sizeBytes: 65_508 }, /^--size 65508 .*0 to 65507/],
])('a ping with %o is refused', async (options, words) => {
  const refusal = { code: 'usage', oneLine: expect.stringMatching(words) }
  await expect(ping(nobody, nobody, options)).rejects.toMatchObject(refusal)
})
