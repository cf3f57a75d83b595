// Whether this node is alive and whether it is ready, as checks with a sentence each: for probes, for status, for
// systemd. A store that is away makes nothing unready: forwarding goes on, and a restart would help nobody.
import type { Clock, Timer } from '../clock.ts'
import type { Dataplane } from '../host/dataplane.ts'
import { UNDERLAY_GONE } from '../host/pending.ts'
import { nameOf } from '../lease/lease.ts'
import type { NodeAgent } from './node-agent.ts'
import { pendingInWords } from './pending-peers.ts'
import { unseenInWords } from './unseen-host.ts'

export interface HealthCheck {
  readonly name: 'event-loop' | 'start' | 'lease' | 'device' | 'peers'
  readonly ok: boolean
  readonly about: string
}

export interface Health {
  /** The process does its work: restarting it would change nothing. */
  readonly live: boolean
  /** Packets of pods go where they should. */
  readonly ready: boolean
  readonly checks: readonly HealthCheck[]
  /** What needs attention although the node forwards. */
  readonly notes: readonly string[]
}

/** An event loop that was late by this much, milliseconds, within the last {@link LAG_WINDOW_MS} is not alive. */
export const LONGEST_LAG_MS = 5000
const LAG_WINDOW_MS = 10_000
const TICK_MS = 500

/** How late the main thread was lately. A machine that slept is not late: its timers slept as well. */
export class LoopLag {
  readonly #nowMs: () => number
  #expectedMs: number
  #worst: { readonly lagMs: number; readonly atMs: number } | null = null
  #timer: NodeJS.Timeout | null = null

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
    this.#expectedMs = nowMs()
  }

  start(): void {
    this.#expectedMs = this.#nowMs() + TICK_MS
    this.#timer = setInterval(() => this.tick(), TICK_MS)
    this.#timer.unref()
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer)
  }

  tick(): void {
    const nowMs = this.#nowMs()
    const lagMs = Math.max(0, nowMs - this.#expectedMs)
    const isOld = this.#worst === null || nowMs - this.#worst.atMs > LAG_WINDOW_MS
    if (isOld || lagMs > (this.#worst?.lagMs ?? 0)) this.#worst = { lagMs, atMs: nowMs }
    this.#expectedMs = nowMs + TICK_MS
  }

  /** Worst of the last ten seconds, milliseconds, with what is late right now. */
  get lagMs(): number {
    const nowMs = this.#nowMs()
    const kept = this.#worst !== null && nowMs - this.#worst.atMs <= LAG_WINDOW_MS ? this.#worst.lagMs : 0
    return this.#timer === null ? kept : Math.max(kept, nowMs - this.#expectedMs)
  }
}

export class HealthWatch {
  readonly #agent: NodeAgent
  readonly #dataplane: Dataplane
  readonly #lag: () => number
  /** All peers were programmed once: one that is pending later is a note, not the end of being ready. */
  #hadPeers = false

  constructor(agent: NodeAgent, dataplane: Dataplane, lag: () => number) {
    this.#agent = agent
    this.#dataplane = dataplane
    this.#lag = lag
  }

  look(): Health {
    const loop = this.#loop()
    const checks = [loop, this.#start(), this.#lease(), this.#device(), this.#peers()]
    const live = loop.ok && this.#agent.state !== 'lost'
    return { live, ready: live && checks.every(({ ok }) => ok), checks, notes: this.#notes() }
  }

  #loop(): HealthCheck {
    const lagMs = Math.round(this.#lag())
    return { name: 'event-loop', ok: lagMs < LONGEST_LAG_MS, about: `late by ${lagMs} ms at most in the last 10 s` }
  }

  #start(): HealthCheck {
    const { state } = this.#agent
    const ok = state === 'ready' || state === 'degraded'
    return { name: 'start', ok, about: ok ? 'subnet.env is written' : `the node is ${state}` }
  }

  #lease(): HealthCheck {
    const { manager } = this.#agent
    if (manager === null) return { name: 'lease', ok: false, about: 'none yet' }
    const subnet = nameOf(manager.lease)
    if (manager.state === 'lost') return { name: 'lease', ok: false, about: `${subnet} is somebody else's now` }
    if (manager.isExpired) return { name: 'lease', ok: false, about: `${subnet} has expired` }
    const doubt = manager.state === 'suspect' ? ', not confirmed by the store' : ''
    return { name: 'lease', ok: true, about: `${subnet} is held${since('renewed', manager.lastRenewalWallMs)}${doubt}` }
  }

  #device(): HealthCheck {
    const { local } = this.#agent
    if (local === null) return { name: 'device', ok: false, about: 'not up yet' }
    const impairment = this.#dataplane.impairment()
    return { name: 'device', ok: impairment === null, about: impairment ?? inOrder(local.deviceName) }
  }

  #peers(): HealthCheck {
    const { generation, peers, changedWallMs, pendingCount: pending } = this.#agent.peers
    if (generation > 0 && pending === 0) this.#hadPeers = true
    const change = since('last change', changedWallMs)
    const known = `${peers.length} known, ${pending} pending${change}`
    return {
      name: 'peers',
      ok: this.#hadPeers,
      about: generation === 0 ? 'the first table is not in force' : known,
    }
  }

  #notes(): string[] {
    const { store, manager, peers, lacksUnderlay } = this.#agent
    const { pendingCount: pending } = peers
    const unseen = this.#dataplane.unseen?.() ?? null
    return [
      ...storeNotes(store, manager !== null),
      ...(manager?.state === 'suspect' ? ['the lease is not confirmed by the store'] : []),
      ...(pending > 0 ? [pendingInWords(pending)] : []),
      ...(peers.isBehind ? ['the dataplane has not taken the latest peers, it is tried again'] : []),
      ...(unseen === null ? [] : [unseenInWords(unseen)]),
      ...(lacksUnderlay && this.#dataplane.impairment() === null ? [UNDERLAY_GONE] : []),
      ...(this.#agent.hostProblem === null ? [] : [this.#agent.hostProblem]),
      ...(peers.conflicts.length > 0 ? ['leases contradict each other'] : []),
    ]
  }
}

function inOrder(device: string): string {
  return device === '' ? 'the backend has none' : `${device} is up`
}

function storeNotes({ reachable, why }: NodeAgent['store'], hasLease: boolean): string[] {
  if (!hasLease) return why === '' ? [] : [why]
  return reachable ? [] : [`the store is away, forwarding goes on by the last table: ${why}`]
}

function since(what: string, wallMs: number | null): string {
  return wallMs === null ? '' : `, ${what} ${new Date(wallMs).toISOString()}`
}

/** Looks once in a while, for as long as the clock runs. */
export function every(clock: Clock, periodMs: number, work: () => void): Timer {
  let timer: Timer
  const arm = () => {
    timer = clock.after(periodMs, () => {
      work()
      arm()
    })
  }
  arm()
  return { cancel: () => timer.cancel() }
}
