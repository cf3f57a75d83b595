// The dataplane that moves no packet itself: it makes the kernel's `flannel.<VNI>` and keeps neighbours, FDB and routes
// as the leases say. Desired state is the whole set of peers; each pass compares it with what the kernel holds and runs
// only the difference, so a repeated, late or interrupted pass does no harm. A peer whose commands fail stays pending
// and is tried again with back-off; the others are programmed meanwhile. What somebody takes away or changes of device,
// routes or entries comes back (kernel-vtep-watch.ts says when that is looked for).
import { formatAddress } from '../../dataplane/index.ts'
import type { Clock, Timer } from '../clock.ts'
import { systemClock } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { requireNetworkAdmin } from './capability.ts'
import { carriesAddress } from './carried-address.ts'
import type { Dataplane, LocalVtep, PeerWay, VtepOutline } from './dataplane.ts'
import { batchEach, type IpTool } from './ip.ts'
import { deviceCounters, type KernelTables, kernelTables } from './kernel-tables.ts'
import { type DeviceWork, ensureKernelDevice, probeKernelDevice } from './kernel-vtep-device.ts'
import {
  desiredRows,
  type PeerCommand,
  type PeerRow,
  type ProgramPlan,
  planProgram,
  planRemoval,
  subnetRowsOf,
  twinsAmong,
} from './kernel-vtep-plan.ts'
import { VtepWatch } from './kernel-vtep-watch.ts'
import { refuseNetworkOverlap } from './network-overlap.ts'
import { isForeignRoute } from './route-place.ts'

export interface KernelVtepOptions {
  readonly log: Log
  /** Outer UDP checksum over IPv4: `udpcsum` (default, as flannel) or `noudpcsum`. */
  readonly udpChecksum?: boolean
  /** Namespace in which the device lives; absent: this process's own. */
  readonly namespace?: string
  readonly clock?: Clock
  /** Stands in for the kernel's tables in tests. */
  readonly tables?: KernelTables
}

const FIRST_RETRY_MS = 100
const LONGEST_RETRY_MS = 30_000

const THROUGH_TUNNEL: PeerWay = { way: 'tunnel', why: '' }

/** @throws FlanneletteError `config-invalid` */
function requireVxlan({ encapsulation }: VtepOutline): void {
  if (encapsulation === 'vxlan') return
  throw new FlanneletteError('config-invalid', `the kernel has no tunnel for the ${encapsulation} backend`, {
    remedy: 'use --dataplane userspace, or the vxlan backend',
  })
}

export class KernelVtep implements Dataplane {
  readonly kind = 'kernel'
  readonly entropy = 'local port range'
  readonly driver = 'kernel'
  readonly #options: KernelVtepOptions
  readonly #log: Log
  readonly #clock: Clock
  #device = ''
  #local: LocalVtep | null = null
  #tables: KernelTables | null
  #rows: readonly PeerRow[] = []
  /** What the tables held after the last pass, but for what failed; later differences are somebody else's work. */
  #settledRows: readonly PeerRow[] | null = null
  /** MACs that we have put into the FDB, where nothing else tells that an entry is ours. */
  readonly #macs = new Set<string>()
  #generation = 0
  /** By subnet: failed attempts in a row, and why the last one did. */
  readonly #failures = new Map<string, { readonly attempts: number; readonly why: string }>()
  #retry: Timer | null = null
  #watch: VtepWatch | null = null
  /** Work on device and tables never overlaps: each waits for the one before. */
  #tail: Promise<void> = Promise.resolve()
  #stopped = true

  constructor(options: KernelVtepOptions) {
    this.#options = options
    this.#log = options.log
    this.#clock = options.clock ?? systemClock()
    this.#tables = options.tables ?? null
  }

  async prepare(outline: VtepOutline): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    requireVxlan(outline)
    if (this.#tables !== null) return
    requireNetworkAdmin(outline.deviceName)
    await refuseNetworkOverlap(outline, { namespace })
    await probeKernelDevice(outline, udpChecksum, { namespace })
  }

