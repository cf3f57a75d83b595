// Whether this process may change the network at all: known before anything is tried, so that nothing half-made is
// left.
import { readFileSync } from 'node:fs'
import { FlanneletteError } from '../errors.ts'

/** capabilities(7), linux/capability.h. */
const CAP_NET_ADMIN = 12n

/**
 * Whether programs that we start may change the network, by the text of /proc/self/status (proc_pid_status(5)): root's
 * have what we have, other users' only what is ambient. True where the text does not say.
 */
export function mayConfigureNetwork(status: string): boolean {
  const uid = /^Uid:\s+\d+\s+(\d+)/m.exec(status)?.[1]
  const name = uid === '0' ? 'CapEff' : 'CapAmb'
  const set = new RegExp(`^${name}:\\s+([0-9a-f]+)`, 'm').exec(status)?.[1]
  return set === undefined || ((BigInt(`0x${set}`) >> CAP_NET_ADMIN) & 1n) === 1n
}

/** The same of this process. */
export function isNetworkAdmin(): boolean {
  return mayConfigureNetwork(readFileSync('/proc/self/status', 'latin1'))
}

/** @throws FlanneletteError `not-permitted` */
export function requireNetworkAdmin(deviceName: string): void {
  if (!isNetworkAdmin()) throw networkAdminMissing(deviceName)
}

/** The `not-permitted` of whoever finds out by an EPERM of the kernel. */
export function networkAdminMissing(deviceName: string): FlanneletteError {
  return new FlanneletteError('not-permitted', `${deviceName} cannot be made: CAP_NET_ADMIN is missing`, {
    remedy: 'run as root or give the process CAP_NET_ADMIN',
  })
}
