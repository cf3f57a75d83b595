// Notices that a worker stood still: the machine was suspended, or the process stopped. Who slept for long may not know
// that its subnet has become another node's; so until the main thread says go, nothing is taken from the device, whose
// queue keeps what pods send meanwhile. Not for ever: a main thread or a store that does not answer must not end
// forwarding.

/** A worker sleeps for a second at most: one that was away for so many milliseconds stood still. */
export const NAP_MS = 5000
/** So long it waits for the word to go on, milliseconds. */
export const LONGEST_PAUSE_MS = 5000

export interface NapClocks {
  /** CLOCK_MONOTONIC: it goes on while the process is stopped, and stands still while the machine is suspended. */
  readonly monotonicMs: () => number
  /** CLOCK_REALTIME: it goes on in both, but people set it: a jump of it alone is only a suspicion. */
  readonly wallMs: () => number
}

export class NapWatch {
  readonly #clocks: NapClocks
  #lastMs: number
  #lastWallMs: number
  #pausedUntilMs = 0

  constructor(clocks: NapClocks = { monotonicMs: () => performance.now(), wallMs: Date.now }) {
    this.#clocks = clocks
    this.#lastMs = clocks.monotonicMs()
    this.#lastWallMs = clocks.wallMs()
  }

  /**
   * To be called every turn. Begins a pause after a nap, and says by how much CLOCK_MONOTONIC went on in it; else
   * `null`.
   */
  look(): number | null {
    const nowMs = this.#clocks.monotonicMs()
    const wallMs = this.#clocks.wallMs()
    const gapMs = nowMs - this.#lastMs
    const isNap = gapMs >= NAP_MS || wallMs - this.#lastWallMs >= NAP_MS
    this.#lastMs = nowMs
    this.#lastWallMs = wallMs
    if (isNap) this.#pausedUntilMs = nowMs + LONGEST_PAUSE_MS
    else if (nowMs >= this.#pausedUntilMs) this.go()
    return isNap ? gapMs : null
  }

  /** Whether packets of pods have to wait. */
  get isPaused(): boolean {
    return this.#pausedUntilMs > 0
  }

  /** Ends a pause, if there is one. */
  go(): void {
    this.#pausedUntilMs = 0
  }
}
