// Directories with their parents, also where none can be made.
import { statSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { makeDirectory } from '../../src/make-directory.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

test('a directory is made with its parents, and may be there already', () => {
  const path = `${temporaryDirectory()}/a/b/c`
  makeDirectory(path)
  makeDirectory(path)
  expect(statSync(path).isDirectory()).toBe(true)
})

test.each(['/proc/flannelette', '/proc/flannelette/deeper'])(
  '%s, where the kernel makes no directory, is an error and no endless attempt',
  (path) => {
    expect(() => makeDirectory(path)).toThrow(/ENOENT/)
  },
)

test('a file in the way is an error', () => {
  const file = `${temporaryDirectory()}/file`
  writeFileSync(file, '')
  expect(() => makeDirectory(file)).toThrow(/EEXIST/)
  expect(() => makeDirectory(`${file}/below`)).toThrow(/ENOTDIR|EEXIST/)
})
