// Which daemons run on this host, by the locks that they hold as long as they live.
import { readdirSync, readFileSync } from 'node:fs'
import { hasEnded, sharesNetwork } from '../host/network-namespace.ts'
import { holdFileLock } from '../store/file-lock.ts'
import { IDENTITY_DIRECTORY } from './identity-claim.ts'

/** Files of identities that nobody has any more, and the pids of daemons in this network namespace. */
export interface Identities {
  readonly pids: readonly number[]
  readonly abandoned: readonly string[]
}

export async function readIdentities(directory = IDENTITY_DIRECTORY): Promise<Identities> {
  const pids: number[] = []
  const abandoned: string[] = []
  for (const name of namesIn(directory)) {
    const path = `${directory}/${name}`
    const release = await holdFileLock(path, 0)
    if (release !== null) {
      release()
      abandoned.push(path)
      continue
    }
    const pid = Number(readFileSync(path, 'utf8'))
    // It may have ended since its lock was tried; a pid that is not written yet is somebody's.
    if (sharesNetwork(pid) && (pid === 0 || !hasEnded(pid))) pids.push(pid)
  }
  return { pids, abandoned }
}

/** Of what a directory holds; none where it is not there. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}
