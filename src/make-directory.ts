// Directories for what we write, with the parents that are missing; and the way back.
import { mkdirSync, rmdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Makes a directory, mode 0755 less the umask; not an error when it is there. Not `mkdirSync` with `recursive`: that
 * one never returns where the parent exists and still nothing can be made in it, as below /proc.
 * @throws Error of mkdir(2)
 */
export function makeDirectory(path: string): void {
  if (isDirectory(path)) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent)
  try {
    mkdirSync(path, { mode: 0o755 })
  } catch (error) {
    // Somebody else may have made it meanwhile.
    if (!isDirectory(path)) throw error
  }
}

/** Whether it is gone now: not when something is in it, or mounted there. @throws Error of rmdir(2) for anything else */
export function removeEmptyDirectory(path: string): boolean {
  try {
    rmdirSync(path)
    return true
  } catch (error) {
    // Asked for: of what is not there a read-only file system says EROFS.
    if (statSync(path, { throwIfNoEntry: false }) === undefined) return true
    const { code = '' } = error as NodeJS.ErrnoException
    if (!['ENOTEMPTY', 'EBUSY'].includes(code)) throw error
    return false
  }
}

/**
 * False also for nothing, for what lies behind a link that leads nowhere, and for a path on which something stands that is
 * no directory. @throws Error of stat(2) for what cannot be looked at
 */
export function isDirectory(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  } catch (error) {
    if (['ENOTDIR', 'ELOOP'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
    throw error
  }
}
