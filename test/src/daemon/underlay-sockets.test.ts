// What is said of a receive buffer that the kernel has cut short.
import { expect, test } from 'vitest'
import { smallBufferAdvice } from '../../../src/daemon/underlay-sockets.ts'

test('a receive buffer of the default size is told of, with the sysctl that caps it', () => {
  expect(smallBufferAdvice(425_984)).toMatch(
    /425984 of 4194304 bytes.*rx-queue-full; sysctl -w net\.core\.rmem_max=4194304/,
  )
})

test.each([
  ['large enough', 4 * 1024 * 1024],
  ['larger', 64 * 1024 * 1024],
  ['of a driver that does not tell', 0],
])('one that is %s is not', (_, bytes) => {
  expect(smallBufferAdvice(bytes)).toBeNull()
})
