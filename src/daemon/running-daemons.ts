// Which daemons run on this host, by the locks that they hold as long as they live.
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { hasEnded, sharesNetwork } from '../host/network-namespace.ts'
import { holdFileLock } from '../store/file-lock.ts'

export const IDENTITY_DIRECTORY = '/run/flannelette/identity'

/** Files of identities that nobody has any more, and the pids of daemons in this network namespace. */
export interface Identities {
  readonly pids: readonly number[]
  readonly abandoned: readonly string[]
}

/** `sweep`: the abandoned ones are removed, and told. */
export async function readIdentities(directory = IDENTITY_DIRECTORY, sweep = false): Promise<Identities> {
  const pids: number[] = []
  const abandoned: string[] = []
  for (const name of namesIn(directory)) {
    const path = `${directory}/${name}`
    const release = await holdFileLock(path, 0)
    if (release !== null) {
      if (sweep) rmSync(path, { force: true })
      release()
      abandoned.push(path)
      continue
    }
    const pid = pidIn(path)
    // It may have ended since its lock was tried; a pid that is not written yet is somebody's.
    if (pid !== null && sharesNetwork(pid) && (pid === 0 || !hasEnded(pid))) pids.push(pid)
  }
  return { pids, abandoned }
}

/** Who holds an identity: 0 while it is not written yet, `null` when the file is gone by now. */
export function pidIn(path: string): number | null {
  try {
    return Number(readFileSync(path, 'utf8'))
  } catch {
    return null
  }
}

/** Of what a directory holds; none where it is not there. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}
