// Time, injected everywhere in the control plane so that tests can drive it.
import { openSync, readSync } from 'node:fs'

export interface Timer {
  cancel(): void
}

export interface Clock {
  /** Wall clock, milliseconds since the epoch: for people and for store timestamps only, never for deadlines. */
  wallMs(): number
  /** Monotonic milliseconds that include suspend (CLOCK_BOOTTIME): for every deadline. */
  bootMs(): number
  /** Runs `fire` once after `delayMs`. */
  after(delayMs: number, fire: () => void): Timer
}

/** No single timer is trusted for longer than this: whoever waits longer looks at `bootMs` in between. */
export const LONGEST_TIMER_MS = 30_000

/**
 * The machine's clock. `bootMs` reads `/proc/uptime` (CLOCK_BOOTTIME, proc_uptime(5), in steps of 10 ms): Node's own
 * monotonic clock is CLOCK_MONOTONIC, which stands still while a machine is suspended, and the wall clock is set by
 * people and time daemons. Timers stand still during a suspend as well, so a long delay is cut into slices of at most
 * {@link LONGEST_TIMER_MS}, after each of which `bootMs` decides.
 */
export function systemClock(): Clock {
  return {
    wallMs: () => Date.now(),
    bootMs,
    after: (delayMs, fire) => sliced(bootMs() + delayMs, fire),
  }
}

/** Stays open: a process without files left to open still has to know the time. */
let uptimeFd: number | null = null
const uptime = Buffer.alloc(64)

function bootMs(): number {
  uptimeFd ??= openSync('/proc/uptime', 'r')
  const length = readSync(uptimeFd, uptime, 0, uptime.length, 0)
  return Number.parseFloat(uptime.toString('latin1', 0, length)) * 1000
}

/** `delayMs` later by the clock, or as soon as the signal aborts. */
export function delay(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) return resolve()
    const done = () => {
      timer.cancel()
      signal?.removeEventListener('abort', done)
      resolve()
    }
    const timer = clock.after(delayMs, done)
    signal?.addEventListener('abort', done)
  })
}

function sliced(deadline: number, fire: () => void): Timer {
  let handle: NodeJS.Timeout
  const arm = () => {
    const left = deadline - bootMs()
    // /proc/uptime is cut to 10 ms: a rest below that is over.
    if (left < 10) handle = setTimeout(fire, Math.max(0, left))
    else handle = setTimeout(arm, Math.min(left, LONGEST_TIMER_MS))
  }
  arm()
  return { cancel: () => clearTimeout(handle) }
}
