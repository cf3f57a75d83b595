// The sockets of the userspace dataplane: one that receives for each worker, all on the service port, and a few that
// send from other ports.
import {
  closeDescriptor,
  errno,
  formatAddress,
  type OpenUdpSocket,
  type OuterDf,
  openSendingSockets,
  openUnderlayPaths,
  openUnderlaySockets,
  type PathFds,
  type RawPorts,
  rawDriverFailure,
  type UnderlayAddress,
  type WorkerDriver,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { VtepOutline } from '../host/dataplane.ts'
import { localPortRange } from '../host/port-range.ts'
import type { Log } from '../log.ts'

export interface UnderlaySockets {
  /** One for each worker. */
  readonly receiving: readonly OpenUdpSocket[]
  /** One for each source port; empty when all is sent from the service port. */
  readonly sendingFds: readonly number[]
  /** Where DF is set: one pair for each worker; else empty. */
  readonly paths: readonly PathFds[]
  /** The ports that the raw driver writes into its headers. */
  readonly rawPorts: RawPorts
  /** Source ports that were asked for and could not be had. */
  readonly missingPorts: number
}

export interface UnderlaySocketsWanted {
  readonly driver: WorkerDriver
  readonly workers: number
  readonly outerDf: OuterDf
  /** Source ports; 1 is the service port alone. */
  readonly sourcePorts: number
}

/** Below this, bytes as the kernel counts them, bursts of a fast sender are lost before they are read. */
const LEAST_RECEIVE_BUFFER = 4 * 1024 * 1024

/**
 * Opens all of them, or none. @throws FlanneletteError port-busy, interface-unsuitable, driver-unavailable,
 * not-permitted
 */
export async function openSockets(
  local: VtepOutline,
  wanted: UnderlaySocketsWanted,
  log: Log,
): Promise<UnderlaySockets> {
  const { underlayAddress, port } = local
  if (wanted.driver === 'raw') await refuseWithoutRawSocket()
  const receiving = await openUnderlaySockets(underlayAddress, port, wanted.workers, wanted.outerDf)
  if ('step' in receiving) throw socketError(underlayAddress, port, receiving.errno)
  const small = smallBufferAdvice(receiving[0]!.receiveBufferBytes)
  if (small !== null) log.warn('receive-buffer-small', small)
  const paths = await openPaths(local, wanted, receiving)
  const rawPorts = { firstPort: port, ports: 1 }
  if (wanted.sourcePorts <= 1) return { receiving, sendingFds: [], paths, rawPorts, missingPorts: 0 }
  // Headers of our own need no socket for each port: any of the kernel's range, as its own VTEP has it.
  if (wanted.driver === 'raw') return { receiving, sendingFds: [], paths, rawPorts: localPortRange(), missingPorts: 0 }
  const sendingFds = await openSendingSockets(underlayAddress, wanted.sourcePorts, wanted.outerDf)
  if (sendingFds.length < wanted.sourcePorts) {
    const got = `${sendingFds.length} of ${wanted.sourcePorts} source ports could be opened`
    log.warn('source-ports-reduced', `${got}: flows spread less over links and cores of the underlay`)
  }
  return { receiving, sendingFds, paths, rawPorts, missingPorts: wanted.sourcePorts - sendingFds.length }
}

/** What to do about a receive buffer that the kernel has granted; `null` when it will do, or is not known (0). */
export function smallBufferAdvice(grantedBytes: number): string | null {
  if (grantedBytes === 0 || grantedBytes >= LEAST_RECEIVE_BUFFER) return null
  const lost = 'datagrams of bursts are lost and counted as rx-queue-full'
  return `the receive buffer has ${grantedBytes} of ${LEAST_RECEIVE_BUFFER} bytes: ${lost}; sysctl -w net.core.rmem_max=${LEAST_RECEIVE_BUFFER}, then start again`
}

/** A pair for each worker where DF is set. Without them nobody would be told: `receiving` is closed then as well. */
async function openPaths(
  { underlayAddress, port }: VtepOutline,
  { outerDf, workers }: UnderlaySocketsWanted,
  receiving: readonly OpenUdpSocket[],
): Promise<PathFds[]> {
  const paths: PathFds[] = []
  while (outerDf === 'set' && paths.length < workers) {
    const opened = await openUnderlayPaths(underlayAddress)
    if ('step' in opened) {
      await closeSockets({ receiving, sendingFds: [], paths })
      throw socketError(underlayAddress, port, opened.errno)
    }
    paths.push(opened)
  }
  return paths
}

/** Closes all of them; workers that use them must have ended. */
export async function closeSockets({
  receiving,
  sendingFds,
  paths,
}: Pick<UnderlaySockets, 'receiving' | 'sendingFds' | 'paths'>): Promise<void> {
  for (const { fd } of receiving) await closeDescriptor(fd)
  for (const fd of sendingFds) await closeDescriptor(fd)
  for (const { fragmentingFd, probeFd } of paths) {
    await closeDescriptor(fragmentingFd)
    await closeDescriptor(probeFd)
  }
}

/** What the worker of that index has for itself. */
export function socketsOfWorker({ receiving, paths }: UnderlaySockets, index: number) {
  const pathFds = paths[index]
  return { socketFd: receiving[index]!.fd, ...(pathFds === undefined ? {} : { pathFds }) }
}

/** How flows are told apart from outside, in words for the status. */
export function entropyOf({ sendingFds, rawPorts }: UnderlaySockets): string {
  if (rawPorts.ports > 1) return 'local port range'
  return sendingFds.length < 2 ? 'none' : `${sendingFds.length} source ports`
}

/** The package is optional: somebody who asks for the driver is told what is lacking. */
async function refuseWithoutRawSocket(): Promise<void> {
  const failure = await rawDriverFailure()
  if (failure === null) return
  if (failure.kind === 'missing') {
    const message = `--driver raw needs the npm package raw-socket, which cannot be loaded (${failure.why})`
    throw new FlanneletteError('driver-unavailable', message, {
      remedy:
        'install it beside flannelette with "npm install raw-socket", or build it with "npm rebuild raw-socket" (needs python3, make and g++)',
    })
  }
  throw new FlanneletteError('not-permitted', `a raw socket cannot be opened: ${failure.why}`, {
    remedy: 'run as root or with CAP_NET_RAW, or use another --driver',
  })
}

function socketError(underlayAddress: UnderlayAddress, port: number, failure: number): FlanneletteError {
  const address = formatAddress(underlayAddress)
  const where = `UDP ${typeof underlayAddress === 'bigint' ? `[${address}]` : address}:${port}`
  if (failure === errno.EADDRINUSE) {
    return new FlanneletteError('port-busy', `${where} is in use by another program or by a kernel vxlan device`, {
      remedy: `find it with "ss -lunp sport = ${port}" and "ip -d link show type vxlan", then stop or delete it`,
    })
  }
  if (failure === errno.EADDRNOTAVAIL) {
    return new FlanneletteError('interface-unsuitable', `${where} cannot be bound: the address is not on this host`, {
      remedy: 'choose the interface with --iface',
    })
  }
  return new FlanneletteError('not-permitted', `${where} cannot be opened (errno ${failure})`, {
    remedy: 'run as root or with CAP_NET_ADMIN',
  })
}
