// A doorbell for changes of links, addresses, routes: `ip monitor` rings it with each line that it writes. What has
// changed is never read from these lines; whoever hears the bell looks for himself. A complaint of the program rings as
// well: it says that the kernel overran it (ENOBUFS), and goes on. When it cannot run the bell is silent: whoever relies on
// it looks from time to time as well.
import { type ChildProcess, spawn } from 'node:child_process'

/** How long a program that ended is left alone, milliseconds: doubled each time, up to the longest. */
const FIRST_RESTART_MS = 250
const LONGEST_RESTART_MS = 4000
/**
 * After this a program that was started listens, also on a busy host, milliseconds: nothing says when it begins to. It has
 * run well enough then for the next pause to be the first again.
 */
const DEAF_MS = 2000

export interface Doorbell {
  stop(): void
}

export interface BellWishes {
  /** What to listen to, as ip-monitor(8) names it. */
  readonly objects: readonly string[]
  /** Lines that need not ring, for kinds that change all the time. Absent: all ring. */
  readonly concerns?: (line: string) => boolean
}

/** What a program says: whole lines and pieces of some; `null` when something may have been missed. */
type Hear = (lines: readonly string[] | null) => void

const hearing = (ring: () => void, concerns: (line: string) => boolean = () => true): Hear => {
  return (lines) => {
    if (lines === null || lines.some(concerns)) ring()
  }
}

/** Rings until stopped. The program goes with this process, whatever ends it. */
export function ringOnChanges(ring: () => void, wishes: BellWishes = { objects: ['link', 'address'] }): Doorbell {
  return listen(wishes.objects, hearing(ring, wishes.concerns))
}

/** The same for several who listen to one program. It runs while anybody does. */
export function sharedDoorbell(objects: readonly string[]) {
  const ears = new Set<Hear>()
  let program: Doorbell | null = null
  return (ring: () => void, concerns?: BellWishes['concerns']): Doorbell => {
    const ear = hearing(ring, concerns)
    ears.add(ear)
    program ??= listen(objects, (lines) => {
      for (const one of ears) one(lines)
    })
    return {
      stop: () => {
        ears.delete(ear)
        if (ears.size > 0) return
        program?.stop()
        program = null
      },
    }
  }
}

function listen(objects: readonly string[], hear: Hear): Doorbell {
  let child: ChildProcess | null = null
  let timer: NodeJS.Timeout | null = null
  let pauseMs = FIRST_RESTART_MS
  let stopped = false
  const later = (delayMs: number, work: () => void) => {
    if (stopped) return
    if (timer !== null) clearTimeout(timer)
    timer = setTimeout(work, delayMs)
    timer.unref()
  }
  const again = () => {
    later(pauseMs, () => {
      start()
      hear(null) // for what happened meanwhile
    })
    pauseMs = Math.min(2 * pauseMs, LONGEST_RESTART_MS)
  }
  const start = () => {
    later(DEAF_MS, () => {
      pauseMs = FIRST_RESTART_MS
      hear(null) // for what happened before it listened
    })
    const argv = ['--pdeathsig', 'KILL', 'ip', '-oneline', 'monitor', ...objects]
    try {
      child = spawn('setpriv', argv, { stdio: ['ignore', 'pipe', 'pipe'] })
    } catch {
      return again() // as without memory for another process
    }
    child.stderr?.on('data', () => hear(null))
    // Half a line at an end of the text is taken for one that concerns: better once too often.
    child.stdout?.on('data', (text: Buffer) => hear(String(text).split('\n').filter(Boolean)))
    let ended = false
    const end = () => {
      if (!ended) again()
      ended = true
    }
    child.once('error', end)
    child.once('close', end)
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

/** `7: veth1a@if2: <…>`, `Deleted 3: cni0    inet …`: links and addresses come and go with pods. */
const LINK = /^(?:Deleted )?\d+: ([^\s:@]+)/
/** `10.244.1.7 dev cni0 lladdr … STALE`: on a host with pods these come all the time. */
const NEIGHBOR = / dev (\S+) .*\b(lladdr|NOARP|PERMANENT|INCOMPLETE|REACHABLE|STALE|DELAY|PROBE|FAILED)\b/
/** `10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142` */
const ROUTE = / (via|dev|proto|metric|table) /

/** Whether a line tells of another link, or of an address, neighbour or FDB entry of one. */
export function isElsewhere(line: string, device: string): boolean {
  const match = LINK.exec(line) ?? NEIGHBOR.exec(line)
  return match !== null && match[1] !== device
}

/** Whether a line tells of a route and not of a link or an address. */
export function isRoute(line: string): boolean {
  return !LINK.test(line) && ROUTE.test(line)
}
