// Whether another process sees our network, of processes that live and one that does not any more.
import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { hasEnded, sharesNetwork } from '../../../src/host/network-namespace.ts'

test('a process that lives shares our network and has not ended', () => {
  expect([sharesNetwork(process.ppid), hasEnded(process.ppid)]).toEqual([true, false])
})

test('one that has ended has, and is not said to live in another network', () => {
  const { pid } = spawnSync('true')
  expect([sharesNetwork(pid), hasEnded(pid)]).toEqual([true, true])
})
