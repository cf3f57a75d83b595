// The network config is read once, at start. Whether the store holds another one by now is looked at from time to time,
// and said: nothing else comes of it, since device, routes and pods live by the old one until a restart.
import type { Clock, Timer } from '../clock.ts'
import { parseJson, toPlain } from '../config/json-document.ts'
import { foreignWords } from '../foreign-words.ts'
import { withDeadline } from '../lease/store-deadline.ts'
import type { Log } from '../log.ts'
import type { LeaseStore } from '../store/lease-store.ts'

/** Seldom, since all nodes of a network do it. */
const PERIOD_MS = 300_000
/** Characters of the names of fields that stand in a line. */
const MOST_OF_FIELDS = 200

export interface ConfigCheckOptions {
  readonly store: LeaseStore
  readonly clock: Clock
  readonly log: Log
  /** What this node runs by, as it was read. */
  readonly rawConfig: string
  /** What this node would fail with if it started by such a config; empty for nothing. */
  readonly whyNotStart: (rawConfig: string) => string
}

export class ConfigCheck {
  readonly #options: ConfigCheckOptions
  /** What was last said of. */
  #known: string
  #timer: Timer | null = null
  #stopped = false

  constructor(options: ConfigCheckOptions) {
    this.#options = options
    this.#known = options.rawConfig
  }

  start(): void {
    if (this.#stopped) return
    this.#timer?.cancel()
    this.#timer = this.#options.clock.after(PERIOD_MS, () => this.lookNow())
  }

  /** In place of the next look. */
  lookNow(): void {
    this.#timer?.cancel()
    void this.#look().finally(() => this.start())
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  async #look(): Promise<void> {
    const { store, clock, log, rawConfig, whyNotStart } = this.#options
    let now: string
    try {
      now = await withDeadline(clock, store.readNetworkConfig(), store.name)
    } catch {
      return // told by those who need the store
    }
    if (this.#stopped || now === this.#known) return
    this.#known = now
    const fields = changedFields(rawConfig, now)
    if (fields.length === 0) return log.info('config-back', 'the network config in the store is the one of this node')
    const what = foreignWords(fields.join(', '), MOST_OF_FIELDS)
    const why = whyNotStart(now)
    const then = why === '' ? ': restart this node to use it' : `, and this node cannot start with it: ${why}`
    log.warn('config-changed', `the network config in the store has changed (${what})${then}`)
  }
}

/** Keys whose values differ, as they are spelt; `the text` where one of both is no JSON object. */
function changedFields(before: string, after: string): string[] {
  const [old, now] = [objectIn(before), objectIn(after)]
  if (old === null || now === null) return before === after ? [] : ['the text']
  const keys = new Set([...Object.keys(old), ...Object.keys(now)])
  return [...keys].filter((key) => JSON.stringify(old[key]) !== JSON.stringify(now[key]))
}

/** `null` also for one that is nested more deeply than a start would read, or a comparison could follow. */
function objectIn(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value = toPlain(parseJson(text))
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null
  } catch {
    return null
  }
}
