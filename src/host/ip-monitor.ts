// A doorbell for changes of links and addresses: `ip monitor` rings it with each line that it writes. What has
// changed is never read from these lines; whoever hears the bell looks for himself. When the program cannot run, or the
// kernel overruns it, the bell is silent: whoever relies on it looks from time to time as well.
import { type ChildProcess, spawn } from 'node:child_process'

/** How long a program that ended is left alone, milliseconds. */
const RESTART_MS = 5000

export interface Doorbell {
  stop(): void
}

/** Rings until stopped. The program goes with this process, whatever ends it. */
export function ringOnChanges(ring: () => void): Doorbell {
  let child: ChildProcess | null = null
  let timer: NodeJS.Timeout | null = null
  let stopped = false
  const again = () => {
    if (stopped || timer !== null) return
    timer = setTimeout(() => {
      timer = null
      start()
      ring() // for what happened meanwhile
    }, RESTART_MS)
    timer.unref()
  }
  const start = () => {
    const argv = ['--pdeathsig', 'KILL', 'ip', '-oneline', 'monitor', 'link', 'address']
    child = spawn('setpriv', argv, { stdio: ['ignore', 'pipe', 'ignore'] })
    child.stdout?.on('data', ring)
    child.once('error', again)
    child.once('close', again)
    child.unref()
  }
  start()
  return {
    stop: () => {
      stopped = true
      if (timer !== null) clearTimeout(timer)
      child?.kill('SIGKILL')
    },
  }
}
