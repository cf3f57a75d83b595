// Which daemons run on this host, by the locks that they hold as long as they live.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
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
    if (sharesNetwork(pid)) pids.push(pid)
  }
  return { pids, abandoned }
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

/** Whether a process lives in our network namespace; one that cannot be asked is taken to. */
function sharesNetwork(pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync('/proc/self/ns/net')
  } catch {
    return true
  }
}
