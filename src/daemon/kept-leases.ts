// The memory of everybody's leases, written behind the changes instead of with each: with ten thousand of them a
// writing takes longer than the change. The first set of a life is on disk before the node is ready; what comes later
// follows within REST_MS and the writing itself, the latest set only. A process that is killed in between leaves a set
// that was in force a moment before, as if it had been killed then; docs/decisions/0022.
import type { Clock, Timer } from '../clock.ts'
import type { Lease } from '../lease/lease.ts'

/** From one writing to the next, milliseconds. */
export const REST_MS = 1000

/** Where they are kept; see StateDirectory. */
export interface LeaseShelf {
  /** Resolves when they are on disk, or cannot be. */
  writeLeases(leases: readonly Lease[]): Promise<void>
}

export class KeptLeases {
  readonly #shelf: LeaseShelf
  readonly #clock: Clock
  #unwritten: readonly Lease[] | null = null
  #writing: Promise<void> | null = null
  #rest: Timer | null = null
  #closed = false

  constructor(shelf: LeaseShelf, clock: Clock) {
    this.#shelf = shelf
    this.#clock = clock
  }

  /** Resolves when they are written, or wait for the end of a rest. */
  async offer(leases: readonly Lease[]): Promise<void> {
    if (this.#closed) return
    this.#unwritten = leases
    if (this.#writing === null && this.#rest === null) await this.#write()
  }

  /** Writes what still waits; nothing is written after that. */
  async close(): Promise<void> {
    this.#closed = true
    this.#rest?.cancel()
    await this.#writing
    await this.#write()
  }

  async #write(): Promise<void> {
    if (this.#unwritten === null) return
    this.#writing = this.#shelf.writeLeases(this.#unwritten)
    this.#unwritten = null
    await this.#writing
    this.#writing = null
    if (this.#closed) return
    this.#rest = this.#clock.after(REST_MS, () => {
      this.#rest = null
      void this.#write()
    })
  }
}
