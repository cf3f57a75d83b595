// Directories with their parents, also where none can be made.
import { existsSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { isDirectory, makeDirectory, removeEmptyDirectory } from '../../src/make-directory.ts'
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

test('what lies behind a file, a link in a circle or one that leads nowhere is no directory', () => {
  const path = temporaryDirectory()
  writeFileSync(`${path}/file`, '')
  symlinkSync('circle', `${path}/circle`)
  symlinkSync('nothing', `${path}/link`)
  const below = ['file', 'file/below', 'circle', 'circle/below', 'link', 'link/below', '.']
  expect(below.filter((name) => isDirectory(`${path}/${name}`))).toEqual(['.'])
})

test('a directory goes when it is empty, stays with what is in it, and may be gone already', () => {
  const path = `${temporaryDirectory()}/a`
  makeDirectory(`${path}/b`)
  writeFileSync(`${path}/b/file`, '')
  expect([removeEmptyDirectory(`${path}/b`), removeEmptyDirectory(path)]).toEqual([false, false])
  expect(() => removeEmptyDirectory(`${path}/b/file`)).toThrow(/ENOTDIR/)
  makeDirectory(`${path}/c`)
  expect([removeEmptyDirectory(`${path}/c`), removeEmptyDirectory(`${path}/c`)]).toEqual([true, true])
  expect(existsSync(`${path}/b/file`)).toBe(true)
})
