// A worker that is kept alive: one that dies of an error is started again, at once the first time, later and later
// while it goes on dying. Descriptors, counters and bell are the process's and outlive the worker.
import type { WorkerCommand, WorkerReport, WorkerSetup } from './messages.ts'
import { type Running, type StartRunning, startThread } from './running.ts'

/** A thread that lived so long, in milliseconds, has recovered: its next death is the first again. */
const RECOVERED_MS = 10_000
/** Wait before the second start in a row, milliseconds; doubled for each one after it. */
const FIRST_DELAY_MS = 100
const LONGEST_DELAY_MS = 5000
/** A thread that does not end by itself in this time, in milliseconds, is ended: it sleeps for a second at most. */
const STOP_PATIENCE_MS = 1200
/** And so long is waited for that. */
const TERMINATE_PATIENCE_MS = 200

export interface WorkerLifeOptions {
  /** Where it runs: in a thread unless told otherwise. */
  readonly run?: StartRunning
  /** What a thread starts with; asked for each start anew. */
  setup(): WorkerSetup
  /** A thread was started, the first or a later one: time to say what it must know. */
  onStart(): void
  onReport(report: WorkerReport): void
  /** The thread ended without being asked to; the next one starts in `delayMs`. */
  onDeath(error: Error, delayMs: number): void
}

export class WorkerLife {
  readonly #options: WorkerLifeOptions
  #worker: Running | null = null
  #timer: NodeJS.Timeout | null = null
  #startedMs = 0
  #deathsInARow = 0
  #isStopping = false
  #stopped: Promise<void> | null = null
  #onGone: (() => void) | null = null

  constructor(options: WorkerLifeOptions) {
    this.#options = options
  }

  start(): void {
    this.#timer = null
    this.#startedMs = performance.now()
    const { run = startThread, setup, onReport, onStart } = this.#options
    this.#worker = run(setup(), { onReport, onEnd: (cause) => this.#exited(cause) })
    onStart()
  }

  say(command: WorkerCommand): void {
    this.#worker?.say(command)
  }

  /** Ends the thread; `ask` tells it to. Resolves when it is gone, after 1.4 s at most, also when it died before. */
  stop(ask: () => void): Promise<void> {
    this.#isStopping = true
    this.#stopped ??= this.#end(ask)
    return this.#stopped
  }

  async #end(ask: () => void): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
    const worker = this.#worker
    if (worker === null) return
    const gone = new Promise<void>((resolve) => {
      this.#onGone = resolve
    })
    ask()
    if (await within(gone, STOP_PATIENCE_MS)) return
    worker.terminate()
    await within(gone, TERMINATE_PATIENCE_MS)
  }

  #exited(cause: Error): void {
    this.#worker = null
    this.#onGone?.()
    if (this.#isStopping) return
    if (performance.now() - this.#startedMs > RECOVERED_MS) this.#deathsInARow = 0
    const delayMs = restartDelayMs(this.#deathsInARow++)
    this.#timer = setTimeout(() => this.start(), delayMs)
    this.#options.onDeath(cause, delayMs)
  }
}

/** Wait before a start, milliseconds, after so many deaths in a row before this one. */
export function restartDelayMs(deathsBefore: number): number {
  return deathsBefore === 0 ? 0 : Math.min(FIRST_DELAY_MS * 2 ** (deathsBefore - 1), LONGEST_DELAY_MS)
}

/** Whether `event` came in time. */
async function within(event: Promise<void>, limitMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), limitMs)
  })
  const inTime = await Promise.race([event.then(() => true), late])
  clearTimeout(timer)
  return inTime
}
