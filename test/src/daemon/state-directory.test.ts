// What a node remembers across restarts, and how it survives rubbish in its memory.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { StateDirectory } from '../../../src/daemon/state-directory.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const LEASE = {
  ...peerLease('10.244.1.0/24', '192.0.2.1', '0a:00:00:00:00:01'),
  expiresAtMs: 1_767_225_600_000,
  revision: 7,
}
const RESERVED = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')

function make(path = `${temporaryDirectory()}/state`) {
  const log = new RecordingLog()
  const state = new StateDirectory(path, log)
  state.prepare()
  return { path, log, state }
}

test('a fresh directory remembers nothing and warns of nothing', () => {
  const { state, log } = make()
  expect([state.readMac(), state.readLease(), state.readLeases(), log.lines]).toEqual([null, null, [], []])
})

test('MAC, own lease with its config, and all leases come back as they were', async () => {
  const { path, state } = make()
  state.writeMac(0x0a_00_00_00_00_01)
  state.writeLease({ lease: LEASE, config: '{"Network": "10.244.0.0/16"}' })
  await state.writeLeases([LEASE, RESERVED])
  const { state: again, log } = make(path)
  expect(again.readMac()).toBe(0x0a_00_00_00_00_01)
  expect(again.readLease()).toEqual({ lease: LEASE, config: '{"Network": "10.244.0.0/16"}' })
  expect(again.readLeases()).toEqual([LEASE, RESERVED])
  expect(log.lines).toEqual([])
  expect(readFileSync(`${path}/mac`, 'utf8')).toBe('0a:00:00:00:00:01\n')
  expect(readdirSync(path).sort()).toEqual(['lease.json', 'leases.json', 'mac'])
})

test.each([
  ['mac', 'hello'],
  ['mac', ''],
  ['lease.json', '{"Config"'],
  ['lease.json', '{"Config":"{}"}'],
  ['lease.json', '{"Config":"{}","Lease":{"Key":"x","Content":"{}"}}'],
  ['lease.json', 'null'],
  ['leases.json', '{}'],
  ['leases.json', '{"Leases":[{"Key":"10.244.1.0-24","Content":"rubbish"}]}'],
])('%s that holds %j is ignored with one warning', (name, content) => {
  const { path, state, log } = make()
  writeFileSync(`${path}/${name}`, content)
  expect([state.readMac(), state.readLease(), state.readLeases()]).toEqual([null, null, []])
  expect(log.of('state-unreadable').map((line) => line.message)).toEqual([expect.stringContaining(`${path}/${name}`)])
})

test('a file that cannot be written is warned about and stops nothing', () => {
  const { path, state, log } = make()
  mkdirSync(`${path}/mac/occupied`, { recursive: true })
  state.writeMac(1)
  expect(log.of('state-unwritable')).toHaveLength(1)
})

test('a second daemon with the same directory is refused, until the first one is gone', async () => {
  const { path, state } = make()
  const script = 'exec 9>>"$0/lock"; flock 9; echo held; read line'
  const first = execFile('sh', ['-c', script, path])
  onTestFinished(() => void first.kill('SIGKILL'))
  await new Promise((resolve) => first.stdout?.once('data', resolve))
  await expect(state.claim()).rejects.toMatchObject({
    code: 'device-busy',
    exitCode: 1,
    oneLine: expect.stringMatching(new RegExp(`${path}.*--state-dir`)),
  })
  const gone = once(first, 'exit')
  first.kill('SIGKILL')
  await gone
  await state.claim()
})

test('a directory that cannot be made is an error with a remedy', () => {
  const base = temporaryDirectory()
  writeFileSync(`${base}/file`, '')
  chmodSync(base, 0o755)
  const state = new StateDirectory(`${base}/file/state`, new RecordingLog())
  expect(() => state.prepare()).toThrow(
    expect.objectContaining({ exitCode: 2, oneLine: expect.stringContaining('--state-dir') }),
  )
})
