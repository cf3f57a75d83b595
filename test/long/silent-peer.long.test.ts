// A peer that is sent to and says nothing, over a real underlay: status names it, with what to type next, and takes it
// back when it answers.
import { execFileSync, spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { startDaemon, twoHosts } from '../support/daemon-under-test.ts'

const LIMIT_MS = 45_000

test('a peer behind a firewall that swallows what comes is told apart from one that is idle', async () => {
  const [a, b] = twoHosts()
  const [here, other] = [startDaemon(a), startDaemon(b)]
  await here.ready(1)
  await other.ready(1)
  const inB = (...words: string[]) => execFileSync('ip', ['netns', 'exec', b.namespace, ...words])
  inB('nft', 'add table ip swallow; add chain ip swallow in { type filter hook input priority 0; }')
  inB('nft', 'add rule ip swallow in udp dport 8472 drop')

  const there = other.status!.node!.overlayAddress
  const state = () => {
    spawnSync('ip', ['netns', 'exec', a.namespace, 'ping', '-c', '1', '-W', '1', there])
    return here.status?.peers[0]?.state
  }
  await expect.poll(state, { timeout: LIMIT_MS }).toBe('no-answer')
  const { stdout } = spawnSync(process.execPath, [mainProgram(), 'status', '--state-dir', a.stateDirectory], {
    encoding: 'utf8',
  })
  expect(stdout).toContain('warning: sending to 192.0.2.2')
  expect(stdout).toContain('next: flannelette ping 192.0.2.2')
  expect(here.status?.state).toBe('ready')

  inB('nft', 'delete table ip swallow')
  await expect.poll(state, { timeout: LIMIT_MS }).toBe('active')
}, 120_000)
