// The userspace dataplane as the daemon sees it: a TUN, a UDP socket and a worker between them. Everything that can be
// refused is tried before anything is left behind.
import { readFileSync } from 'node:fs'
import { release } from 'node:os'
import {
  chooseUnderlayFeatures,
  closeDescriptor,
  DataplaneWorker,
  errno,
  type Feature,
  type FeatureName,
  formatIpv4,
  keepOverlayDevice,
  type OpenTun,
  type OpenUdpSocket,
  openOverlayDevice,
  openUnderlaySocket,
  type RecordedStep,
  receiveDatagramsOneByOne,
  type SourceCheckMode,
  type TunFailure,
  type UdpGsoMode,
  type WorkerDriver,
  type WorkerReport,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { configureOverlayLink, inspectOverlayDevice, removeOverlayLink } from '../host/overlay-link.ts'
import { hasRoute } from '../host/proc-route.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import type { Dataplane, LocalVtep } from './dataplane.ts'
import { joiningFeatures, plainSocketFeatures } from './driver-features.ts'
import { FeatureReport } from './feature-report.ts'
import { forwardingEntries } from './forwarding-entries.ts'

/** How often the device is looked at, milliseconds: one that is lost, or lost its address or route, is mended then. */
const TEND_MS = 1000

export interface UserspaceOptions {
  readonly log: Log
  readonly driver: WorkerDriver
  readonly udpGso: UdpGsoMode
  /** Whether super-packets and open checksums may cross the device. */
  readonly tunOffload: boolean
  readonly sourceCheck: SourceCheckMode
}

export class UserspaceDataplane implements Dataplane {
  readonly kind = 'userspace'
  readonly driver: WorkerDriver
  readonly #options: UserspaceOptions
  readonly #report: FeatureReport
  #local: LocalVtep | null = null
  #worker: DataplaneWorker | null = null
  #tun: OpenTun | null = null
  #socket: OpenUdpSocket | null = null
  #peerCount = 0
  /** Set while the device is gone or does not get the network's packets. */
  #broken: 'gone' | 'bare' | null = null
  #tendTimer: NodeJS.Timeout | null = null
  #tending: Promise<void> | null = null

  constructor(options: UserspaceOptions) {
    this.driver = options.driver
    this.#options = options
    this.#report = new FeatureReport(options.log)
  }

  async start(local: LocalVtep): Promise<void> {
    this.#local = local
    this.#socket = await openSocket(local)
    try {
      this.#tun = await this.#openDevice(local)
    } catch (error) {
      await closeDescriptor(this.#socket.fd)
      throw error
    }
    const { maxSegments, joins } = await this.#chooseFeatures(local, this.#tun, this.#socket)
    this.#worker = await DataplaneWorker.start({
      driver: this.driver,
      tunFd: this.#tun.fd,
      socketFd: this.#socket.fd,
      maxSegments,
      encapsulation: local.encapsulation,
      vni: local.vni,
      mac: local.mac,
      settings: {
        overlayAddress: local.overlayAddress,
        overlayIpv6: null,
        subnet: local.subnet,
        ipv6Subnet: null,
        countsHop: local.encapsulation === 'udp',
        mtuBytes: local.mtuBytes,
        sourceCheck: this.#options.sourceCheck,
        mergeTcp: joins('tun-gso-tcp4'),
        mergeUdp: joins('tun-gso-udp'),
      },
      onReport: (report) => this.#hear(report),
      onDeath: (error) => this.#options.log.error('worker-died', `the dataplane worker died: ${error.message}`),
    })
    const { receivesMerged, receiveBufferBytes } = this.#socket
    const fields = {
      driver: this.driver,
      offloads: this.#tun.offloads,
      maxSegments,
      receivesMerged,
      receiveBufferBytes,
    }
    this.#options.log.info('dataplane-started', `userspace dataplane on ${local.deviceName}`, fields)
    this.#tendLater()
  }

  /** Finds out what the kernel takes off our hands, and says so. */
  async #chooseFeatures(local: LocalVtep, tun: OpenTun, socket: OpenUdpSocket) {
    const { driver, udpGso } = this.#options
    const joining = joiningFeatures(this.#options, release())
    const joins = (name: FeatureName) => joining.some((feature) => feature.name === name && feature.on)
    if (driver === 'plain') {
      await receiveDatagramsOneByOne(socket.fd)
      this.#report.begin([...tun.features, ...joining, ...plainSocketFeatures()])
      return { maxSegments: 1, joins }
    }
    const { maxSegments, features } = await chooseUnderlayFeatures(local.underlayAddress, socket, udpGso)
    this.#report.begin([...tun.features, ...joining, ...features])
    return { maxSegments, joins }
  }

  /** Makes or finds the device, gives it address and route, and only then lets it outlive us. */
  async #openDevice(local: LocalVtep): Promise<OpenTun> {
    const { deviceName } = local
    const present = await inspectOverlayDevice(deviceName)
    if (present.kind === 'foreign') {
      throw new FlanneletteError('device-foreign', `${deviceName} is already there: ${present.what}`, {
        remedy: `remove it with "${present.removeCommand}" if nothing needs it`,
      })
    }
    const wishes = { header: this.driver !== 'plain', offloads: this.#options.tunOffload }
    const opened = await openOverlayDevice(deviceName, wishes)
    if ('step' in opened) throw tunError(deviceName, opened)
    try {
      await dress(local)
    } catch (error) {
      await closeDescriptor(opened.fd)
      throw error
    }
    await keepOverlayDevice(opened.fd, true)
    return opened
  }

  replacePeers(peers: readonly Lease[], _cause: string): Promise<number> {
    if (this.#worker === null || this.#local === null) throw new Error('the dataplane is not started')
    this.#peerCount = peers.length
    return this.#worker.replaceTable(forwardingEntries(peers, this.#local))
  }

  counters(): Readonly<Record<string, number>> {
    if (this.#worker === null || this.#local === null) return {}
    const { 'socket.overflowed': overflowed = 0, ...counters } = this.#worker.counters.snapshot()
    this.#report.look(counters)
    return {
      ...counters,
      ...this.#report.counters(),
      // What the kernel lost before we read it: never part of "read", so not among the drops.
      'outbound.lost.tun-queue-full': transmitDropped(this.#local.deviceName),
      'inbound.lost.rx-queue-full': overflowed,
    }
  }

  features(): readonly Feature[] {
    return this.#report.features
  }

  /** The engine takes all peers at once; none is reached without the device. */
  pendingPeers(): number {
    return this.#broken === null ? 0 : this.#peerCount
  }

  /** Records at most `steps` steps of the engine; see DataplaneWorker.trace. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    this.#worker?.trace(steps, onSteps)
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    if (this.#tendTimer !== null) clearTimeout(this.#tendTimer)
    await this.#tending
    await this.#worker?.stop()
    this.#worker = null
    if (mode === 'remove' && this.#local !== null) await removeOverlayLink(this.#local.deviceName)
    if (this.#tun !== null) await closeDescriptor(this.#tun.fd)
    if (this.#socket !== null) await closeDescriptor(this.#socket.fd)
    this.#tun = null
    this.#socket = null
  }

  #hear(report: WorkerReport): void {
    if (report.type === 'device-failed') {
      this.#options.log.error('device-lost', `reading ${this.#local?.deviceName} failed (errno ${report.errno})`)
      this.#broken = 'gone'
    } else if (report.type === 'socket-failed') {
      this.#options.log.error('socket-failed', `receiving failed (errno ${report.errno})`)
    }
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
    if (this.#worker === null || local === null) return
    try {
      if (this.#broken !== 'gone') this.#broken = leadsInto(local) ? null : 'bare'
      if (this.#broken === null) return
      if (this.#broken === 'gone') await this.#reopen(local)
      else await this.#redress(local)
      log.warn('device-restored', `${local.deviceName} was changed by somebody else and is as it was again`)
    } catch (error) {
      log.error('device-lost', error instanceof FlanneletteError ? error.oneLine : String(error))
    }
  }

  async #reopen(local: LocalVtep): Promise<void> {
    const lost = this.#tun
    this.#tun = await this.#openDevice(local)
    this.#broken = null // from here on the worker may find the new one gone as well
    this.#worker?.replaceDevice(this.#tun.fd)
    if (lost !== null) await closeDescriptor(lost.fd)
  }

  async #redress(local: LocalVtep): Promise<void> {
    await dress(local)
    // Unless the worker has found it gone meanwhile.
    if (this.#broken === 'bare') this.#broken = null
  }
}

/** Address, MTU and route. */
function dress({ deviceName, overlayAddress, mtuBytes, network }: LocalVtep): Promise<void> {
  return configureOverlayLink({ name: deviceName, overlayAddress, mtuBytes, network })
}

/** Whether the kernel sends the network's packets into the device: not when it is down, or has lost its address. */
function leadsInto({ network, deviceName }: LocalVtep): boolean {
  return hasRoute(readFileSync('/proc/thread-self/net/route', 'latin1'), network, deviceName)
}

async function openSocket(local: LocalVtep): Promise<OpenUdpSocket> {
  const { underlayAddress, port } = local
  const opened = await openUnderlaySocket(underlayAddress, port)
  if (!('step' in opened)) return opened
  const where = `UDP ${formatIpv4(underlayAddress)}:${port}`
  if (opened.errno === errno.EADDRINUSE) {
    throw new FlanneletteError('port-busy', `${where} is in use by another program or by a kernel vxlan device`, {
      remedy: `find it with "ss -lunp sport = ${port}" and "ip -d link show type vxlan", then stop or delete it`,
    })
  }
  if (opened.errno === errno.EADDRNOTAVAIL) {
    throw new FlanneletteError('interface-unsuitable', `${where} cannot be bound: the address is not on this host`, {
      remedy: 'choose the interface with --iface',
    })
  }
  throw new FlanneletteError('not-permitted', `${where} cannot be opened (errno ${opened.errno})`, {
    remedy: 'run as root or with CAP_NET_ADMIN',
  })
}

function tunError(name: string, failure: TunFailure): FlanneletteError {
  if (failure.step === 'open') {
    return new FlanneletteError('tun-unavailable', `/dev/net/tun cannot be opened (errno ${failure.errno})`, {
      remedy: 'load the module with "modprobe tun", or make the node with "mknod /dev/net/tun c 10 200"',
    })
  }
  if (failure.errno === errno.EBUSY) {
    return new FlanneletteError('device-busy', `${name} is held by another process`, {
      remedy: 'is another flannelette running here? Stop it first, or use another VNI',
    })
  }
  if (failure.errno === errno.EPERM) {
    return new FlanneletteError('not-permitted', `${name} cannot be made: CAP_NET_ADMIN is missing`, {
      remedy: 'run as root or give the process CAP_NET_ADMIN',
    })
  }
  return new FlanneletteError('tun-unavailable', `${name} cannot be made (${failure.step}, errno ${failure.errno})`, {
    remedy: `remove a left-over device with "ip link delete ${name}"`,
  })
}

/** Packets that the device's full queue has lost: before we could read them, so only the kernel knows (proc(5)). */
function transmitDropped(deviceName: string): number {
  const line = readFileSync('/proc/thread-self/net/dev', 'utf8')
    .split('\n')
    .find((candidate) => candidate.trimStart().startsWith(`${deviceName}:`))
  // After the name: eight receive columns, then bytes, packets, errs, drop of the transmit side.
  const columns = line?.split(':')[1]?.trim().split(/\s+/) ?? []
  return Number(columns[11] ?? 0)
}
