// The userspace dataplane as the daemon sees it: a TUN (tended-device.ts), UDP sockets (underlay-sockets.ts), workers
// between them, and what these count (worker-books.ts). Everything that can be refused is tried before anything is left
// behind. The host is looked at whenever something on it has changed: others may have been at device, address or routes.
import {
  type OuterDf,
  type RecordedStep,
  type WorkerDriver,
  WorkerGroup,
  type WorkerReport,
} from '../../dataplane/index.ts'
import { tunnelOf } from '../config/mtu.ts'
import type { RunOptions } from '../config/options.ts'
import { requireNetworkAdmin } from '../host/capability.ts'
import { ChangeWatch } from '../host/change-watch.ts'
import type { Dataplane, LocalVtep, PeerWay, VtepOutline } from '../host/dataplane.ts'
import type { RouteTools } from '../host/host-gateway.ts'
import { refuseNetworkOverlap } from '../host/network-overlap.ts'
import { removeOverlayLink } from '../host/overlay-link.ts'
import { allCarried } from '../host/peer-route-plan.ts'
import { type Pending, UNDERLAY_GONE } from '../host/pending.ts'
import { lastResult } from '../last-result.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { Turns } from '../turns.ts'
import { findOwnVtep, REHEARSAL_DEVICE, removeOwnVtep } from './changeover.ts'
import { findFeatures } from './driver-features.ts'
import { engineSettings } from './engine-settings.ts'
import { ForeignRouteWatch } from './foreign-route-watch.ts'
import { forwardingEntries } from './forwarding-entries.ts'
import { dress, refuseGroupPolicy, transmitDropped } from './overlay-device.ts'
import { TendedDevice } from './tended-device.ts'
import { UnderlayPresence } from './underlay-presence.ts'
import { closeSockets, entropyOf, openSockets, socketsOfWorker, type UnderlaySockets } from './underlay-sockets.ts'
import { WorkerBooks } from './worker-books.ts'

const STANDS_STILL = 'the engine stands still: it could not go on with another underlay address'

export interface UserspaceOptions
  extends Pick<
    RunOptions,
    'driver' | 'udpGso' | 'tunOffload' | 'outerDf' | 'sourceCheck' | 'sourceAllow' | 'workers' | 'sourcePorts'
  > {
  readonly tools: Pick<RouteTools, 'log' | 'clock' | 'table' | 'doorbell'>
  /** Workers stood still for so many milliseconds of CLOCK_MONOTONIC; whether they may go on. Absent: they may. */
  readonly onStandstill?: (standstillMs: number) => Promise<boolean>
}

export class UserspaceDataplane implements Dataplane {
  readonly kind = 'userspace'
  readonly driver: WorkerDriver
  readonly outerDf: OuterDf
  readonly #options: UserspaceOptions
  readonly #log: Log
  readonly books: WorkerBooks
  readonly #device: TendedDevice
  readonly #presence: UnderlayPresence
  readonly #foreign: ForeignRouteWatch
  #local: LocalVtep | null = null
  #workers: WorkerGroup | null = null
  /** A former run has left the kernel's VTEP under our device's name. */
  #replacesVtep = false
  #sockets: UnderlaySockets | null = null
  /** Resolves when no move is under way. */
  #moved: Promise<void> = Promise.resolve()
  /** A move has failed half-way: there are no workers until the next one. */
  #standsStill = false
  #peers: readonly Lease[] = []
  readonly #allPending = lastResult(allCarried)
  /** Of the table in force, 0 before the first. */
  #generation = 0
  /** As they were when the workers ended. */
  #lastCounters: Readonly<Record<string, number>> = {}
  /** `null` while there is nothing to look after. */
  #watch: ChangeWatch | null = null
  /** The host is not looked at while the dataplane moves. */
  readonly #turns = new Turns()

