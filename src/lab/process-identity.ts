// Processes by number and start time, so that a recorded number that the kernel has given to somebody else meanwhile is
// never mistaken for ours.
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

export interface ProcessIdentity {
  readonly pid: number
  /** Clock ticks from boot to its start, proc_pid_stat(5) field 22. */
  readonly startTicks: number
}

/** Who has this number now; `null` when nobody has, or only a corpse that its parent has not buried yet. */
export function identify(pid: number): ProcessIdentity | null {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return null
  }
  // Field 2 is the program's name in brackets and may itself hold brackets and blanks.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  if (fields[0] === 'Z' || fields[0] === 'X') return null
  return { pid, startTicks: Number(fields[19]) }
}

/** False also when another process has the pid by now. */
export function isAlive(identity: ProcessIdentity): boolean {
  return identify(identity.pid)?.startTicks === identity.startTicks
}

/** Sends a signal to exactly this process; false when it is gone. */
export function signal(identity: ProcessIdentity, name: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false
  try {
    return process.kill(identity.pid, name)
  } catch {
    return false
  }
}

/** Waits until all are gone; false when some still live after `limitMs`. */
export async function waitGone(identities: readonly ProcessIdentity[], limitMs: number): Promise<boolean> {
  const deadline = performance.now() + limitMs
  while (identities.some(isAlive)) {
    if (performance.now() >= deadline) return false
    await pause(10)
  }
  return true
}

/** Asks processes to end, and ends those that have not after `patienceMs`. */
export async function endProcesses(identities: readonly ProcessIdentity[], patienceMs: number): Promise<void> {
  for (const identity of identities) signal(identity, 'SIGTERM')
  if (await waitGone(identities, patienceMs)) return
  for (const identity of identities) signal(identity, 'SIGKILL')
  await waitGone(identities, 2_000)
}
