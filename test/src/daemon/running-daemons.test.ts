// Daemons of this host, told by the locks that they hold.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { readIdentities } from '../../../src/daemon/running-daemons.ts'
import { holdFileLock } from '../../../src/store/file-lock.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

test('a lock that is held names a daemon, one that is free is left over', async () => {
  const directory = temporaryDirectory()
  writeFileSync(`${directory}/192.0.2.1-a`, '4194304\n')
  const release = await holdFileLock(`${directory}/192.0.2.2-a`, 0)
  onTestFinished(() => release?.())
  writeFileSync(`${directory}/192.0.2.2-a`, `${process.pid}\n`)
  expect(await readIdentities(directory)).toEqual({ pids: [process.pid], abandoned: [`${directory}/192.0.2.1-a`] })
})

test('a daemon that has ended since its lock was tried is nobody', async () => {
  const directory = temporaryDirectory()
  const release = await holdFileLock(`${directory}/192.0.2.3-a`, 0)
  onTestFinished(() => release?.())
  const ended = spawnSync('true').pid
  writeFileSync(`${directory}/192.0.2.3-a`, `${ended}\n`)
  expect(await readIdentities(directory)).toEqual({ pids: [], abandoned: [] })
})

test('where nobody ever claimed anything there is nobody', async () => {
  expect(await readIdentities(`${temporaryDirectory()}/none`)).toEqual({ pids: [], abandoned: [] })
})
