// The dataplane that moves no packet itself: it makes the kernel's `flannel.<VNI>` and lets the kernel forward. Here are
// its device and its life; kernel-vtep-entries.ts keeps the entries of peers. What somebody takes away or changes of
// device, routes or entries comes back (kernel-vtep-watch.ts says when that is looked for).
import { formatAddress } from '../../dataplane/index.ts'
import { type Clock, systemClock } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { requireNetworkAdmin } from './capability.ts'
import { carriesAddress } from './carried-address.ts'
import type { Dataplane, LocalVtep, PeerWay, VtepOutline } from './dataplane.ts'
import { tunnelWays } from './foreign-routes.ts'
import { batchEach } from './ip.ts'
import { deviceCounters, type KernelTables, kernelTables } from './kernel-tables.ts'
import { type DeviceWork, ensureKernelDevice, probeKernelDevice } from './kernel-vtep-device.ts'
import { VtepEntries } from './kernel-vtep-entries.ts'
import { desiredRows, subnetRowsOf } from './kernel-vtep-plan.ts'
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
  /** `null` before the start. */
  #entries: VtepEntries | null = null
  #generation = 0
  #watch: VtepWatch | null = null
  /** Work on device and tables never overlaps: each waits for the one before. */
  #tail: Promise<void> = Promise.resolve()
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
    this.#entries?.forget() // what is made anew has lost them
    await this.#entries?.pass('underlay moved')
  }

  changeMtu(local: LocalVtep): Promise<void> {
    const { namespace, udpChecksum = true } = this.#options
    return this.#inTurn(async () => {
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
    if (pending.size === 0) return 0
    const rows = this.#entries?.rows ?? []
    return rows.filter((row) => subnetRowsOf(row).some(({ subnet }) => pending.has(subnet))).length
  }

  /** None is reached without the device. */
  pendingSubnets(): ReadonlySet<string> {
    return new Set(this.#lacks('overlay') ? this.#subnets : this.#entries?.pending.keys())
  }

  /** Worth a word only while somebody else's route keeps packets from the tunnel. */
  ways(): ReadonlyMap<string, PeerWay> | null {
    const { pending = [], partTaken = [] } = this.#entries ?? {}
    const trouble = new Map<string, PeerWay>()
    for (const [subnet, why] of partTaken) trouble.set(subnet, { way: 'tunnel', why })
    for (const [subnet, why] of pending) if (isForeignRoute(why)) trouble.set(subnet, { way: 'none', why })
    return tunnelWays(this.#subnets, trouble)
  }

  /** All that peers have. */
  get #subnets(): readonly string[] {
    return (this.#entries?.rows ?? []).flatMap(subnetRowsOf).map(({ subnet }) => subnet)
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.#stopped = true
    this.#entries?.stop()
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
    return this.#inTurn(async () => this.#entries?.pass(cause))
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
        this.#entries?.forget()
      }
    } catch (error) {
      this.#log.error('device-lost', error instanceof FlanneletteError ? error.oneLine : String(error))
      return
    }
    await this.#entries?.pass('changed by somebody else')
  }
}
