// The dataplane that moves no packet itself: it makes the kernel's `flannel.<VNI>` and lets the kernel forward. Here are
// its device and its life; kernel-vtep-entries.ts keeps the entries of peers. What somebody takes away or changes of
// device, routes or entries comes back (change-watch.ts says when that is looked for).
import { formatAddress } from '../../dataplane/index.ts'
import { type Clock, systemClock } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import { lastResult } from '../last-result.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { Turns } from '../turns.ts'
import { requireNetworkAdmin } from './capability.ts'
import { carriesAddress } from './carried-address.ts'
import { ChangeWatch } from './change-watch.ts'
import type { Dataplane, LocalVtep, PeerWay, VtepOutline } from './dataplane.ts'
import { tunnelWays } from './foreign-routes.ts'
import { batchEach } from './ip.ts'
import { isElsewhere, ringOnChanges } from './ip-monitor.ts'
import { deviceCounters, type KernelTables, kernelTables } from './kernel-tables.ts'
import { type DeviceWork, ensureKernelDevice, probeKernelDevice } from './kernel-vtep-device.ts'
import { VtepEntries } from './kernel-vtep-entries.ts'
import { desiredRows, type PeerRow, subnetsOf } from './kernel-vtep-plan.ts'
import { refuseNetworkOverlap } from './network-overlap.ts'
import { allPending, NOTHING_PENDING, type Pending, UNDERLAY_GONE } from './pending.ts'

export interface KernelVtepOptions {
  readonly log: Log
  /** Outer UDP checksum over IPv4: `udpcsum` (default, as flannel) or `noudpcsum`. */
  readonly udpChecksum?: boolean
  /** Namespace in which the device lives; absent: this process's own. */
  readonly namespace?: string
  readonly clock?: Clock
  /** Stands in for the kernel's tables in tests. */
  readonly tables?: KernelTables
  /** Stands in for the host's interfaces in tests. */
  readonly carries?: typeof carriesAddress
}

/** @throws FlanneletteError `config-invalid` */
function requireVxlan({ encapsulation }: VtepOutline): void {
  if (encapsulation === 'vxlan') return
  throw new FlanneletteError('config-invalid', `the kernel has no tunnel for the ${encapsulation} backend`, {
    remedy: 'use --dataplane userspace, or the vxlan backend',
  })
}

