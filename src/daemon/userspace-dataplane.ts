// The userspace dataplane as the daemon sees it: a TUN, a UDP socket and a worker between them. Everything that can be
// refused is tried before anything is left behind.
import { readFileSync } from 'node:fs'
import { release } from 'node:os'
import {
  closeDescriptor,
  DataplaneWorker,
  errno,
  formatIpv4,
  isKernelAtLeast,
  keepOverlayDevice,
  type OpenTun,
  type OpenUdpSocket,
  openOverlayDevice,
  openUnderlaySocket,
  type RecordedStep,
  type SourceCheck,
  type TunFailure,
  type WorkerReport,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { configureOverlayLink, inspectOverlayDevice, removeOverlayLink } from '../host/overlay-link.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import type { Dataplane, LocalVtep } from './dataplane.ts'
import { forwardingEntries } from './forwarding-entries.ts'

/** How often a device that was taken away is made anew, milliseconds, until it works. */
const REOPEN_MS = 1000
/** Older kernels lose merged UDP that reaches a kernel tunnel of a pod (fixed in 6.8.5). */
const MERGES_UDP_FROM = [6, 8, 5] as const

export interface UserspaceOptions {
  readonly log: Log
  readonly driver: 'offload'
  readonly sourceCheck: SourceCheck
}

export class UserspaceDataplane implements Dataplane {
  readonly kind = 'userspace'
  readonly #options: UserspaceOptions
  #local: LocalVtep | null = null
  #worker: DataplaneWorker | null = null
  #tun: OpenTun | null = null
  #socket: OpenUdpSocket | null = null
  #reopening: NodeJS.Timeout | null = null

  constructor(options: UserspaceOptions) {
    this.#options = options
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
    this.#worker = await DataplaneWorker.start({
      tunFd: this.#tun.fd,
      socketFd: this.#socket.fd,
      maxSegments: this.#socket.maxSegments,
      vni: local.vni,
      mac: local.mac,
      settings: {
        overlayAddress: local.overlayAddress,
        subnet: local.subnet,
        mtuBytes: local.mtuBytes,
        sourceCheck: this.#options.sourceCheck,
        mergeUdp: isKernelAtLeast(release(), MERGES_UDP_FROM),
      },
      onReport: (report) => this.#hear(report),
      onDeath: (error) => this.#options.log.error('worker-died', `the dataplane worker died: ${error.message}`),
    })
    const { maxSegments, receivesMerged, receiveBufferBytes } = this.#socket
    const fields = { offloads: this.#tun.offloads, maxSegments, receivesMerged, receiveBufferBytes }
    this.#options.log.info('dataplane-started', `userspace dataplane on ${local.deviceName}`, fields)
  }

  /** Makes or finds the device, gives it address and route, and only then lets it outlive us. */
  async #openDevice(local: LocalVtep): Promise<OpenTun> {
    const { deviceName, overlayAddress, mtuBytes, network } = local
    const present = await inspectOverlayDevice(deviceName)
    if (present.kind === 'foreign') {
      throw new FlanneletteError('device-foreign', `${deviceName} is already there: ${present.what}`, {
        remedy: `remove it with "${present.removeCommand}" if nothing needs it`,
      })
    }
    const opened = await openOverlayDevice(deviceName)
    if ('step' in opened) throw tunError(deviceName, opened)
    try {
      await configureOverlayLink({ name: deviceName, overlayAddress, mtuBytes, network })
    } catch (error) {
      await closeDescriptor(opened.fd)
      throw error
    }
    await keepOverlayDevice(opened.fd, true)
    return opened
  }

  replacePeers(peers: readonly Lease[], _cause: string): Promise<number> {
    if (this.#worker === null || this.#local === null) throw new Error('the dataplane is not started')
    return this.#worker.replaceTable(forwardingEntries(peers, this.#local))
  }

  counters(): Readonly<Record<string, number>> {
    if (this.#worker === null || this.#local === null) return {}
    const { 'socket.overflowed': overflowed = 0, ...counters } = this.#worker.counters.snapshot()
    return {
      ...counters,
      // What the kernel lost before we read it: never part of "read", so not among the drops.
      'outbound.lost.tun-queue-full': transmitDropped(this.#local.deviceName),
      'inbound.lost.rx-queue-full': overflowed,
    }
  }

  pendingPeers(): number {
    return 0
  }

  /** Records at most `steps` steps of the engine; see DataplaneWorker.trace. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    this.#worker?.trace(steps, onSteps)
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    if (this.#reopening !== null) clearTimeout(this.#reopening)
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
      this.#reopen()
    } else if (report.type === 'socket-failed') {
      this.#options.log.error('socket-failed', `receiving failed (errno ${report.errno})`)
    }
  }

  /** The device was taken away under us: make it anew, again and again until it works. */
  #reopen(): void {
    this.#reopening = setTimeout(async () => {
      this.#reopening = null
      if (this.#worker === null || this.#local === null) return
      try {
        const lost = this.#tun
        this.#tun = await this.#openDevice(this.#local)
        this.#worker.replaceDevice(this.#tun.fd)
        if (lost !== null) await closeDescriptor(lost.fd)
        this.#options.log.info('device-restored', `${this.#local.deviceName} is back`)
      } catch (error) {
        this.#options.log.error('device-lost', error instanceof Error ? error.message : String(error))
        this.#reopen()
      }
    }, REOPEN_MS)
  }
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
