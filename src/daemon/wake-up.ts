// After a standstill: whether the node slept, and whether it may go on as before. Workers have stopped sending
// meanwhile.
import { NAP_MS } from '../../dataplane/index.ts'
import type { Clock } from '../clock.ts'

export interface WakeUpOptions {
  readonly clock: Pick<Clock, 'bootMs'>
  /** CLOCK_MONOTONIC in milliseconds, from any origin. */
  readonly monotonicMs: () => number
  /** Looks at the own lease; whether it is still ours, as far as anybody knows. */
  readonly validate: () => Promise<boolean>
}

export class WakeUp {
  readonly #options: WakeUpOptions
  /** For how long the machine was suspended since it was started, plus a constant. */
  #suspendedMs: number
  #looking: Promise<boolean> | null = null

  constructor(options: WakeUpOptions) {
    this.#options = options
    this.#suspendedMs = this.#readSuspended()
  }

  /**
   * A worker suspects that it slept; `standstillMs` is what CLOCK_MONOTONIC knows of. Resolves with whether it may go
   * on. What several workers suspect at the same time is looked at once. A wall clock that was set is no sleep.
   */
  look(standstillMs: number): Promise<boolean> {
    this.#looking ??= this.#judge(standstillMs).finally(() => {
      this.#looking = null
    })
    return this.#looking
  }

  async #judge(standstillMs: number): Promise<boolean> {
    const suspendedMs = this.#readSuspended()
    const sleptMs = standstillMs + suspendedMs - this.#suspendedMs
    this.#suspendedMs = suspendedMs
    return sleptMs < NAP_MS || this.#options.validate()
  }

  #readSuspended(): number {
    return this.#options.clock.bootMs() - this.#options.monotonicMs()
  }
}
