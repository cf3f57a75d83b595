// Whether another process sees the network that we see.
import { readlinkSync } from 'node:fs'

/** Whether a process lives in our network namespace; one that cannot be asked is taken to, one that has ended does not. */
export function sharesNetwork(pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync('/proc/self/ns/net')
  } catch (error) {
    return pid === 0 || (error as NodeJS.ErrnoException).code !== 'ENOENT'
  }
}
