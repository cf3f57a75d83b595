// The main thread's handle on a worker: says things to it, hears what it reports, ends it. One per TUN queue. A thread
// that dies is replaced behind it: device, socket, table and counters go on, recorded steps end.
import { Counters, cellOf } from '../engine/counters.ts'
import type { PeerTraffic } from '../engine/peer-activity.ts'
import type { EngineSettings } from '../engine/settings.ts'
import { encodeForwardingTable } from '../forwarding/forwarding-table.ts'
import { OuterNumbers } from '../forwarding/outer-numbers.ts'
import type { ForwardingEntry, UnderlayAddress } from '../forwarding/remote-vtep.ts'
import type { PathFds } from '../io/linux/udp-open.ts'
import { makeDoorbell, type WorkerDoorbell } from './descriptors.ts'
import type { RawPorts, RecordedStep, WorkerCommand, WorkerDriver, WorkerReport, WorkerSetup } from './messages.ts'
import { PeerLedger } from './peer-ledger.ts'
import { type StartRunning, startThread } from './running.ts'
import { WorkerLife } from './worker-life.ts'

const RESTARTS = cellOf('worker.restarts')

export interface DataplaneWorkerOptions {
  /** `offload` unless told otherwise. */
  readonly driver?: WorkerDriver
  readonly tunFd: number
  readonly socketFd: number
  /** Sockets that only send; see openSendingSockets. With none, all is sent from the service port. */
  readonly senderFds?: readonly number[]
  /** See WorkerSetup; for the drivers `offload` and `plain`. */
  readonly pathFds?: PathFds
  /** Tells the family of the sockets, IPv4 when absent; the raw driver needs it, and its source ports, besides. */
  readonly underlayAddress?: UnderlayAddress
  readonly rawPorts?: RawPorts
  readonly maxSegments: number
  readonly encapsulation: 'vxlan' | 'udp'
  readonly vni: number
  readonly mac: number
  readonly settings: EngineSettings
  /** Of the last table before this worker's first, 0 unless told otherwise. */
  readonly generation?: number
  /** Called for what the worker says by itself: failed descriptors, a standstill. */
  onReport(report: WorkerReport): void
  /** The thread ended without being asked to; the next one starts in `delayMs`. */
  onDeath(error: Error, delayMs: number): void
}

export class DataplaneWorker {
  readonly counters: Counters
  readonly #ledger = new PeerLedger()
  readonly #numbers = new OuterNumbers()
  readonly #life: WorkerLife
  readonly #bell: WorkerDoorbell
  readonly #options: DataplaneWorkerOptions
  readonly #tableWaiters = new Map<number, () => void>()
  #mtuWaiters: (() => void)[] = []
  #tunFd: number
  #mtuBytes: number
  #table: { readonly table: SharedArrayBuffer; readonly activity: SharedArrayBuffer } | null = null
  #generation: number
  #onSteps: ((steps: readonly RecordedStep[]) => void) | null = null
  #stopping = false
  /** The bell's descriptor is closed, and its number may be somebody else's by now: nothing is said any more. */
  #ended = false

