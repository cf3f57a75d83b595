// The userspace dataplane as the daemon sees it: a TUN, a UDP socket and a worker between them. Everything that can be
// refused is tried before anything is left behind.
import {
  type Feature,
  formatAddress,
  formatPrefix,
  keepOverlayDevice,
  mergeTraffic,
  type Offender,
  type OpenTun,
  type OuterDf,
  type PeerTraffic,
  type RecordedStep,
  type UnderlayAddress,
  type WorkerDriver,
  WorkerGroup,
  type WorkerReport,
} from '../../dataplane/index.ts'
import { tunnelOf } from '../config/mtu.ts'
import type { RunOptions } from '../config/options.ts'
import { FlanneletteError } from '../errors.ts'
import { requireNetworkAdmin } from '../host/capability.ts'
import { carriesAddress } from '../host/carried-address.ts'
import type { Dataplane, LocalVtep, VtepOutline } from '../host/dataplane.ts'
import { refuseNetworkOverlap } from '../host/network-overlap.ts'
import { removeOverlayLink } from '../host/overlay-link.ts'
import { halvesOf, type Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { findOwnVtep, REHEARSAL_DEVICE, removeOwnVtep } from './changeover.ts'
import { findFeatures } from './driver-features.ts'
import { engineSettings } from './engine-settings.ts'
import { FeatureReport } from './feature-report.ts'
import { forwardingEntries } from './forwarding-entries.ts'
import { closeAll, dress, isDressed, openDevice, refuseGroupPolicy, transmitDropped } from './overlay-device.ts'
import { RecentOffenders } from './recent-offenders.ts'
import { closeSockets, entropyOf, openSockets, socketsOfWorker, type UnderlaySockets } from './underlay-sockets.ts'

/** How often the device is looked at, milliseconds: one that is lost, or lost its address or route, is mended then. */
const TEND_MS = 1000

export interface UserspaceOptions
  extends Pick<
    RunOptions,
    'driver' | 'udpGso' | 'tunOffload' | 'outerDf' | 'sourceCheck' | 'sourceAllow' | 'workers' | 'sourcePorts'
  > {
  readonly log: Log
  /** Workers stood still for so many milliseconds of CLOCK_MONOTONIC; whether they may go on. Absent: they may. */
  readonly onStandstill?: (standstillMs: number) => Promise<boolean>
}

export class UserspaceDataplane implements Dataplane {
  readonly kind = 'userspace'
  readonly driver: WorkerDriver
  readonly outerDf: OuterDf
  readonly #options: UserspaceOptions
  readonly #report: FeatureReport
  readonly #offenders: RecentOffenders
  #local: LocalVtep | null = null
  #workers: WorkerGroup | null = null
  #tuns: readonly OpenTun[] = []
  /** A former run has left the kernel's VTEP under our device's name. */
  #replacesVtep = false
  #sockets: UnderlaySockets | null = null
  #peers: readonly Lease[] = []
  /** Of the table in force, 0 before the first. */
  #generation = 0
  /** What workers counted that are gone for good. */
  #counted: Readonly<Record<string, number>> = {}
  /** The books as they were closed. */
  #lastCounters: Readonly<Record<string, number>> = {}
  /** Of workers that are gone for good. */
  #pastTraffic: ReadonlyMap<UnderlayAddress, PeerTraffic> | null = null
  #pastRestarts: readonly number[] = []
  /** Set while the device is gone or does not get the network's packets. */
  #broken: 'gone' | 'bare' | null = null
  /** What keeps it from being mended; empty where that is not known. */
  #obstacle = ''
  /** The underlay address is not on its interface: nothing can be sent from it. */
  #adrift = false
  #tendTimer: NodeJS.Timeout | null = null
  #tending: Promise<void> | null = null

  constructor(options: UserspaceOptions) {
    this.driver = options.driver
    this.outerDf = options.outerDf
    this.#options = options
    this.#report = new FeatureReport(options.log)
    this.#offenders = new RecentOffenders(options.log)
  }

  /**
   * Sockets and device are held from here on: a device made here goes with the process until `start` has dressed it.
   */
  async prepare(outline: VtepOutline): Promise<void> {
    requireNetworkAdmin(outline.deviceName)
    refuseGroupPolicy(outline)
    await refuseNetworkOverlap(outline)
    try {
      this.#replacesVtep = await findOwnVtep(outline)
      if (this.#replacesVtep) await closeAll(await this.#openDevice(REHEARSAL_DEVICE))
      else await this.#open(outline)
    } catch (error) {
      await this.stop('keep')
      throw error
    }
  }

  async #open(outline: VtepOutline): Promise<void> {
    this.#sockets = await openSockets(outline, this.#options, this.#options.log)
    this.#tuns = await this.#openDevice(outline.deviceName)
  }

  async start(local: LocalVtep): Promise<void> {
    if (this.#replacesVtep) {
      await removeOwnVtep(local.deviceName, this.#options.log)
      await this.#open(local)
    }
    const sockets = this.#sockets
    if (this.#tuns.length === 0 || sockets === null) throw new Error('the dataplane is not prepared')
    this.#local = local
    await dress(local)
    const { maxSegments } = await this.#startWorkers(local, sockets)
    // Only what works outlives us.
    await keepOverlayDevice(this.#tuns[0]!.fd, true)
    const { receivesMerged, receiveBufferBytes } = sockets.receiving[0]!
    const facts = { driver: this.driver, workers: this.#tuns.length, entropy: this.entropy }
    const fields = { ...facts, offloads: this.#tuns[0]!.offloads, maxSegments, receivesMerged, receiveBufferBytes }
    this.#options.log.info('dataplane-started', `userspace dataplane on ${local.deviceName}`, fields)
    this.#tendLater()
  }

  async #startWorkers(local: LocalVtep, sockets: UnderlaySockets): Promise<{ maxSegments: number }> {
    const ends = { tun: this.#tuns[0]!, receiving: sockets.receiving, underlayAddress: local.underlayAddress }
    const { maxSegments, features } = await findFeatures(this.#options, ends)
    this.#report.begin(features, this.#counted)
    this.#workers = await WorkerGroup.start({
      driver: this.driver,
      queues: this.#tuns.map(({ fd }, index) => ({ tunFd: fd, ...socketsOfWorker(sockets, index) })),
      senderFds: sockets.sendingFds,
      underlayAddress: local.underlayAddress,
      rawPorts: sockets.rawPorts,
      maxSegments,
      encapsulation: tunnelOf(local.encapsulation),
      vni: local.vni,
      mac: local.mac,
      settings: engineSettings(local, this.#options, features),
      // Workers made anew go on with the table of those before: it keeps its number.
      generation: Math.max(this.#generation - 1, 0),
      onReport: (report) => this.#hear(report),
      onDeath: (error, delayMs) => this.#mourn(error, delayMs),
    })
    return { maxSegments }
  }

  /**
   * New sockets first, since they may be refused; then workers that use them, with device and peers of the old ones.
   */
  async moveUnderlay(local: LocalVtep): Promise<void> {
    if (this.#tuns.length === 0) throw new Error('the dataplane is not started')
    const opened = await openSockets(local, this.#options, this.#options.log)
    await this.#stopTending()
    try {
      await this.#stopWorkers()
      await this.#closeSockets()
      this.#sockets = opened
      this.#local = local
      this.#adrift = false
      await this.#startWorkers(local, opened)
      await this.replacePeers(this.#peers, 'underlay moved')
    } catch (error) {
      await this.#closeSockets() // for the next call to open
      throw error
    } finally {
      this.#tendLater()
    }
  }

  /** Packets of the former size still pass: a device grows after the workers, and shrinks before them. */
  async changeMtu(local: LocalVtep): Promise<void> {
    const [workers, before] = [this.#workers, this.#local]
    if (workers === null || before === null) throw new Error('the dataplane is not started')
    await this.#stopTending()
    try {
      if (local.mtuBytes > before.mtuBytes) await workers.setMtu(local.mtuBytes)
      this.#local = local
      await dress(local)
      await workers.setMtu(local.mtuBytes)
      this.#report.tryAgain(this.#workerCounters())
    } finally {
      this.#tendLater()
    }
  }

  async #stopTending(): Promise<void> {
    await this.#tending
    if (this.#tendTimer !== null) clearTimeout(this.#tendTimer)
  }

  async #closeSockets(): Promise<void> {
    if (this.#sockets !== null) await closeSockets(this.#sockets)
    this.#sockets = null
  }

  async #stopWorkers(): Promise<void> {
    await this.#workers?.stop()
    this.#lastCounters = this.counters()
    this.#counted = this.#workerCounters()
    this.#pastTraffic = this.traffic()
    this.#pastRestarts = this.workerRestarts()
    this.#workers = null
  }

  #workerCounters(): Readonly<Record<string, number>> {
    const total: Record<string, number> = { ...this.#counted }
    for (const [name, value] of Object.entries(this.#workers?.counters() ?? {}))
      total[name] = (total[name] ?? 0) + value
    return total
  }

  #openDevice(deviceName: string): Promise<readonly OpenTun[]> {
    const { workers, tunOffload, log } = this.#options
    return openDevice(deviceName, { workers, header: this.driver !== 'plain', tunOffload }, log)
  }

  /** By what the underlay can tell flows apart. */
  get entropy(): string {
    return this.#sockets === null ? 'none' : entropyOf(this.#sockets)
  }

  async replacePeers(peers: readonly Lease[], _cause: string): Promise<number> {
    if (this.#workers === null || this.#local === null) throw new Error('the dataplane is not started')
    this.#peers = peers
    this.#generation = await this.#workers.replaceTable(forwardingEntries(peers, this.#local))
    return this.#generation
  }

  counters(): Readonly<Record<string, number>> {
    if (this.#workers === null || this.#local === null) return this.#lastCounters
    const { 'socket.overflowed': overflowed = 0, ...counters } = this.#workerCounters()
    this.#report.look(counters)
    return {
      ...counters,
      ...this.#report.counters(),
      // What the kernel lost before we read it: never part of "read", so not among the drops.
      'outbound.lost.tun-queue-full': transmitDropped(this.#local.deviceName),
      'inbound.lost.rx-queue-full': overflowed,
      'downgrade.source-ports': this.#sockets?.missingPorts ?? 0,
    }
  }

  traffic(): ReadonlyMap<UnderlayAddress, PeerTraffic> | null {
    const traffic = this.#workers?.traffic()
    if (traffic === undefined) return this.#pastTraffic
    mergeTraffic(traffic, this.#pastTraffic ?? new Map())
    return traffic
  }

  pathLimits(): ReadonlyMap<UnderlayAddress, number> {
    return this.#workers?.pathLimits() ?? new Map()
  }

  workerRestarts(): readonly number[] {
    const restarts = this.#workers?.restarts().map((times, worker) => times + (this.#pastRestarts[worker] ?? 0))
    return restarts ?? this.#pastRestarts
  }

  features(): readonly Feature[] {
    return this.#report.features
  }

  offenders(): readonly Offender[] {
    return this.#offenders.list
  }

  impairment(): string | null {
    if (this.#broken !== null) return this.#obstacle || 'the overlay device is gone or lacks its route'
    return this.#adrift ? 'the underlay address is gone' : null
  }

  /** The engine takes all peers at once; none is reached without the device. */
  pendingPeers(): number {
    return this.impairment() === null ? 0 : this.#peers.length
  }

  pendingSubnets(): ReadonlySet<string> {
    return new Set(this.impairment() === null ? [] : this.#peers.flatMap(halvesOf).map(formatPrefix))
  }

  /** Whether there is something to trace. */
  get isStarted(): boolean {
    return this.#workers !== null
  }

  /** Records at most `steps` steps of the engine; see WorkerGroup.trace. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    this.#workers?.trace(steps, onSteps)
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    await this.#stopTending()
    await this.#stopWorkers()
    if (mode === 'remove' && this.#local !== null) await removeOverlayLink(this.#local.deviceName)
    await closeAll(this.#tuns)
    await this.#closeSockets()
    this.#tuns = []
  }

  #hear(report: WorkerReport): void {
    if (report.type === 'device-failed') {
      if (this.#broken === 'gone') return // another worker has said so
      this.#options.log.error('device-lost', `reading ${this.#local?.deviceName} failed (errno ${report.errno})`)
      this.#broken = 'gone'
    } else if (report.type === 'socket-failed') {
      this.#options.log.error('socket-failed', `receiving failed (errno ${report.errno})`)
    } else if (report.type === 'woke') {
      void this.#goOn(report.standstillMs)
    } else if (report.type === 'offenders') {
      this.#offenders.note(report.offenders)
    }
  }

  async #goOn(standstillMs: number): Promise<void> {
    const { onStandstill } = this.#options
    if (onStandstill === undefined || (await onStandstill(standstillMs))) this.#workers?.go()
  }

  #mourn(error: Error, delayMs: number): void {
    const next = delayMs === 0 ? 'the next one takes over' : `the next one takes over in ${delayMs} ms`
    this.#options.log.error('worker-died', `a dataplane worker died, ${next}: ${error.message}`)
  }

  #tendLater(): void {
    this.#tendTimer = setTimeout(() => {
      this.#tendTimer = null
      this.#tending = this.#tend().finally(() => {
        this.#tending = null
        this.#tendLater()
      })
    }, TEND_MS)
  }

  /** Somebody else may delete the device, set it down or flush it; what a start would do to it is then done again. */
  async #tend(): Promise<void> {
    const { log } = this.#options
    const local = this.#local
    if (this.#workers === null || local === null) return
    this.#lookForAddress(local)
    try {
      if (this.#broken !== 'gone') this.#broken = (await isDressed(local)) ? null : 'bare'
      if (this.#broken === null) return
      if (this.#broken === 'gone') await this.#reopen(local)
      else await this.#redress(local)
      log.warn('device-restored', `${local.deviceName} was changed by somebody else and is as it was again`)
    } catch (error) {
      this.#obstacle = error instanceof FlanneletteError && error.code === 'network-overlap' ? error.message : ''
      log.error('device-lost', error instanceof FlanneletteError ? error.oneLine : String(error))
    }
  }

  /** Told when it changes, not once a second. */
  #lookForAddress({ underlayInterface, underlayAddress }: LocalVtep): void {
    const { log } = this.#options
    const adrift = !carriesAddress(underlayInterface, underlayAddress)
    if (adrift === this.#adrift) return
    this.#adrift = adrift
    const address = formatAddress(underlayAddress)
    if (adrift) {
      log.warn('underlay-lost', `${underlayInterface} is down or has lost its address ${address}: no peer is reached`)
    } else {
      log.info('underlay-back', `${underlayInterface} has its address ${address} again`)
    }
  }

  async #reopen(local: LocalVtep): Promise<void> {
    const lost = this.#tuns
    const opened = await this.#openDevice(local.deviceName)
    try {
      await dress(local)
    } catch (error) {
      await closeAll(opened)
      throw error
    }
    await keepOverlayDevice(opened[0]!.fd, true)
    this.#tuns = opened
    this.#broken = null // from here on a worker may find the new one gone as well
    this.#workers?.replaceDevice(opened.map(({ fd }) => fd))
    await closeAll(lost)
  }

  async #redress(local: LocalVtep): Promise<void> {
    await dress(local)
    // Unless the worker has found it gone meanwhile.
    if (this.#broken === 'bare') this.#broken = null
  }
}