  /** @throws FlanneletteError `device-foreign`, `port-busy`, `not-permitted`, `host-command` */
  async start(local: LocalVtep): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    this.#device = local.deviceName
    if (this.#tables === null) {
      this.#tellOfNew(await ensureKernelDevice(local, udpChecksum, { namespace }))
      const carried = { ipv4: local.network !== null, ipv6: local.ipv6Network !== null }
      this.#tables = kernelTables(local.deviceName, carried, { namespace })
    }
    this.#local = local
    this.#stopped = false
    if (this.#looksAtDevice) {
      const isIntact = () => !this.#lacks('overlay')
      const mend = () => this.#inTurn(() => this.#mend())
      this.#watch = new VtepWatch({ clock: this.#clock, device: local.deviceName, isIntact, mend })
    }
  }

  #tellOfNew({ what, why }: DeviceWork): void {
    if (what !== 'made-anew') return
    const message = `${this.#device} did not fit and is made anew (${why.join('; ')}): packets of a moment are lost`
    this.#log.warn('device-recreated', message)
  }

  /** The kernel changes the address of a device that is there; only where it does not, the device is made anew. */
  moveUnderlay(local: LocalVtep): Promise<void> {
    return this.#inTurn(() => this.#moveNow(local))
  }

  async #moveNow(local: LocalVtep): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    const { deviceName, vni, underlayAddress, underlayInterface } = local
    const change = `link set dev ${deviceName} type vxlan id ${vni} local ${formatAddress(underlayAddress)} dev ${underlayInterface}`
    const failures = await batchEach('ip', [change], { namespace })
    if (failures.length > 0)
      this.#log.debug('kernel-device-anew', `${deviceName} is made anew: ${failures[0]!.message}`)
    this.#tellOfNew(await ensureKernelDevice(local, udpChecksum, { namespace }))
    this.#local = local
    this.#settledRows = null // what is made anew has lost its entries
    await this.#reconcileOrRetry('underlay moved')
  }

  changeMtu(local: LocalVtep): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    return this.#inTurn(async () => {
      await ensureKernelDevice(local, udpChecksum, { namespace })
      this.#local = local
    })
  }

  async replacePeers(peers: readonly Lease[], cause: string): Promise<number> {
    if (this.#local === null) throw new Error('the dataplane is not started')
    this.#rows = desiredRows(peers, this.#local)
    const generation = ++this.#generation
    const known = new Set(this.#rows.flatMap(subnetRowsOf).map((row) => row.subnet))
    for (const subnet of this.#failures.keys()) if (!known.has(subnet)) this.#failures.delete(subnet)
    await this.#pass(cause)
    return generation
  }

  /** The kernel keeps its offloads to itself. */
  features(): readonly [] {
    return []
  }

  counters(): Readonly<Record<string, number>> {
    return this.#options.namespace === undefined ? deviceCounters(this.#device) : {}
  }

  /** The kernel counts for the whole device. */
  traffic(): null {
    return null
  }

  workerRestarts(): readonly [] {
    return []
  }

  /** The kernel checks no source. */
  offenders(): readonly [] {
    return []
  }

  impairment(): string | null {
    if (this.#lacks('overlay')) return 'the overlay device is gone, down or lacks its address'
    return this.#lacks('underlay') ? 'the underlay address is gone' : null
  }

  /** Only this process's own namespace can be looked at without a program. */
  get #looksAtDevice(): boolean {
    return this.#options.namespace === undefined && this.#options.tables === undefined
  }

  /** False as well where there is nothing to look at: in another namespace, and before the start. */
  #lacks(side: 'overlay' | 'underlay'): boolean {
    const local = this.#local
    if (local === null || !this.#looksAtDevice) return false
    const { deviceName, overlayAddress, underlayInterface, underlayAddress } = local
    return side === 'overlay'
      ? !carriesAddress(deviceName, overlayAddress)
      : !carriesAddress(underlayInterface, underlayAddress)
  }

  pendingPeers(): number {
    const pending = this.pendingSubnets()
    return this.#rows.filter((row) => subnetRowsOf(row).some(({ subnet }) => pending.has(subnet))).length
  }

  /** None is reached without the device. */
  pendingSubnets(): ReadonlySet<string> {
    const all = this.#lacks('overlay')
    return all ? new Set(this.#rows.flatMap(subnetRowsOf).map(({ subnet }) => subnet)) : new Set(this.#failures.keys())
  }

  /** Worth a word only while somebody else's route keeps a peer from being reached. */
  ways(): ReadonlyMap<string, PeerWay> | null {
    const foreign = [...this.#failures].filter(([, { why }]) => isForeignRoute(why))
    if (foreign.length === 0) return null
    const tunnel = this.#rows.flatMap(subnetRowsOf).map(({ subnet }) => [subnet, THROUGH_TUNNEL] as const)
    return new Map([...tunnel, ...foreign.map(([subnet, { why }]) => [subnet, { way: 'none', why }] as const)])
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.#stopped = true
    this.#retry?.cancel()
    this.#retry = null
    this.#watch?.stop()
    await this.#tail
    if (mode === 'remove' && this.#options.tables === undefined) {
      const { namespace } = this.#options
      // Gone already is as good as removed.
      await batchEach('ip', [`link delete dev ${this.#device}`], { namespace })
    }
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#tail.then(work)
    this.#tail = done.catch(() => {})
    return done
  }

  #pass(cause: string): Promise<void> {
    return this.#inTurn(() => this.#reconcileOrRetry(cause))
  }

  #reconcileOrRetry(cause: string): Promise<void> {
    return this.#reconcile(cause).catch((error: Error) => this.#passFailed(error))
  }

  /** What a start would do to the device is done again; with a device the kernel takes its entries and routes away. */
  async #mend(): Promise<void> {
    const local = this.#local
    if (local === null || this.#stopped) return
    try {
      const { what, why } = await ensureKernelDevice(local, this.#options.udpChecksum ?? true, {})
      if (what !== 'kept') {
        const fields = { work: what, ...(why.length === 0 ? {} : { why: why.join('; ') }) }
        this.#log.warn('device-restored', `${this.#device} was changed by somebody else and is as it was again`, fields)
        this.#settledRows = null
      }
    } catch (error) {
      this.#log.error('device-lost', error instanceof FlanneletteError ? error.oneLine : String(error))
      return
    }
    await this.#reconcileOrRetry('changed by somebody else')
  }

  async #reconcile(cause: string): Promise<void> {
    const tables = this.#tables
    // Before the first peers are known, a former run's are better than none.
    if (tables === null || this.#stopped || this.#generation === 0) return
    const wanted = this.#rows
    const failed = new Map(twinsAmong(wanted))
    const rows = wanted.filter(({ subnet }) => !failed.has(subnet))
    const present = await tables.read()
    const removal = planRemoval(this.#device, rows, present, this.#macs)
    await this.#remove(tables, 'ip', removal.routes)
    await this.#remove(tables, 'bridge', removal.fdb)
    await this.#remove(tables, 'ip', removal.neighbors)
    const plan = planProgram(this.#device, rows, present)
    for (const { mac } of rows) this.#macs.add(mac)
    await program(tables, 'ip', plan.neighbors, failed)
    await program(tables, 'bridge', plan.fdb, failed)
    await this.#programAnew(tables, await program(tables, 'ip', plan.routes, failed), failed)
    this.#tellOfRepairs(wanted, plan)
    this.#settledRows = wanted
    this.#settle(wanted, new Map([...plan.blocked, ...failed]), cause)
  }

  /** Routes that the kernel did not put in the place of wrong ones of ours. */
  async #programAnew(
    tables: KernelTables,
    refused: readonly PeerCommand[],
    failed: Map<string, string>,
  ): Promise<void> {
    const anew = refused.flatMap(({ subnet, instead }) => (instead === undefined ? [] : [{ subnet, ...instead }]))
    if (anew.length === 0) return
    await this.#remove(
      tables,
      'ip',
      anew.map(({ removal }) => removal),
    )
    for (const { subnet } of anew) failed.delete(subnet)
    await program(tables, 'ip', anew, failed)
  }

  /** Only what was there already can have been changed by others. */
  #tellOfRepairs(rows: readonly PeerRow[], { neighbors, fdb, routes }: ProgramPlan): void {
    const commands = [...routes, ...neighbors, ...fdb].filter(({ subnet }) => !this.#failures.has(subnet))
    if (this.#settledRows !== rows || commands.length === 0) return
    const fields = { peers: new Set(commands.map(({ subnet }) => subnet)).size, first: commands[0]!.command }
    const message = 'routes or entries of peers were changed by somebody else and are as they were again'
    this.#log.warn('peers-restored', message, fields)
  }

  async #remove(tables: KernelTables, tool: IpTool, commands: readonly string[]): Promise<void> {
    for (const failure of await tables.apply(tool, commands)) {
      // Gone already is as good as removed; anything else the next pass sees again.
      const command = `${tool} ${commands[failure.index] ?? ''}`
      this.#log.debug('kernel-entry-kept', `a stale entry could not be removed: ${failure.message}`, { command })
    }
  }

  #settle(rows: readonly PeerRow[], failed: ReadonlyMap<string, string>, cause: string): void {
    for (const { subnet } of rows.flatMap(subnetRowsOf)) {
      const why = failed.get(subnet)
      const before = this.#failures.get(subnet)
      if (why !== undefined) {
        this.#failures.set(subnet, { attempts: (before?.attempts ?? 0) + 1, why })
        if (before?.why !== why) {
          this.#log.warn('peer-pending', `peer ${subnet} could not be programmed: ${why}`, { cause })
        }
      } else if (before !== undefined) {
        this.#failures.delete(subnet)
        this.#log.info('peer-programmed', `peer ${subnet} is programmed after ${before.attempts} failed attempts`)
      }
    }
    this.#scheduleRetry()
  }

  #passFailed(error: Error): void {
    this.#log.warn('kernel-tables-unreadable', `the kernel's tables could not be read: ${error.message}`)
    for (const { subnet } of this.#rows.flatMap(subnetRowsOf)) {
      const { attempts = 0 } = this.#failures.get(subnet) ?? {}
      this.#failures.set(subnet, { attempts: attempts + 1, why: error.message })
    }
    this.#scheduleRetry()
  }

  /** The peer that failed least often decides: a hopeless one does not slow down the rest. */
  #scheduleRetry(): void {
    if (this.#stopped || this.#failures.size === 0) return
    const attempts = Math.min(...[...this.#failures.values()].map((failure) => failure.attempts))
    this.#retry?.cancel()
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (attempts - 1), LONGEST_RETRY_MS)
    this.#retry = this.#clock.after(delayMs, () => {
      this.#retry = null
      void this.#pass('retry')
    })
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
