// Exclusion between processes on one machine: flock(2) on a file. The kernel lets go of it however the holder dies, it
// works across network and pid namespaces, and two opens in one process exclude each other as well.
import { closeSync, fstatSync, openSync, statSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import koffi from 'koffi'

const LOCK_EX = 2
const LOCK_NB = 4

const flock = koffi.load('libc.so.6').func('int flock(int fd, int operation)') as (
  fd: number,
  operation: number,
) => number

const RETRY_MS = 5

/**
 * Takes the lock on `path` (made when missing) until the returned function is called or the process ends, however it
 * ends. `null` when somebody else held it for the whole of `patienceMs`. Who holds it may remove the file: whoever waits
 * for it then takes the lock on a new one.
 */
export async function holdFileLock(path: string, patienceMs: number): Promise<(() => void) | null> {
  const giveUpAt = performance.now() + patienceMs
  for (;;) {
    const fd = openSync(path, 'a', 0o644)
    while (flock(fd, LOCK_EX | LOCK_NB) !== 0) {
      if (performance.now() > giveUpAt) {
        closeSync(fd)
        return null
      }
      await pause(RETRY_MS)
    }
    if (isFileAt(path, fd)) return () => closeSync(fd)
    closeSync(fd)
  }
}

/** A lock on a file that was removed meanwhile excludes nobody who comes later. */
function isFileAt(path: string, fd: number): boolean {
  const [open, there] = [fstatSync(fd), statSync(path, { throwIfNoEntry: false })]
  return there !== undefined && there.ino === open.ino && there.dev === open.dev
}

/** Runs `work`, which must not wait for anything, while holding the lock. `null` as above. */
export async function withFileLock<T>(path: string, patienceMs: number, work: () => T): Promise<{ value: T } | null> {
  const release = await holdFileLock(path, patienceMs)
  if (release === null) return null
  try {
    return { value: work() }
  } finally {
    release()
  }
}
