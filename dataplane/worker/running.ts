// Where a mover runs: in a thread of its own, or between the events of the main thread (the raw driver, whose package
// works nowhere else). Both are spoken to alike, and end alike.
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { WorkerCommand, WorkerReport, WorkerSetup } from './messages.ts'

/** A mover at work. */
export interface Running {
  say(command: WorkerCommand): void
  /** Ends it without its help. */
  terminate(): void
}

export interface RunningEvents {
  onReport(report: WorkerReport): void
  /** It is gone, as told or not; `cause` is what there is to say of it. */
  onEnd(cause: Error): void
}

export type StartRunning = (setup: WorkerSetup, events: RunningEvents) => Running

/** In a thread of its own. */
export const startThread: StartRunning = (setup, events) => {
  // `.ts` when run from source, `.js` when built.
  const script = new URL(`./worker-main${extname(import.meta.url)}`, import.meta.url)
  const worker = new Worker(script, { workerData: setup })
  let cause: Error | null = null
  worker.on('message', (report: WorkerReport) => events.onReport(report))
  worker.on('error', (error) => {
    cause = error as Error
  })
  worker.once('exit', (code) => events.onEnd(cause ?? new Error(`the thread ended with code ${code}`)))
  return {
    say: (command) => worker.postMessage(command),
    terminate: () => void worker.terminate().catch(() => {}),
  }
}
