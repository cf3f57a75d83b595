// Exclusion by a file that its holder may take away.
import { rmSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { holdFileLock } from '../../../src/store/file-lock.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

test('who waited for a file that was removed holds the one that is there now', async () => {
  const path = `${temporaryDirectory()}/lock`
  const first = await holdFileLock(path, 0)
  const waiting = holdFileLock(path, 10_000)
  rmSync(path)
  first!()
  const second = await waiting
  expect(second).not.toBeNull()
  expect(await holdFileLock(path, 0)).toBeNull()
  second!()
  expect(await holdFileLock(path, 0)).not.toBeNull()
})

test('who waited for a file that was replaced waits for the new one', async () => {
  const path = `${temporaryDirectory()}/lock`
  const first = await holdFileLock(path, 0)
  const waiting = holdFileLock(path, 100)
  rmSync(path)
  writeFileSync(path, '')
  const other = await holdFileLock(path, 0)
  first!()
  expect(await waiting).toBeNull()
  other!()
})
