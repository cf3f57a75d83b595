// What runs of the dataplane's offloads, and why: for status, for the counters, and one log line for each that the
// kernel has refused, at start or at work.
import type { Feature } from '../../dataplane/index.ts'
import type { Log } from '../log.ts'

const COUNTER_PREFIX = 'downgrade.'

export class FeatureReport {
  readonly #log: Log
  #features: readonly Feature[] = []
  /** As they were found out. */
  #begun: readonly Feature[] = []
  /** What had been counted when they were tried last: refusals of before are no news. */
  #counted: Readonly<Record<string, number>> = {}

  constructor(log: Log) {
    this.#log = log
  }

  /** What was found out at start; `counted` are the refusals of workers that are gone. */
  begin(features: readonly Feature[], counted: Readonly<Record<string, number>> = {}): void {
    this.#begun = features
    this.tryAgain(counted)
    for (const feature of features) if (feature.downgrade) this.#tell(feature)
  }

  /** What was given up at work is tried again; `counted` are the refusals so far. */
  tryAgain(counted: Readonly<Record<string, number>>): void {
    this.#features = this.#begun
    this.#counted = counted
  }

  /** Looks for features that the engine has given up at work since the last look. */
  look(counters: Readonly<Record<string, number>>): void {
    this.#features = this.#features.map((feature) => {
      const name = COUNTER_PREFIX + feature.name
      if (!feature.on || (counters[name] ?? 0) <= (this.#counted[name] ?? 0)) return feature
      const now: Feature = { ...feature, on: false, why: 'refused by the kernel at work', downgrade: true }
      this.#tell(now)
      return now
    })
  }

  get features(): readonly Feature[] {
    return this.#features
  }

  /** Downgrades as counters: 1 for each feature that the kernel has refused. */
  counters(): Record<string, number> {
    return Object.fromEntries(this.#features.map(({ name, downgrade }) => [COUNTER_PREFIX + name, downgrade ? 1 : 0]))
  }

  #tell({ name, why }: Feature): void {
    this.#log.warn('downgrade', `${name} is not used: ${why}`, { feature: name })
  }
}
