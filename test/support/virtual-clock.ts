// Time that stands still until a test moves it. Timers fire in order, and what they start is left to settle in between.
import type { Clock, Timer } from '../../src/clock.ts'

interface Pending {
  /** Awake time, which a suspend does not move. */
  readonly dueAwakeMs: number
  readonly order: number
  readonly fire: () => void
}

export class VirtualClock implements Clock {
  #awakeMs = 0
  #suspendedMs = 0
  #wallOffsetMs: number
  #order = 0
  readonly #pending = new Set<Pending>()
  readonly #settle: () => Promise<void>

  /**
   * `quiet` resolves when all that a timer started has come to rest: more than promises, where sockets are involved.
   */
  constructor(wallMs: number = Date.UTC(2026, 0, 1), quiet: () => Promise<void> = settle) {
    this.#wallOffsetMs = wallMs
    this.#settle = quiet
  }

  wallMs(): number {
    return this.#wallOffsetMs + this.bootMs()
  }

  bootMs(): number {
    return this.#awakeMs + this.#suspendedMs
  }

  after(delayMs: number, fire: () => void): Timer {
    const timer = { dueAwakeMs: this.#awakeMs + Math.max(0, delayMs), order: this.#order++, fire }
    this.#pending.add(timer)
    return { cancel: () => this.#pending.delete(timer) }
  }

  /** Timers that are armed. */
  get timers(): number {
    return this.#pending.size
  }

  /** Lets time pass. Resolves when everything that fell due has settled. */
  async advance(ms: number): Promise<void> {
    const end = this.#awakeMs + ms
    await this.#settle()
    for (;;) {
      const next = this.#next()
      if (next === undefined || next.dueAwakeMs > end) break
      this.#pending.delete(next)
      this.#awakeMs = Math.max(this.#awakeMs, next.dueAwakeMs)
      next.fire()
      await this.#settle()
    }
    this.#awakeMs = end
  }

  /** The machine sleeps: boot time and wall clock go on, timers stand still. */
  suspend(ms: number): void {
    this.#suspendedMs += ms
  }

  /** Somebody sets the wall clock. */
  stepWall(ms: number): void {
    this.#wallOffsetMs += ms
  }

  #next(): Pending | undefined {
    return [...this.#pending].sort((a, b) => a.dueAwakeMs - b.dueAwakeMs || a.order - b.order)[0]
  }
}

/** Lets promises and immediate callbacks run until nothing is left that needs no time. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve))
}
