// Atomic writes: readers see whole files, failures leave nothing, and leftovers of killed writers can be swept.
import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { describe, expect, test } from 'vitest'
import {
  type AtomicWriteOptions,
  sweepTemporaryFiles,
  writeFileAtomically,
  writeFileInBackground,
  writingProblem,
} from '../../src/atomic-file.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const OPTIONS = { mode: 0o600, durable: true }

const atOnce = async (path: string, content: string, options: AtomicWriteOptions) =>
  writeFileAtomically(path, content, options)

describe.each([
  ['at once', atOnce],
  ['in the background', writeFileInBackground],
])('a file written %s', (_, write) => {
  test('makes directory and file, with exactly the mode that was asked for', async () => {
    const path = `${temporaryDirectory()}/a/b/file`
    await write(path, 'one', OPTIONS)
    expect([readFileSync(path, 'utf8'), statSync(path).mode & 0o777]).toEqual(['one', 0o600])
  })

  test('a reader that has the file open keeps reading the old content', async () => {
    const path = `${temporaryDirectory()}/file`
    await write(path, 'old', OPTIONS)
    const fd = openSync(path, 'r')
    await write(path, 'new and longer', { ...OPTIONS, durable: false })
    const bytes = Buffer.alloc(20)
    expect(bytes.toString('utf8', 0, readSync(fd, bytes))).toBe('old')
    closeSync(fd)
    expect(readFileSync(path, 'utf8')).toBe('new and longer')
  })

  test('long content arrives whole', async () => {
    const path = `${temporaryDirectory()}/file`
    const content = 'ä'.repeat(3_000_000)
    await write(path, content, OPTIONS)
    expect(readFileSync(path, 'utf8') === content).toBe(true)
  })

  test('what a killed writer of the same pid left half-made is in nobody’s way', async () => {
    const directory = temporaryDirectory()
    for (let serial = 0; serial < 200; serial++) writeFileSync(`${directory}/.${process.pid}-${serial}.tmp`, 'half')
    await write(`${directory}/file`, 'whole', OPTIONS)
    expect(readFileSync(`${directory}/file`, 'utf8')).toBe('whole')
  })

  test('a failure leaves the target as it was and no temporary file', async () => {
    const directory = temporaryDirectory()
    mkdirSync(`${directory}/file/occupied`, { recursive: true })
    await expect(write(`${directory}/file`, 'x', OPTIONS)).rejects.toThrow('file')
    expect(readdirSync(directory)).toEqual(['file'])
  })
})

test('sweeping removes half-made files and nothing else', () => {
  const directory = temporaryDirectory()
  for (const name of ['.12-3.tmp', '.12-3-0a1b2c3d.tmp', '.hidden', 'file', 'x.tmp'])
    writeFileSync(`${directory}/${name}`, '')
  sweepTemporaryFiles(directory)
  expect(readdirSync(directory).sort()).toEqual(['.hidden', 'file', 'x.tmp'])
})

describe('a trial', () => {
  test('leaves nothing, neither a file nor a directory that is still missing', () => {
    const directory = temporaryDirectory()
    expect([writingProblem(`${directory}/file`), writingProblem(`${directory}/a/b/file`)]).toEqual([null, null])
    expect(readdirSync(directory)).toEqual([])
  })

  test.each([
    ['a directory', () => temporaryDirectory(), /^it is a directory$/],
    [
      'below nothing, where nothing can be made',
      () => '/proc/none/file',
      /^no file can be made in \/proc \(E[A-Z]+\)$/,
    ],
    ['in a file', () => `${aFile()}/file`, /file is no directory$|\(ENOTDIR\)$/],
    ['below a file', () => `${aFile()}/a/b/file`, /file is no directory$|\(ENOTDIR\)$/],
    ['behind a link to nothing', () => `${deadLink()}/file`, /link is no directory$/],
  ])('tells what is in the way: %s', (_, path, problem) => {
    const wanted = path()
    expect(writingProblem(wanted)).toMatch(problem)
    expect(() => writeFileAtomically(wanted, 'x', OPTIONS)).toThrow()
  })

  test('finds a device in the way, which a rename would replace', () => {
    expect(writingProblem('/dev/null')).toBe('it is no regular file')
  })

  test('does not judge a file that is there, which may be left as it is, and leaves it alone', () => {
    const path = aFile()
    const { ino, ctimeMs } = statSync(path)
    expect([writingProblem(path), writingProblem('/proc/version')]).toEqual([null, null])
    expect(statSync(path)).toMatchObject({ ino, ctimeMs })
    expect(readFileSync(path, 'utf8')).toBe('there')
  })
})

function aFile(): string {
  const path = `${temporaryDirectory()}/file`
  writeFileSync(path, 'there')
  return path
}

function deadLink(): string {
  const path = `${temporaryDirectory()}/link`
  symlinkSync('/nowhere', path)
  return path
}
