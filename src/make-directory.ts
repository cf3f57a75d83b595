// Directories for what we write, with the parents that are missing.
import { mkdirSync, statSync } from 'node:fs'
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

export function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}