  private constructor(options: DataplaneWorkerOptions, bell: WorkerDoorbell, run: StartRunning) {
    this.#options = options
    this.#bell = bell
    this.#generation = options.generation ?? 0
    this.#tunFd = options.tunFd
    this.#mtuBytes = options.settings.mtuBytes
    this.counters = new Counters()
    this.#life = new WorkerLife({
      run,
      setup: () => this.#setup(),
      onStart: () => this.#brief(),
      onReport: (report) => this.#hear(report),
      onDeath: (error, delayMs) => {
        this.counters.add(RESTARTS, 1)
        options.onDeath(error, delayMs)
      },
    })
    this.#life.start()
  }

  /** Starts a worker. It forwards nothing until its first table. */
  static async start(options: DataplaneWorkerOptions): Promise<DataplaneWorker> {
    const run = await startOf(options.driver ?? 'offload')
    return new DataplaneWorker(options, await makeDoorbell(), run)
  }

  /** Generation of the table handed over last, 0 for none. */
  get generation(): number {
    return this.#generation
  }

  /** What passed between this worker and each peer, by underlay address; times by monotonicClock. */
  traffic(): Map<UnderlayAddress, PeerTraffic> {
    return this.#ledger.traffic()
  }

  /** Largest inner packets that ways to peers take, where they are limited; see PathLimits. */
  pathLimits(): Map<UnderlayAddress, number> {
    return this.#ledger.pathLimits()
  }

  /**
   * Hands over a whole new table. Resolves with its generation once packets are forwarded by it, be it by the next
   * thread after one that died, or when the worker is stopped.
   */
  replaceTable(entries: readonly ForwardingEntry[]): Promise<number> {
    const generation = ++this.#generation
    const encoded = encodeForwardingTable(entries, generation, this.#numbers)
    this.#numbers.forgetAllBut(entries)
    const table = { table: encoded, activity: this.#ledger.open(encoded) }
    this.#table = table
    if (this.#ended) return Promise.resolve(generation)
    return new Promise((resolve) => {
      this.#tableWaiters.set(generation, () => resolve(generation))
      this.#say({ type: 'table', ...table })
    })
  }

  /** Records at most `steps` steps from now on; `onSteps` gets them in order, as they come. 0 stops recording. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    this.#onSteps = onSteps
    this.#say({ type: 'trace', steps })
  }

  /** Takes inner packets up to so many bytes. Resolves when that is in force, see {@link replaceTable}. */
  setMtu(mtuBytes: number): Promise<void> {
    this.#mtuBytes = mtuBytes
    if (this.#ended) return Promise.resolve()
    return new Promise((resolve) => {
      this.#mtuWaiters.push(resolve)
      this.#say({ type: 'mtu', mtuBytes })
    })
  }

  /** Goes on with a TUN that was opened anew. */
  replaceDevice(fd: number): void {
    this.#tunFd = fd
    this.#say({ type: 'device', fd })
  }

  /** Ends the pause that a worker makes after a standstill. */
  go(): void {
    this.#say({ type: 'go' })
  }

  /**
   * Ends the thread after what it is doing. Resolves when it is gone, also when it died before; descriptors stay open,
   * they are the caller's.
   */
  async stop(): Promise<void> {
    this.#stopping = true
    await this.#life.stop(() => this.#say({ type: 'stop' }))
    if (!this.#ended) this.#bell.close()
    this.#ended = true
    this.#releaseWaiters(this.#generation)
    this.#releaseMtuWaiters()
  }

  #setup(): WorkerSetup {
    const {
      driver = 'offload',
      socketFd,
      senderFds = [],
      pathFds = null,
      underlayAddress = 0,
      rawPorts = { firstPort: 0, ports: 1 },
      maxSegments,
      encapsulation,
      vni,
      mac,
    } = this.#options
    const settings = { ...this.#options.settings, mtuBytes: this.#mtuBytes }
    return {
      ...{
        driver,
        socketFd,
        senderFds,
        pathFds,
        underlayAddress,
        rawPorts,
        maxSegments,
        encapsulation,
        vni,
        mac,
        settings,
      },
      tunFd: this.#tunFd,
      wakeFd: this.#bell.fd,
      counters: this.counters.buffer,
    }
  }

  /** What a thread that was started must know beyond its setup: what was said to the one before it is lost. */
  #brief(): void {
    this.#releaseMtuWaiters() // its setup has the latest
    if (this.#table !== null) this.#say({ type: 'table', ...this.#table })
  }

  #say(command: WorkerCommand): void {
    if (this.#ended) return
    this.#life.say(command)
    this.#bell.ring()
  }

  #hear(report: WorkerReport): void {
    if (report.type === 'steps') this.#onSteps?.(report.steps)
    else if (report.type === 'table') this.#inForce(report.generation)
    else if (report.type === 'mtu') {
      if (report.mtuBytes === this.#mtuBytes) this.#releaseMtuWaiters()
    } else if (!this.#stopping) this.#options.onReport(report)
  }

  #releaseMtuWaiters(): void {
    for (const resolve of this.#mtuWaiters.splice(0)) resolve()
  }

  #inForce(generation: number): void {
    this.#ledger.settle(generation)
    this.#releaseWaiters(generation)
  }

  /** Tables overtaken by a later one are in force no more: whoever waits for them need not wait longer. */
  #releaseWaiters(upTo: number): void {
    for (const [generation, resolve] of this.#tableWaiters) {
      if (generation > upTo) continue
      this.#tableWaiters.delete(generation)
      resolve()
    }
  }
}

/** How a driver is run. */
async function startOf(driver: WorkerDriver): Promise<StartRunning> {
  if (driver !== 'raw') return startThread
  // Loads native code, which none but a running dataplane needs.
  return (await import('./main-thread.ts')).startOnMainThread
}
