// A lab around the tests of a file or a describe, and what tests ask of its daemons: their status once it holds what
// happened just now, and whether their books balance.
import { readFileSync } from 'node:fs'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { DROP_REASON_NAMES } from '../../dataplane/index.ts'
import type { DaemonStatus } from '../../src/daemon/status-file.ts'
import { Lab } from '../../src/lab/lab.ts'
import { hostFiles, labFiles } from '../../src/lab/lab-state.ts'
import type { LabOptions } from '../../src/lab/plan.ts'
import { signal, waitGone } from '../../src/lab/process-identity.ts'

/** Longest wait for something that a daemon says once a second. */
const STATUS_LIMIT_MS = 15_000

const PATIENCE_MS = 10_000

/** Brings a lab up before the tests around the call and takes it down after them. */
export function labUnderTest(options: Partial<LabOptions> & { readonly name: string }): () => Lab {
  let lab: Lab | null = null
  beforeAll(async () => {
    lab = patient(await Lab.up(options))
  })
  afterAll(() => Lab.down(options.name))
  afterEach((context) => {
    if (lab !== null && context.task.result?.state === 'fail') console.log(lastWords(lab))
  })
  return () => {
    if (lab === null) throw new Error('the lab is not up yet')
    return lab
  }
}

/** Pings of this lab wait longer for their answers, which may be late on a busy machine, unless told otherwise. */
export function patient(lab: Lab): Lab {
  const { ping, pingAll } = lab
  lab.ping = (from, to, options) => ping.call(lab, from, to, { waitMs: PATIENCE_MS, ...options })
  lab.pingAll = (options) => pingAll.call(lab, { waitMs: PATIENCE_MS, ...options })
  return lab
}

/** The end of every daemon's log, for whoever has to understand a failure. */
function lastWords(lab: Lab): string {
  const ends = lab.hosts.map(({ name }) => {
    const lines = readFileSync(hostFiles(lab.name, name).log, 'utf8').trimEnd().split('\n')
    return [`${name}:`, ...lines.slice(-8)].join('\n  ')
  })
  return ends.join('\n')
}

export type DaemonCounters = Readonly<Record<string, number>>

export function countersOf(lab: Lab, host: string): DaemonCounters {
  return lab.host(host).status?.counters ?? {}
}

/** A counter, 0 when it is not there. */
export function counter(lab: Lab, host: string, name: string): number {
  return countersOf(lab, host)[name] ?? 0
}

/** Waits until the daemon's status, rewritten once a second, satisfies `check` (which throws until then). */
export async function eventually(check: () => void, limitMs = STATUS_LIMIT_MS): Promise<void> {
  await expect
    .poll(
      () => {
        check()
        return true
      },
      { timeout: limitMs, interval: 50 },
    )
    .toBe(true)
}

/** Read minus passed on minus dropped, over both directions: zero. */
export function imbalanceOf(counters: DaemonCounters): { packets: number; bytes: number } {
  const value = (name: string) => counters[name] ?? Number.NaN
  const sum = (unit: 'packets' | 'bytes') =>
    ['outbound', 'inbound'].reduce((total, way) => {
      const dropped = `${way}.${unit === 'packets' ? 'dropped' : 'dropped-bytes'}`
      const losses = DROP_REASON_NAMES.reduce((lost, reason) => lost + value(`${dropped}.${reason}`), 0)
      return total + value(`${way}.${unit}.read`) - value(`${way}.${unit}.passed`) - losses
    }, 0)
  return { packets: sum('packets'), bytes: sum('bytes') }
}

/** What a kernel says to its neighbours when a device gets an IPv6 address is counted, and no more. */
export const NOISE = 'outbound.dropped.link-local-or-multicast'

/** The books balance, and nothing but noise was dropped, or what was `provoked`. */
export function expectCleanBooks(counters: DaemonCounters, provoked: readonly string[] = []): void {
  expect(imbalanceOf(counters)).toEqual({ packets: 0, bytes: 0 })
  const names = Object.keys(newDrops({}, counters))
  expect(names.filter((name) => name !== NOISE && !provoked.includes(name))).toEqual([])
}

/** Drop counters that grew from `before` to `after`, with how much: `inbound.dropped.vni-unknown` → 3. */
export function newDrops(before: DaemonCounters, after: DaemonCounters): Record<string, number> {
  const names = Object.keys(after).filter((name) => name.includes('.dropped.'))
  const grown = names.map((name) => [name, (after[name] ?? 0) - (before[name] ?? 0)] as const)
  return Object.fromEntries(grown.filter(([, more]) => more !== 0))
}

/** Value of a lease in a lab's store, as it stands there. */
export function leaseText(lab: string, key: string): string {
  return readFileSync(`${labFiles(lab).store}/subnets/${key}`, 'utf8').split('\n')[0]!
}

/** The daemon's log so far, one event a line. */
export function logOf(lab: Lab, host: string): { readonly level: string; readonly event: string }[] {
  const text = readFileSync(hostFiles(lab.name, host).log, 'utf8')
  return text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))
}

/** kill -9, and nobody but the caller starts it again. */
export async function killDaemon(lab: Lab, host: string): Promise<void> {
  const { daemon } = lab.host(host)
  if (daemon === null || !signal(daemon, 'SIGKILL')) throw new Error(`the daemon of ${host} does not run`)
  if (!(await waitGone([daemon], 20_000))) throw new Error(`the daemon of ${host} outlives SIGKILL`)
}

/** What must outlive a daemon: its lease, its MAC and its subnet.env. */
export function identityOf(lab: Lab, host: string): { subnet: string; mac: string; subnetFile: string } {
  const status = lab.host(host).status as DaemonStatus
  const subnetFile = readFileSync(hostFiles(lab.name, host).subnetFile, 'utf8')
  return { subnet: status.lease?.subnet ?? '', mac: status.node?.mac ?? '', subnetFile }
}