/** What concerns the device, or a route: both may be of others' doing. */
function ringOnDevice(device: string) {
  const objects = ['link', 'address', 'route', 'neigh']
  return (ring: () => void) => ringOnChanges(ring, { objects, concerns: (line) => !isElsewhere(line, device) })
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
  /** `null` before the start. */
  #entries: VtepEntries | null = null
  readonly #allPending = lastResult((rows: readonly PeerRow[], why: string) => allPending(subnetsOf(rows), why))
  #generation = 0
  #watch: ChangeWatch | null = null
  #unseen: string | null = null
  /** Of work on device and tables. */
  readonly #turns = new Turns()
  #stopped = true

  constructor(options: KernelVtepOptions) {
    this.#options = options
    this.#log = options.log
    this.#clock = options.clock ?? systemClock()
  }

  async prepare(outline: VtepOutline): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    requireVxlan(outline)
    if (this.#options.tables !== undefined) return
    requireNetworkAdmin(outline.deviceName)
    await refuseNetworkOverlap(outline, { namespace })
    await probeKernelDevice(outline, udpChecksum, { namespace })
  }

  /** @throws FlanneletteError `device-foreign`, `port-busy`, `not-permitted`, `host-command` */
  async start(local: LocalVtep): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    this.#device = local.deviceName
    let { tables } = this.#options
    if (tables === undefined) {
      this.#tellOfNew(await ensureKernelDevice(local, udpChecksum, { namespace }))
      const carried = { ipv4: local.network !== null, ipv6: local.ipv6Network !== null }
      tables = kernelTables(local.deviceName, carried, { namespace })
    }
    const [device, onRetry] = [local.deviceName, () => void this.#pass('retry')]
    this.#entries = new VtepEntries({ log: this.#log, clock: this.#clock, tables, device, onRetry })
    this.#local = local
    this.#stopped = false
    if (this.#looksAtDevice) {
      const isIntact = () => !this.#lacks('overlay')
      const mend = () => this.#turns.take(() => this.#mend())
      this.#watch = new ChangeWatch({ clock: this.#clock, doorbell: ringOnDevice(local.deviceName), isIntact, mend })
    }
  }

  #tellOfNew({ what, why }: DeviceWork): void {
    if (what !== 'made-anew') return
    const message = `${this.#device} did not fit and is made anew (${why.join('; ')}): packets of a moment are lost`
    this.#log.warn('device-recreated', message)
  }

  /** The kernel changes the address of a device that is there; only where it does not, the device is made anew. */
  moveUnderlay(local: LocalVtep): Promise<void> {
    return this.#turns.take(() => this.#moveNow(local))
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
    this.#entries?.forget() // what is made anew has lost them
    await this.#entries?.pass('underlay moved')
  }

  changeMtu(local: LocalVtep): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    return this.#turns.take(async () => {
      await ensureKernelDevice(local, udpChecksum, { namespace })
      this.#local = local
    })
  }

  async replacePeers(peers: readonly Lease[], cause: string): Promise<number> {
    if (this.#local === null || this.#entries === null) throw new Error('the dataplane is not started')
    this.#entries.want(desiredRows(peers, this.#local))
    const generation = ++this.#generation
    await this.#pass(cause)
    return generation
  }

  counters(): Readonly<Record<string, number>> {
    return this.#options.namespace === undefined ? deviceCounters(this.#device) : {}
  }

  impairment(): string | null {
    if (this.#lacks('underlay')) return UNDERLAY_GONE
    return this.#lacks('overlay') ? 'the overlay device is gone, down or lacks its address' : null
  }

  unseen(): string | null {
    return this.#unseen ?? this.#entries?.unseen ?? null
  }

  /** Only this process's own namespace can be looked at without a program. */
  get #looksAtDevice(): boolean {
    const { namespace, tables } = this.#options
    return namespace === undefined && tables === undefined
  }

  /** False as well where there is nothing to look at: in another namespace, and before the start. */
  #lacks(side: 'overlay' | 'underlay'): boolean {
    const local = this.#local
    const { carries = this.#looksAtDevice ? carriesAddress : null } = this.#options
    if (local === null || carries === null) return false
    const { deviceName, overlayAddress, underlayInterface, underlayAddress } = local
    return side === 'overlay' ? !carries(deviceName, overlayAddress) : !carries(underlayInterface, underlayAddress)
  }

  pendingSubnets(): Pending {
    const [entries, why] = [this.#entries, this.impairment()]
    if (entries === null) return NOTHING_PENDING
    return why === null ? entries.pending : this.#allPending(entries.rows, why)
  }

  /** Worth a word only while somebody else's route takes packets from the tunnel. */
  ways(): ReadonlyMap<string, PeerWay> | null {
    const { rows = [], partTaken = new Map<string, string>() } = this.#entries ?? {}
    return tunnelWays(subnetsOf(rows), partTaken)
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.#stopped = true
    this.#entries?.stop()
    this.#watch?.stop()
    await this.#turns.ended()
    if (mode === 'remove' && this.#options.tables === undefined) {
      const { namespace } = this.#options
      // Gone already is as good as removed.
      await batchEach('ip', [`link delete dev ${this.#device}`], { namespace })
    }
  }

  #pass(cause: string): Promise<void> {
    return this.#turns.take(async () => this.#entries?.pass(cause))
  }

  /** What a start would do to the device is done again; with a device the kernel takes its entries and routes away. */
  async #mend(): Promise<void> {
    const local = this.#local
    if (local === null || this.#stopped) return
    try {
      const { what, why } = await ensureKernelDevice(local, this.#options.udpChecksum ?? true, {})
      this.#unseen = null
      if (what !== 'kept') {
        const fields = { work: what, ...(why.length === 0 ? {} : { why: why.join('; ') }) }
        this.#log.warn('device-restored', `${this.#device} was changed by somebody else and is as it was again`, fields)
        this.#entries?.forget()
      }
    } catch (error) {
      this.#unseen = error instanceof FlanneletteError ? error.message : String(error)
      this.#log.error('device-lost', error instanceof FlanneletteError ? error.oneLine : String(error))
      this.#watch?.ring()
      return
    }
    await this.#entries?.pass('changed by somebody else')
  }
}
