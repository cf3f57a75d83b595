// Whom the source check refused lately, from the reports of all workers: for status.json, and one log line a minute.
import { formatAddress, OFFENDERS_KEPT, type Offender } from '../../dataplane/index.ts'
import type { Log } from '../log.ts'

export class RecentOffenders {
  readonly #log: Log
  /** In the order in which they were last seen, the latest last. */
  readonly #seen = new Map<string, Offender>()

  constructor(log: Log) {
    this.#log = log
  }

  /** Adds what a worker has seen since its last report. */
  note(offenders: readonly Offender[]): void {
    const inOrder = [...offenders].sort((a, b) => a.lastSeenMs - b.lastSeenMs)
    for (const offender of inOrder) {
      const key = `${offender.outerSource} ${offender.innerSource} ${offender.reason}`
      const before = this.#seen.get(key)?.packets ?? 0
      this.#seen.delete(key)
      this.#seen.set(key, { ...offender, packets: before + offender.packets })
    }
    for (const key of [...this.#seen.keys()].slice(0, -OFFENDERS_KEPT)) this.#seen.delete(key)
    const latest = inOrder.at(-1)
    if (latest !== undefined) this.#tell(latest)
  }

  /** The latest first, at most as many as are kept. */
  get list(): readonly Offender[] {
    return [...this.#seen.values()].reverse()
  }

  /** The sentence is always the same, so that the log counts repetitions and a flood fills no disk. */
  #tell({ outerSource, innerSource, reason }: Offender): void {
    const fields = { outerSource: formatAddress(outerSource), innerSource: formatAddress(innerSource), reason }
    this.#log.warn('packets-refused', 'the source check refused packets; status.json lists whose', fields)
  }
}
