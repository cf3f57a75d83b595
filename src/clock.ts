// Time, injected everywhere in the control plane so that tests can drive it.

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
