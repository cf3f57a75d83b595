// One daemon on a host for each public address in a store.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { claimIdentity, OwnIdentities } from '../../../src/daemon/identity-claim.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const HOST = { publicIp: 0xc0000201, store: 'file:/run/store' }
const log = new RecordingLog()

/** Two opens in one process exclude each other as two processes do. */
const claim = (directory: string, identity = HOST) => claimIdentity(identity, log, directory, 0)

test('a second one is refused, with the number of the first', async () => {
  const directory = temporaryDirectory()
  await claim(directory)
  await expect(claim(directory)).rejects.toMatchObject({
    code: 'device-busy',
    message: `another daemon on this host (pid ${process.pid}) has the address 192.0.2.1 in file:/run/store`,
    remedy: expect.stringContaining('--public-ip'),
  })
})

test('another address, or another store, is another identity', async () => {
  const directory = temporaryDirectory()
  await claim(directory)
  await claim(directory, { ...HOST, publicIp: 0xc0000202 })
  await claim(directory, { ...HOST, store: 'file:/run/other' })
})

test('a holder that dies, however it does, lets go', async () => {
  const directory = temporaryDirectory()
  await claim(directory)
  const path = join(directory, readdirSync(directory)[0]!.replace(/^[^-]+/, '192.0.2.9'))
  writeFileSync(path, '1\n')
  const holder = spawn('flock', ['--no-fork', path, 'sleep', '60'], { stdio: 'ignore' })
  onTestFinished(() => void holder.kill('SIGKILL'))
  const isHeld = () => {
    try {
      execFileSync('flock', ['--nonblock', path, 'true'])
      return false
    } catch {
      return true
    }
  }
  await expect.poll(isHeld).toBe(true)
  const other = { ...HOST, publicIp: 0xc0000209 }
  await expect(claim(directory, other)).rejects.toThrow('pid 1')
  holder.kill('SIGKILL')
  await once(holder, 'close')
  await claim(directory, other)
})

test('a daemon that stops takes its file away, and a start those of daemons that were killed', async () => {
  const directory = temporaryDirectory()
  const giveUp = await claim(directory)
  const [own] = readdirSync(directory)
  writeFileSync(join(directory, '192.0.2.9-0000000000000000'), '4194304\n')
  const giveUpOther = await claim(directory, { ...HOST, publicIp: 0xc0000202 })
  expect(readdirSync(directory)).toEqual([own, own!.replace('192.0.2.1', '192.0.2.2')])
  giveUp()
  giveUpOther()
  expect(readdirSync(directory)).toEqual([])
  await claim(directory)
})

test('a daemon whose move is tried again, or leads back, is not in its own way', async () => {
  const directory = temporaryDirectory()
  const own = new OwnIdentities(HOST.store, log, directory)
  for (const publicIp of [0xc0000201, 0xc0000202, 0xc0000202, 0xc0000201]) await own.claim(publicIp)
  await expect(claim(directory)).rejects.toMatchObject({ code: 'device-busy' })
  own.giveUp()
  expect(readdirSync(directory)).toEqual([])
})

test('a directory that cannot be made is warned about, and the start goes on', async () => {
  const directory = temporaryDirectory()
  writeFileSync(join(directory, 'file'), '')
  await claim(join(directory, 'file', 'identity'))
  expect(log.of('identity-unguarded')).toHaveLength(1)
})