  constructor(options: UserspaceOptions) {
    this.driver = options.driver
    this.outerDf = options.outerDf
    const { workers, tunOffload, tools } = options
    const { log, table } = tools
    this.#options = options
    this.#log = log
    this.books = new WorkerBooks(log)
    this.#device = new TendedDevice({ workers, header: options.driver !== 'plain', tunOffload }, log)
    this.#presence = new UnderlayPresence(log)
    this.#foreign = new ForeignRouteWatch({ table, log })
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
      if (this.#replacesVtep) await this.#device.rehearse(REHEARSAL_DEVICE)
      else await this.#open(outline)
    } catch (error) {
      await this.stop('keep')
      throw error
    }
  }

  async #open(outline: VtepOutline): Promise<void> {
    this.#sockets = await openSockets(outline, this.#options, this.#log)
    await this.#device.open(outline.deviceName)
  }

  async start(local: LocalVtep): Promise<void> {
    if (this.#replacesVtep) {
      await removeOwnVtep(local.deviceName, this.#log)
      await this.#open(local)
    }
    const sockets = this.#sockets
    const [tun] = this.#device.queues
    if (tun === undefined || sockets === null) throw new Error('the dataplane is not prepared')
    this.#local = local
    await dress(local)
    const { maxSegments } = await this.#startWorkers(local, sockets)
    await this.#device.keep()
    const { receivesMerged, receiveBufferBytes } = sockets.receiving[0]!
    const facts = { driver: this.driver, workers: this.#device.queues.length, entropy: this.entropy }
    const fields = { ...facts, offloads: tun.offloads, maxSegments, receivesMerged, receiveBufferBytes }
    this.#log.info('dataplane-started', `userspace dataplane on ${local.deviceName}`, fields)
    this.#tend()
  }

  async #startWorkers(local: LocalVtep, sockets: UnderlaySockets): Promise<{ maxSegments: number }> {
    const { queues } = this.#device
    const ends = { tun: queues[0]!, receiving: sockets.receiving, underlayAddress: local.underlayAddress }
    const { maxSegments, features } = await findFeatures(this.#options, ends)
    this.books.begin(features)
    this.#workers = await WorkerGroup.start({
      driver: this.driver,
      queues: queues.map(({ fd }, index) => ({ tunFd: fd, ...socketsOfWorker(sockets, index) })),
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
    this.books.open(this.#workers)
    return { maxSegments }
  }

  /**
   * New sockets first, since they may be refused; then workers that use them, with device and peers of the old ones.
   */
  moveUnderlay(local: LocalVtep): Promise<void> {
    const done = this.#turns.take(() => this.#moveNow(local)).finally(() => this.#watch?.ring())
    this.#moved = done.catch(() => {})
    return done
  }

  async #moveNow(local: LocalVtep): Promise<void> {
    if (this.#device.queues.length === 0) throw new Error('the dataplane is not started')
    const [before, opened] = [this.#local, await openSockets(local, this.#options, this.#log)]
    try {
      await this.#stopWorkers()
      await this.#closeSockets()
      this.#sockets = opened
      this.#local = local
      this.#presence.forget()
      await this.#startWorkers(local, opened)
      await this.#replaceNow(this.#peers)
      this.#standsStill = false
    } catch (error) {
      this.#standsStill = true
      this.#local = before
      await this.#stopWorkers()
      await this.#closeSockets() // for the next call to open
      throw error
    }
  }

  /** Packets of the former size still pass: a device grows after the workers, and shrinks before them. */
  changeMtu(local: LocalVtep): Promise<void> {
    return this.#turns.take(() => this.#changeMtuNow(local)).finally(() => this.#watch?.ring())
  }

  async #changeMtuNow(local: LocalVtep): Promise<void> {
    const [workers, before] = [this.#workers, this.#local]
    if (workers === null || before === null) throw new Error('the dataplane is not started')
    if (local.mtuBytes > before.mtuBytes) await workers.setMtu(local.mtuBytes)
    this.#local = local
    await dress(local)
    await workers.setMtu(local.mtuBytes)
    this.books.tryAgain()
  }

  async #closeSockets(): Promise<void> {
    if (this.#sockets !== null) await closeSockets(this.#sockets)
    this.#sockets = null
  }

  async #stopWorkers(): Promise<void> {
    await this.#workers?.stop()
    this.#lastCounters = this.counters()
    this.books.close()
    this.#workers = null
  }

  /** By what the underlay can tell flows apart. */
  get entropy(): string {
    return this.#sockets === null ? 'none' : entropyOf(this.#sockets)
  }

  async replacePeers(peers: readonly Lease[], _cause: string): Promise<number> {
    await this.#moved // in between there are no workers to take them
    return this.#replaceNow(peers)
  }

  async #replaceNow(peers: readonly Lease[]): Promise<number> {
    if (this.#workers === null || this.#local === null) throw new Error('the dataplane is not started')
    this.#peers = peers
    this.#watch?.ring() // others' routes may be in the way of new ones
    this.#generation = await this.#workers.replaceTable(forwardingEntries(peers, this.#local))
    return this.#generation
  }

  counters(): Readonly<Record<string, number>> {
    if (this.#workers === null || this.#local === null) return this.#lastCounters
    return {
      ...this.books.counters(),
      // As with the receive queue: lost before we read it.
      'outbound.lost.tun-queue-full': transmitDropped(this.#local.deviceName),
      'downgrade.source-ports': this.#sockets?.missingPorts ?? 0,
    }
  }

  impairment(): string | null {
    if (this.#presence.isLost) return UNDERLAY_GONE
    return this.#standsStill ? STANDS_STILL : this.#device.impairment()
  }

  unseen(): string | null {
    return this.#device.unseen ?? this.#foreign.unseen
  }

  /** The engine takes all peers at once: only others' routes lead some of them away. */
  pendingSubnets(): Pending {
    const [local, why] = [this.#local, this.impairment()]
    return why === null || local === null ? this.#foreign.lost : this.#allPending(this.#peers, local, why)
  }

  /** Worth a word only while somebody else's route takes packets from the tunnel. */
  ways(): ReadonlyMap<string, PeerWay> | null {
    return this.#foreign.ways()
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
    this.#watch?.stop()
    await this.#turns.ended()
    await this.#stopWorkers()
    if (mode === 'remove' && this.#local !== null) await removeOverlayLink(this.#local.deviceName)
    await this.#device.close()
    await this.#closeSockets()
  }

  #hear(report: WorkerReport): void {
    if (report.type === 'device-failed') {
      this.#device.lose(this.#local?.deviceName ?? '', report.errno)
    } else if (report.type === 'socket-failed') {
      this.#log.error('socket-failed', `receiving failed (errno ${report.errno})`)
    } else if (report.type === 'woke') {
      void this.#goOn(report.standstillMs)
    } else if (report.type === 'offenders') {
      this.books.noteOffenders(report.offenders)
    }
  }

  async #goOn(standstillMs: number): Promise<void> {
    const { onStandstill } = this.#options
    if (onStandstill === undefined || (await onStandstill(standstillMs))) this.#workers?.go()
  }

  #mourn(error: Error, delayMs: number): void {
    const next = delayMs === 0 ? 'the next one takes over' : `the next one takes over in ${delayMs} ms`
    this.#log.error('worker-died', `a dataplane worker died, ${next}: ${error.message}`)
  }

  #tend(): void {
    const { clock, doorbell } = this.#options.tools
    const isIntact = () => this.impairment() === null
    this.#watch = new ChangeWatch({ clock, doorbell, isIntact, mend: () => this.#turns.take(() => this.#look()) })
    this.#watch.ring() // the bell may have missed what happened in the meantime
  }

  async #look(): Promise<void> {
    const [workers, local] = [this.#workers, this.#local]
    if (local === null) return
    // Where it was before the move; where it was to go the next move tries.
    if (this.#standsStill) return this.#moveNow(local).catch(() => {})
    if (workers === null) return
    this.#presence.look(local)
    const isDeviceSeen = await this.#device.mend(local, (fds) => workers.replaceDevice(fds))
    const areRoutesSeen = await this.#foreign.look(local, this.#peers)
    if (!isDeviceSeen || !areRoutesSeen) this.#watch?.ring()
  }
}
