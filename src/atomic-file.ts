// Files that others read while we write them: a reader sees the old content or the new one, never half of it.
import { randomBytes } from 'node:crypto'
import {
  closeSync,
  fchmodSync,
  fsyncSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { isDirectory, makeDirectory } from './make-directory.ts'

export interface AtomicWriteOptions {
  /** Permission bits, set regardless of the umask. */
  readonly mode: number
  /** Whether the content must survive a power cut (costs a flush of the disk). */
  readonly durable: boolean
}

let serial = 0

/**
 * Writes a temporary file beside `path` and renames it over `path`, rename(2). The directory is made when it is
 * missing. The temporary name starts with a dot and holds our pid and a random number: two processes never share one,
 * also where each is process 1 of a container, or comes after one that was killed.
 */
export function writeFileAtomically(path: string, content: string, options: AtomicWriteOptions): void {
  const { directory, temporary } = beside(path)
  try {
    const fd = openSync(temporary, 'wx', options.mode)
    try {
      writeFileSync(fd, content)
      fchmodSync(fd, options.mode)
      if (options.durable) fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
    renameSync(temporary, path)
    if (options.durable) syncDirectory(directory)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
}

/**
 * Whether a regular file holds this text already: then nothing needs to be written, which a full disk or one that is
 * mounted read-only would refuse.
 */
export function holdsAlready(path: string, content: string): boolean {
  try {
    return statSync(path).isFile() && readFileSync(path, 'utf8') === content
  } catch {
    return false
  }
}

/** As writeFileAtomically, while the caller does other work: for megabytes, whose way to the disk may be longer than anything else. */
export async function writeFileInBackground(path: string, content: string, options: AtomicWriteOptions): Promise<void> {
  const { directory, temporary } = beside(path)
  try {
    const file = await open(temporary, 'wx', options.mode)
    try {
      await file.writeFile(content)
      await file.chmod(options.mode)
      if (options.durable) await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
    if (options.durable) syncDirectory(directory)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
}

/** More than any file that is tried for: on a disk that is full an empty one can often still be made. */
const TRIAL_BYTES = 4096

/**
 * Why a file could not be written there later on, as a phrase; `null` when it could. Found out by a trial beside it, or
 * where its directory is still missing in the nearest one that is there; nothing is left of it. A file that is there
 * already is no reason, whatever the disk: it may say the same (`holdsAlready`).
 */
export function writingProblem(path: string): string | null {
  let directory = dirname(path)
  try {
    const there = statSync(path, { throwIfNoEntry: false })
    if (there?.isDirectory() === true) return 'it is a directory'
    // A rename would take a device or a pipe away from everybody.
    if (there !== undefined) return there.isFile() ? null : 'it is no regular file'
    directory = nearestDirectory(directory)
    const temporary = temporaryIn(directory)
    try {
      writeFileSync(temporary, Buffer.alloc(TRIAL_BYTES), { flag: 'wx', mode: 0o600 })
    } finally {
      rmSync(temporary, { force: true })
    }
    return null
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return code === undefined ? message : `no file can be made in ${directory} (${code})`
  }
}

/** The directory, or the first of its parents that is there. @throws Error when that is no directory, or out of sight */
function nearestDirectory(path: string): string {
  if (isDirectory(path)) return path
  const parent = dirname(path)
  const found = nearestDirectory(parent)
  if (found === parent && lstatSync(path, { throwIfNoEntry: false }) !== undefined) {
    throw new Error(`${path} is no directory`)
  }
  return found
}

function beside(path: string): { readonly directory: string; readonly temporary: string } {
  const directory = dirname(path)
  makeDirectory(directory)
  return { directory, temporary: temporaryIn(directory) }
}

function temporaryIn(directory: string): string {
  return `${directory}/.${process.pid}-${serial++}-${randomBytes(4).toString('hex')}.tmp`
}

/**
 * Removes what writers that were killed left half-made in a directory. Only where no other writer can be at work: under
 * a lock that all of them take.
 */
export function sweepTemporaryFiles(directory: string): void {
  for (const name of readdirSync(directory)) {
    if (/^\.\d+-\d+(-[0-9a-f]+)?\.tmp$/.test(name)) rmSync(`${directory}/${name}`, { force: true })
  }
}

/** A rename is on disk only when its directory is. */
function syncDirectory(directory: string): void {
  const fd = openSync(directory, 'r')
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}
