// Whether another process sees the network that we see.
import { readlinkSync } from 'node:fs'

const namespaceOf = (process: number | 'self') => readlinkSync(`/proc/${process}/ns/net`)

/** Whether a process lives in our network namespace; one that cannot be asked is taken to. */
export function sharesNetwork(pid: number): boolean {
  try {
    return namespaceOf(pid) === namespaceOf('self')
  } catch {
    return true
  }
}

/** Whether a process has left its network namespace because it has ended; one that may not be asked has not. */
export function hasEnded(pid: number): boolean {
  try {
    namespaceOf(pid)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT'
  }
}
