// What the userspace engine has counted and found out, over all the workers it had: those of now, and those that are
// gone for good because the underlay has moved.
import {
  type Feature,
  mergeTraffic,
  type Offender,
  type PeerTraffic,
  type UnderlayAddress,
  type WorkerGroup,
} from '../../dataplane/index.ts'
import type { EngineBooks } from '../host/dataplane.ts'
import type { Log } from '../log.ts'
import { FeatureReport } from './feature-report.ts'
import { RecentOffenders } from './recent-offenders.ts'

type Counts = Readonly<Record<string, number>>

/** Workers as far as the books are about them. */
export type CountingWorkers = Pick<WorkerGroup, 'counters' | 'traffic' | 'pathLimits' | 'restarts'>

export class WorkerBooks implements EngineBooks {
  readonly #report: FeatureReport
  readonly #offenders: RecentOffenders
  #workers: CountingWorkers | null = null
  /** Of workers that are gone for good, as the next two. */
  #counted: Counts = {}
  #traffic: ReadonlyMap<UnderlayAddress, PeerTraffic> = new Map()
  #restarts: readonly number[] = []

  constructor(log: Log) {
    this.#report = new FeatureReport(log)
    this.#offenders = new RecentOffenders(log)
  }

  /** What was found out for workers that are about to start. */
  begin(features: readonly Feature[]): void {
    this.#report.begin(features, this.#counted)
  }

  /** The workers that have started. */
  open(workers: CountingWorkers): void {
    this.#workers = workers
  }

  /** The workers have ended: what they counted is kept. */
  close(): void {
    this.#counted = this.#sums()
    this.#traffic = this.traffic()
    this.#restarts = this.workerRestarts()
    this.#workers = null
  }

  /** What the engine has given up at work is tried again. */
  tryAgain(): void {
    this.#report.tryAgain(this.#sums())
  }

  /** Adds what a worker has refused since its last report. */
  noteOffenders(offenders: readonly Offender[]): void {
    this.#offenders.note(offenders)
  }

  /** As Dataplane.counters, but for what only the device and the sockets know. */
  counters(): Counts {
    const { 'socket.overflowed': overflowed = 0, ...counters } = this.#sums()
    this.#report.look(counters)
    // What the kernel lost before we read it: never part of "read", so not among the drops.
    return { ...counters, ...this.#report.counters(), 'inbound.lost.rx-queue-full': overflowed }
  }

  features(): readonly Feature[] {
    return this.#report.features
  }

  traffic(): ReadonlyMap<UnderlayAddress, PeerTraffic> {
    if (this.#workers === null) return this.#traffic
    const traffic = this.#workers.traffic()
    mergeTraffic(traffic, this.#traffic)
    return traffic
  }

  pathLimits(): ReadonlyMap<UnderlayAddress, number> {
    return this.#workers?.pathLimits() ?? new Map()
  }

  workerRestarts(): readonly number[] {
    const restarts = this.#workers?.restarts().map((times, worker) => times + (this.#restarts[worker] ?? 0))
    return restarts ?? this.#restarts
  }

  offenders(): readonly Offender[] {
    return this.#offenders.list
  }

  #sums(): Counts {
    const sums: Record<string, number> = { ...this.#counted }
    for (const [name, value] of Object.entries(this.#workers?.counters() ?? {})) sums[name] = (sums[name] ?? 0) + value
    return sums
  }
}
