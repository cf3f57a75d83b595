// The main thread's handle on a worker: says things to it, hears what it reports, ends it. One per TUN queue.
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { Counters } from '../engine/counters.ts'
import type { EngineSettings } from '../engine/settings.ts'
import { encodeForwardingTable } from '../forwarding/forwarding-table.ts'
import type { ForwardingEntry } from '../forwarding/remote-vtep.ts'
import { type Doorbell, makeDoorbell } from './descriptors.ts'
import type { RecordedStep, WorkerCommand, WorkerDriver, WorkerReport, WorkerSetup } from './messages.ts'

export interface DataplaneWorkerOptions {
  /** `offload` unless told otherwise. */
  readonly driver?: WorkerDriver
  readonly tunFd: number
  readonly socketFd: number
  readonly maxSegments: number
  readonly encapsulation: 'vxlan' | 'udp'
  readonly vni: number
  readonly mac: number
  readonly settings: EngineSettings
  /** Called for what the worker says by itself: failed descriptors. */
  onReport(report: WorkerReport): void
  /** The thread ended without being asked to. */
  onDeath(error: Error): void
}

export class DataplaneWorker {
  readonly counters: Counters
  readonly #worker: Worker
  /** Resolves when the thread has ended, asked to or not. */
  readonly #gone: Promise<void>
  readonly #bell: Doorbell
  readonly #options: DataplaneWorkerOptions
  readonly #tableWaiters = new Map<number, () => void>()
  #generation = 0
  #onSteps: ((steps: readonly RecordedStep[]) => void) | null = null
  #stopping = false
  /** The bell's descriptor is closed, and its number may be somebody else's by now: nothing is said any more. */
  #ended = false

  private constructor(options: DataplaneWorkerOptions, bell: Doorbell) {
    this.#options = options
    this.#bell = bell
    this.counters = new Counters()
    const { driver = 'offload', tunFd, socketFd, maxSegments, encapsulation, vni, mac, settings } = options
    const setup: WorkerSetup = {
      ...{ driver, tunFd, socketFd, maxSegments, encapsulation, vni, mac, settings },
      wakeFd: bell.fd,
      counters: this.counters.buffer,
    }
    // `.ts` when run from source, `.js` when built.
    const script = new URL(`./worker-main${extname(import.meta.url)}`, import.meta.url)
    this.#worker = new Worker(script, { workerData: setup })
    this.#gone = new Promise((resolve) => this.#worker.once('exit', () => resolve()))
    this.#worker.on('message', (report: WorkerReport) => this.#hear(report))
    this.#worker.on('error', (error) => this.#options.onDeath(error as Error))
  }

  /** Starts a worker. It forwards nothing until its first table. */
  static async start(options: DataplaneWorkerOptions): Promise<DataplaneWorker> {
    return new DataplaneWorker(options, await makeDoorbell())
  }

  /** Generation of the table handed over last, 0 for none. */
  get generation(): number {
    return this.#generation
  }

  /** Hands over a whole new table. Resolves with its generation once packets are forwarded by it. */
  replaceTable(entries: readonly ForwardingEntry[]): Promise<number> {
    const generation = ++this.#generation
    const table = encodeForwardingTable(entries, generation)
    return new Promise((resolve) => {
      this.#tableWaiters.set(generation, () => resolve(generation))
      this.#say({ type: 'table', table })
    })
  }

  /** Records at most `steps` steps from now on; `onSteps` gets them in order, as they come. 0 stops recording. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    this.#onSteps = onSteps
    this.#say({ type: 'trace', steps })
  }

  /** Goes on with a TUN that was opened anew. */
  replaceDevice(fd: number): void {
    this.#say({ type: 'device', fd })
  }

  /** Ends the thread after what it is doing. Resolves when it is gone, also when it died before; descriptors stay open, they are the caller's. */
  async stop(): Promise<void> {
    this.#stopping = true
    this.#say({ type: 'stop' })
    await this.#gone
    if (!this.#ended) this.#bell.close()
    this.#ended = true
  }

  #say(command: WorkerCommand): void {
    if (this.#ended) return
    this.#worker.postMessage(command)
    this.#bell.ring()
  }

  #hear(report: WorkerReport): void {
    if (report.type === 'steps') {
      this.#onSteps?.(report.steps)
    } else if (report.type === 'table') {
      // Tables overtaken by a later one are in force no more: whoever waits for them need not wait longer.
      for (const [generation, resolve] of this.#tableWaiters) {
        if (generation > report.generation) continue
        this.#tableWaiters.delete(generation)
        resolve()
      }
    } else if (!this.#stopping) {
      this.#options.onReport(report)
    }
  }
}
