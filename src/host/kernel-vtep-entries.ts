// The entries of peers in the kernel's three tables: neighbours, FDB and routes. Desired state is the whole set of rows;
// each pass compares it with what the kernel holds and runs only the difference, so a repeated, late or interrupted pass
// does no harm. A peer whose commands fail stays pending and is tried again with back-off; the others are programmed
// meanwhile. kernel-vtep-plan.ts says what is to be done, kernel-vtep.ts when.
import type { Clock, Timer } from '../clock.ts'
import type { Log } from '../log.ts'
import { partTaken, partTakers, placedRoutes, type ShownRoute, tellOfForeign } from './foreign-routes.ts'
import type { IpTool } from './ip.ts'
import type { KernelTables } from './kernel-tables.ts'
import {
  type PeerCommand,
  type PeerRow,
  type ProgramPlan,
  planProgram,
  planRemoval,
  programmable,
  subnetRowsOf,
  subnetsOf,
} from './kernel-vtep-plan.ts'
import type { Pending } from './pending.ts'

/** The first retry, milliseconds; each later one waits twice as long, to the longest at most. */
const FIRST_RETRY_MS = 100
const LONGEST_RETRY_MS = 30_000

export interface VtepEntriesOptions {
  readonly log: Log
  readonly clock: Clock
  readonly tables: KernelTables
  /** Name of the kernel's VTEP. */
  readonly device: string
  /** Some peer waits to be tried again, and a pass is due. */
  readonly onRetry: () => void
}

export class VtepEntries {
  readonly #options: VtepEntriesOptions
  /** `null` until the first set is known: a former run's entries are better than none. */
  #rows: readonly PeerRow[] | null = null
  /** What the tables held after the last pass, but for what failed; later differences are somebody else's work. */
  #settledRows: readonly PeerRow[] | null = null
  /** MACs that we have put into the FDB, where nothing else tells that an entry is ours. */
  readonly #macs = new Set<string>()
  /** By subnet: failed attempts in a row, and why the last one did. */
  readonly #failures = new Map<string, { readonly attempts: number; readonly why: string }>()
  #partTaken: ReadonlyMap<string, string> = new Map()
  /** Whether the pass under way, or the last one, has read the tables. */
  #isRead = false
  /** Why the tables could not be read the last time; `null` when they could. */
  #unseen: string | null = null
  /** Passes in a row that have failed as a whole. */
  #failedPasses = 0
  #retry: Timer | null = null
  #stopped = false

  constructor(options: VtepEntriesOptions) {
    this.#options = options
  }

  /** Those that the next pass brings about. */
  get rows(): readonly PeerRow[] {
    return this.#rows ?? []
  }

  /** What could not be programmed. */
  get pending(): Pending {
    return new Map([...this.#failures].map(([subnet, { why }]) => [subnet, why]))
  }

  /** Why the last pass could not look at the tables; `null` when it did. */
  get unseen(): string | null {
    return this.#unseen
  }

  /** By subnet: whose more specific route takes packets to a part of it, in words. */
  get partTaken(): ReadonlyMap<string, string> {
    return this.#partTaken
  }

  /** The whole set; `pass` brings it about. */
  want(rows: readonly PeerRow[]): void {
    this.#rows = rows
    this.#forgetDeparted()
  }

  /** The device has been made anew, and with it the kernel has taken its entries away: that is no news. */
  forget(): void {
    this.#settledRows = null
  }

  /** Not to be called again before it has ended. Never rejects: what could not be done is pending. */
  async pass(cause: string): Promise<void> {
    const rows = this.#rows
    if (rows === null || this.#stopped) return
    await this.#reconcile(rows, cause).catch((error: Error) => this.#passFailed(error))
  }

  /** Nothing is tried any more. */
  stop(): void {
    this.#stopped = true
    this.#retry?.cancel()
    this.#retry = null
  }

  async #reconcile(wanted: readonly PeerRow[], cause: string): Promise<void> {
    const { tables, device } = this.#options
    const { rows, refused } = programmable(wanted)
    const failed = new Map(refused)
    this.#isRead = false
    const present = await tables.read()
    this.#isRead = true
    this.#unseen = null
    const removal = planRemoval(device, rows, present, this.#macs)
    await this.#remove('ip', removal.routes)
    await this.#remove('bridge', removal.fdb)
    await this.#remove('ip', removal.neighbors)
    const plan = planProgram(device, rows, present)
    for (const { mac } of rows) this.#macs.add(mac)
    await program(tables, 'ip', plan.neighbors, failed)
    await program(tables, 'bridge', plan.fdb, failed)
    failBothHalves(rows, plan.fdb, failed)
    await this.#programAnew(await program(tables, 'ip', plan.routes, failed), failed)
    this.#tellOfRepairs(wanted, plan)
    this.#tellOfTaken(wanted, placedRoutes(present.routes, device))
    this.#settledRows = wanted
    this.#failedPasses = 0
    this.#settle(wanted, new Map([...plan.blocked, ...failed]), cause)
  }

  /** Routes that the kernel did not put in the place of wrong ones of ours. */
  async #programAnew(refused: readonly PeerCommand[], failed: Map<string, string>): Promise<void> {
    const anew = refused.flatMap(({ subnet, instead }) => (instead === undefined ? [] : [{ subnet, ...instead }]))
    if (anew.length === 0) return
    await this.#remove(
      'ip',
      anew.map(({ removal }) => removal),
    )
    for (const { subnet } of anew) failed.delete(subnet)
    await program(this.#options.tables, 'ip', anew, failed)
  }

  /** Only what was there already can have been changed by others. */
  #tellOfRepairs(rows: readonly PeerRow[], { neighbors, fdb, routes }: ProgramPlan): void {
    const commands = [...routes, ...neighbors, ...fdb].filter(({ subnet }) => !this.#failures.has(subnet))
    if (this.#settledRows !== rows || commands.length === 0) return
    const fields = { peers: new Set(commands.map(({ subnet }) => subnet)).size, first: commands[0]!.command }
    const message = 'routes or entries of peers were changed by somebody else and are as they were again'
    this.#options.log.warn('peers-restored', message, fields)
  }

  #tellOfTaken(rows: readonly PeerRow[], routes: readonly ShownRoute[]): void {
    const subnets = rows.flatMap((row) => {
      return subnetRowsOf(row).map(({ subnet }) => ({ subnet, peerAddress: row.underlayAddress }))
    })
    const taken = new Map([...partTakers(subnets, routes)].map(([subnet, route]) => [subnet, partTaken(route)]))
    tellOfForeign(this.#options.log, this.#partTaken, taken)
    this.#partTaken = taken
  }

  async #remove(tool: IpTool, commands: readonly string[]): Promise<void> {
    for (const failure of await this.#options.tables.apply(tool, commands)) {
      // Gone already is as good as removed; anything else the next pass sees again.
      const command = `${tool} ${commands[failure.index] ?? ''}`
      this.#options.log.debug('kernel-entry-kept', `a stale entry could not be removed: ${failure.message}`, {
        command,
      })
    }
  }

