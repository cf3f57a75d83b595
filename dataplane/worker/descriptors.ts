// Opening what a worker will use, on the main thread. The drivers are loaded only here and in the worker, so that a
// command which moves no packet needs no native library.
import { release } from 'node:os'
import type { UnderlayAddress } from '../forwarding/remote-vtep.ts'
import type { Feature } from '../io/feature.ts'
import type { DatagramSender } from '../io/linux/datagram-sender.ts'
import type { OpenTun, TunFailure, TunOptions } from '../io/linux/tun.ts'
import type { UdpGsoMode } from '../io/linux/udp-features.ts'
import type { OpenUdpSocket, OuterDf, PathFds, UdpFailure } from '../io/linux/udp-open.ts'
import type { RawFailure } from '../io/raw/raw-package.ts'

export type { DatagramSender, OpenTun, OpenUdpSocket, OuterDf, PathFds, TunFailure, UdpFailure, UdpGsoMode }

const EFD_CLOEXEC = 0x80000
const EFD_NONBLOCK = 0x800

/**
 * Opens the TUN of that name with so many queues, making it if need be; see io/linux/tun.ts for what the errors mean.
 */
export async function openOverlayDevice(
  name: string,
  queues: number,
  options: TunOptions = {},
): Promise<OpenTun[] | TunFailure> {
  const { openTunQueues } = await import('../io/linux/tun.ts')
  return openTunQueues(name, queues, options)
}

/** Lets the device outlive the process. Returns 0 or -errno. */
export async function keepOverlayDevice(fd: number): Promise<number> {
  const { setPersistent } = await import('../io/linux/tun.ts')
  return setPersistent(fd, true)
}

/** MTU of a network device in bytes, or -errno (-ENODEV: there is none of that name). */
export async function readDeviceMtu(name: string): Promise<number> {
  const { deviceMtu } = await import('../io/linux/tun.ts')
  return deviceMtu(name)
}

/** Opens `count` UDP sockets on `address`:`port`, one for each worker. */
export async function openUnderlaySockets(
  address: UnderlayAddress,
  port: number,
  count: number,
  outerDf: OuterDf,
): Promise<OpenUdpSocket[] | UdpFailure> {
  const { openUdpSockets } = await import('../io/linux/udp-open.ts')
  return openUdpSockets(address, port, release(), count, outerDf)
}

/** Opens what the ways to peers need where DF is set; see io/linux/udp-open.ts. */
export async function openUnderlayPaths(address: UnderlayAddress): Promise<PathFds | UdpFailure> {
  const { openPathSockets } = await import('../io/linux/udp-open.ts')
  return openPathSockets(address)
}

/** Opens sockets that only send; see io/linux/udp-socket.ts. */
export async function openSendingSockets(address: UnderlayAddress, count: number, outerDf: OuterDf): Promise<number[]> {
  const { openSenders } = await import('../io/linux/udp-open.ts')
  return openSenders(address, count, outerDf)
}

/** Decides which offloads of a socket on `address` are used; see io/linux/udp-features.ts. Takes at most 150 ms. */
export async function chooseUnderlayFeatures(
  address: UnderlayAddress,
  opened: OpenUdpSocket,
  mode: UdpGsoMode,
): Promise<{ readonly maxSegments: number; readonly features: readonly Feature[] }> {
  const { chooseUdpFeatures } = await import('../io/linux/udp-features.ts')
  const { testSegmentedSend } = await import('../io/linux/gso-self-test.ts')
  return chooseUdpFeatures({ opened, mode, kernelRelease: release(), selfTest: () => testSegmentedSend(address) })
}

/** Lets a socket hand over trains of datagrams one by one. */
export async function receiveDatagramsOneByOne(fd: number): Promise<void> {
  const { receiveOneByOne } = await import('../io/linux/udp-open.ts')
  receiveOneByOne(fd)
}

/** Why the raw driver cannot work here, `null` when it can; see io/raw/raw-package.ts. */
export async function rawDriverFailure(): Promise<RawFailure | null> {
  const { rawFailure } = await import('../io/raw/raw-package.ts')
  return rawFailure()
}

export async function closeDescriptor(fd: number): Promise<void> {
  const { close } = await import('../io/linux/libc.ts')
  close(fd)
}

/** Opens a sender of datagrams to a Unix socket, an errno when that is impossible; see io/linux/datagram-sender.ts. */
export async function openDatagramSender(path: string): Promise<DatagramSender | number> {
  const { openSender } = await import('../io/linux/datagram-sender.ts')
  return openSender(path)
}

/** A doorbell for a worker: a descriptor that becomes readable when rung. */
export interface WorkerDoorbell {
  readonly fd: number
  ring(): void
  close(): void
}

/** @throws Error when the kernel has no descriptor left */
export async function makeDoorbell(): Promise<WorkerDoorbell> {
  const libc = await import('../io/linux/libc.ts')
  const fd = libc.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
  if (fd < 0) throw new Error(`eventfd failed with errno ${-fd}`)
  return { fd, ring: () => libc.eventfdWrite(fd, 1), close: () => libc.close(fd) }
}
