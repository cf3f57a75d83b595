// When a dataplane looks whether device, routes and tables are still as it left them. A look without a program, once a
// second, tells that something is known to be wrong; a doorbell tells that anything may have changed; and since the bell
// may fail, everything is looked at from time to time. Without either next to nothing is done.
import type { Clock, Timer } from '../clock.ts'
import type { Doorbell } from './ip-monitor.ts'

/** Between two looks, milliseconds: how late a change is answered at most, and how often one that never ends is. */
const LOOK_MS = 1000
/** Longest time between two looks at everything, milliseconds. */
const LONGEST_MS = 30_000

export interface ChangeWatchOptions {
  readonly clock: Clock
  /** Rings when something may have changed. */
  readonly doorbell: (ring: () => void) => Doorbell
  /** Whether all looks right from afar. */
  readonly isIntact: () => boolean
  /** Looks at everything and mends what is not as it should be. Never rejects. */
  readonly mend: () => Promise<void>
}

export class ChangeWatch {
  readonly #options: ChangeWatchOptions
  readonly #bell: Doorbell
  #timer: Timer | null = null
  #rung = false
  #mendedMs: number
  #stopped = false

  constructor(options: ChangeWatchOptions) {
    this.#options = options
    this.#mendedMs = options.clock.bootMs()
    this.#bell = options.doorbell(() => this.ring())
    this.#arm()
  }

  /** As the bell does: the next look is at everything. */
  ring(): void {
    this.#rung = true
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
    this.#bell.stop()
  }

  #arm(): void {
    if (this.#stopped) return
    this.#timer = this.#options.clock.after(LOOK_MS, () => void this.#look().then(() => this.#arm()))
  }

  async #look(): Promise<void> {
    const { clock, isIntact, mend } = this.#options
    if (!this.#rung && isIntact() && clock.bootMs() - this.#mendedMs < LONGEST_MS) return
    this.#rung = false
    this.#mendedMs = clock.bootMs()
    await mend()
  }
}
