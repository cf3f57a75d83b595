// When to look: soon after a doorbell has rung, after a while anyway since the bell may fail, and sooner while something
// is not as it should be. One look at a time.
import type { Clock, Timer } from '../clock.ts'
import type { Doorbell } from './ip-monitor.ts'

export interface LookoutOptions {
  readonly clock: Clock
  /** Rings when something may have changed. */
  readonly doorbell: (ring: () => void) => Doorbell
  /**
   * Looks, and mends what it can. Resolves with whether all is as it should be, or with the milliseconds until the next
   * look. Never rejects.
   */
  readonly look: () => Promise<boolean | number>
}

/** Longest time between two looks, milliseconds: as often as flannel checks its routes. */
export const LOOK_MS = 10_000
/** Shortest time between two looks, milliseconds: a host that never rests does not keep us busy. */
const REST_MS = 500
/** The next look while something is amiss, milliseconds: doubled each time, to LOOK_MS at most. */
const FIRST_RETRY_MS = 1000

export class Lookout {
  readonly #options: LookoutOptions
  readonly #bell: Doorbell
  #timer: Timer | null = null
  #lookedMs = Number.NEGATIVE_INFINITY
  #retryMs = FIRST_RETRY_MS
  #looking = false
  #rung = false
  #stopped = false

  constructor(options: LookoutOptions) {
    this.#options = options
    this.#bell = options.doorbell(() => this.ring())
    this.#arm(LOOK_MS)
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
    this.#bell.stop()
  }

  /** As the bell does. */
  ring(): void {
    if (this.#rung) return
    this.#rung = true
    const restMs = this.#lookedMs + REST_MS - this.#options.clock.bootMs()
    if (!this.#looking) this.#arm(Math.max(restMs, 0))
  }

  #arm(delayMs: number): void {
    if (this.#stopped) return
    this.#timer?.cancel()
    this.#timer = this.#options.clock.after(delayMs, () => void this.#look())
  }

  async #look(): Promise<void> {
    const { clock, look } = this.#options
    this.#looking = true
    this.#rung = false
    this.#lookedMs = clock.bootMs()
    const found = await look()
    this.#looking = false
    const waitMs = typeof found === 'number' ? found : this.#untilNext(found)
    this.#arm(this.#rung ? REST_MS : waitMs)
  }

  #untilNext(isWell: boolean): number {
    const waitMs = isWell ? LOOK_MS : this.#retryMs
    this.#retryMs = isWell ? FIRST_RETRY_MS : Math.min(2 * this.#retryMs, LOOK_MS)
    return waitMs
  }
}
