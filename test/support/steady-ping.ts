// Pings 10 ms apart that must not notice what happens meanwhile, and which of them did: numbers tell whether they were
// lost together, and when. With a count of its own iputils' ping would wait for its last answers no longer than twice
// the longest round trip so far, or 10 ms: on a busy machine that looks like a loss. It is ended from here instead.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import { inNamespace } from '../../src/host/command.ts'

const INTERVAL_MS = 10

/**
 * Looks, an interval apart, without a new answer: none comes any more. Looks and no time: while all stands still, nobody
 * waits.
 */
const QUIET_LOOKS = 500

export interface SteadyPingResult {
  readonly sent: number
  /** Sequence numbers of echoes that never came back, from 1. */
  readonly lost: readonly number[]
}

/** At most ten minutes: then the numbers begin anew. */
export class SteadyPing {
  readonly #child
  readonly #closed
  #output = ''

  constructor(namespace: string, address: string, payloadBytes = 56) {
    const words = ['ping', '-n', '-i', String(INTERVAL_MS / 1000), '-s', String(payloadBytes), address]
    const argv = inNamespace(namespace, words)
    this.#child = spawn(argv[0]!, argv.slice(1), { stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#output += text
      })
    }
    this.#closed = once(this.#child, 'close')
    onTestFinished(() => void this.#child.kill('SIGKILL'))
  }

  /** Waits until that many have been sent since the start and answered, or are lost. */
  async first(count: number): Promise<SteadyPingResult> {
    await this.#answers(count)
    await this.#stop()
    return { sent: count, lost: this.#missing(count) }
  }

  /** As {@link first}, for those that have been sent by now. */
  async end(): Promise<SteadyPingResult> {
    return this.first(await this.#sentSoFar())
  }

  /** On SIGQUIT ping tells how it stands, and goes on (ping(8)). */
  async #sentSoFar(): Promise<number> {
    this.#child.kill('SIGQUIT')
    for (let looks = 0; looks < QUIET_LOOKS; looks++) {
      const sent = /\d+\/(\d+) packets, /.exec(this.#output)?.[1]
      if (sent !== undefined) return Number(sent)
      await pause(INTERVAL_MS)
    }
    throw new Error(`ping said: ${this.#output.slice(-500)}`)
  }

  /** Waits until that one is answered, or none comes any more. */
  async #answers(count: number): Promise<void> {
    let seen = 0
    for (let quiet = 0; seen < count && quiet < QUIET_LOOKS; quiet++) {
      await pause(INTERVAL_MS)
      const last = this.#lastAnswered()
      if (last > seen) quiet = 0
      seen = last
    }
    await pause(INTERVAL_MS) // answers may overtake each other
  }

  async #stop(): Promise<void> {
    this.#child.kill('SIGINT')
    await this.#closed
    if (!this.#output.includes(' packets transmitted')) throw new Error(`ping said: ${this.#output.slice(-500)}`)
  }

  #answered(): Set<number> {
    return new Set([...this.#output.matchAll(/icmp_seq=(\d+) ttl/g)].map(([, number]) => Number(number)))
  }

  #lastAnswered(): number {
    return Number(/.*icmp_seq=(\d+) ttl/s.exec(this.#output)?.[1] ?? 0)
  }

  #missing(upTo: number): number[] {
    const answered = this.#answered()
    return Array.from({ length: upTo }, (_, index) => index + 1).filter((number) => !answered.has(number))
  }
}