  #settle(rows: readonly PeerRow[], failed: ReadonlyMap<string, string>, cause: string): void {
    for (const subnet of subnetsOf(rows)) {
      const why = failed.get(subnet)
      const before = this.#failures.get(subnet)
      if (why !== undefined) {
        this.#failures.set(subnet, { attempts: (before?.attempts ?? 0) + 1, why })
        if (before?.why !== why) {
          this.#options.log.warn('peer-pending', `peer ${subnet} could not be programmed: ${why}`, { cause })
        }
      } else if (before !== undefined) {
        this.#failures.delete(subnet)
        this.#options.log.info(
          'peer-programmed',
          `peer ${subnet} is programmed after ${before.attempts} failed attempts`,
        )
      }
    }
    this.#forgetDeparted()
    this.#scheduleRetry()
  }

  /** A peer may leave while a pass is under way that was still about it. */
  #forgetDeparted(): void {
    const known = new Set(subnetsOf(this.rows))
    for (const subnet of this.#failures.keys()) if (!known.has(subnet)) this.#failures.delete(subnet)
  }

  #passFailed(error: Error): void {
    this.#options.log.warn('kernel-tables-unreadable', `the kernel's tables could not be read: ${error.message}`)
    this.#failedPasses += 1
    if (!this.#isRead) this.#unseen = error.message
    // What was brought about is believed to be so still, until somebody has looked.
    const isBelieved = this.#settledRows === this.#rows && !this.#isRead
    for (const subnet of isBelieved ? [] : subnetsOf(this.rows)) {
      const { attempts = 0 } = this.#failures.get(subnet) ?? {}
      this.#failures.set(subnet, { attempts: attempts + 1, why: error.message })
    }
    this.#scheduleRetry()
  }

  /** The peer that failed least often decides: a hopeless one does not slow down the rest. */
  #scheduleRetry(): void {
    if (this.#stopped || this.#failures.size + this.#failedPasses === 0) return
    let attempts = this.#failedPasses === 0 ? Number.POSITIVE_INFINITY : this.#failedPasses
    for (const failure of this.#failures.values()) attempts = Math.min(attempts, failure.attempts)
    this.#retry?.cancel()
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (attempts - 1), LONGEST_RETRY_MS)
    this.#retry = this.#options.clock.after(delayMs, () => {
      this.#retry = null
      this.#options.onRetry()
    })
  }
}

/** The IPv6 half hangs on the same FDB entry: without it no packet gets there, and no route is to lead there. */
function failBothHalves(rows: readonly PeerRow[], fdb: readonly PeerCommand[], failed: Map<string, string>): void {
  const missing = new Set(fdb.map(({ subnet }) => subnet).filter((subnet) => failed.has(subnet)))
  for (const { subnet, ipv6 } of missing.size === 0 ? [] : rows) {
    if (ipv6 !== null && missing.has(subnet)) failed.set(ipv6.subnet, failed.get(subnet) ?? '')
  }
}

/**
 * Runs one table's commands; a peer that failed in an earlier table is left out, so that its route never comes first.
 * Resolves with those that the kernel refused.
 */
async function program(
  tables: KernelTables,
  tool: IpTool,
  commands: readonly PeerCommand[],
  failed: Map<string, string>,
): Promise<readonly PeerCommand[]> {
  const ready = commands.filter(({ subnet }) => !failed.has(subnet))
  const failures = await tables.apply(
    tool,
    ready.map(({ command }) => command),
  )
  return failures.flatMap(({ index, message }) => {
    const refused = ready[index]
    if (refused === undefined) return []
    failed.set(refused.subnet, message)
    return [refused]
  })
}
