// A doorbell for changes of links, addresses, routes: `ip monitor` rings it with each line that it writes. What has
// changed is never read from these lines; whoever hears the bell looks for himself. A complaint of the program rings as
// well: it says that the kernel overran it (ENOBUFS), and goes on. When it cannot run the bell is silent: whoever relies on
// it looks from time to time as well.
import { type ChildProcess, spawn } from 'node:child_process'

/** How long a program that ended is left alone, milliseconds. */
const RESTART_MS = 5000

export interface Doorbell {
  stop(): void
}

export interface BellWishes {
  /** What to listen to, as ip-monitor(8) names it. */
  readonly objects: readonly string[]
  /** Lines that need not ring, for kinds that change all the time. Absent: all ring. */
  readonly concerns?: (line: string) => boolean
}

/** Rings until stopped. The program goes with this process, whatever ends it. */
export function ringOnChanges(ring: () => void, wishes: BellWishes = { objects: ['link', 'address'] }): Doorbell {
  const { objects, concerns = () => true } = wishes
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
    const argv = ['--pdeathsig', 'KILL', 'ip', '-oneline', 'monitor', ...objects]
    child = spawn('setpriv', argv, { stdio: ['ignore', 'pipe', 'pipe'] })
    child.stderr?.on('data', ring)
    child.stdout?.on('data', (text: Buffer) => {
      // Half a line at an end of the text is taken for one that concerns: better once too often.
      if (
        String(text)
          .split('\n')
          .some((line) => line !== '' && concerns(line))
      )
        ring()
    })
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
