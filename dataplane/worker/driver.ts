// The drivers put together: from descriptors and a name to a device and a socket for the engine, and to what a thread
// must wait for. `offload` and `plain` sleep in poll(2) together with the thread; `dgram` and `raw` need an event loop.
import { HeaderlessDevice } from '../engine/headerless-device.ts'
import * as libc from '../io/linux/libc.ts'
import { PollSet } from '../io/linux/poll-set.ts'
import { Tun } from '../io/linux/tun.ts'
import { UdpSocket } from '../io/linux/udp-socket.ts'
import { DgramSocket } from '../io/node/dgram-socket.ts'
import { GatedDevice } from '../io/node/gated-device.ts'
import type { PacketDevice } from '../io/packet-device.ts'
import { openRawSender } from '../io/raw/raw-package.ts'
import { RawSocket } from '../io/raw/raw-socket.ts'
import type { SocketAddresses } from '../io/socket-addresses.ts'
import type { UnderlaySocket } from '../io/underlay-socket.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { WorkerSetup } from './messages.ts'

export interface OpenDriver {
  readonly tun: Tun
  /** The TUN as the engine sees it. */
  readonly device: PacketDevice
  readonly socket: UnderlaySocket
  /** What to wait for before receiving; -1 where the socket tells by itself. */
  readonly receiveFd: number
  /** Whether the device shall not be read now. */
  isFull(): boolean
  /** Datagrams that wait although nothing to wait for will tell. */
  waiting(): number
  close(): void
}

/** What a driver on an event loop has to say; nothing is lost when nobody listens yet. */
export interface DriverEvents {
  onReceivable(): void
  onRoom(): void
}

/** What a driver is put together from. */
export interface DriverParts {
  readonly memory: PacketMemory
  readonly setup: WorkerSetup
  readonly events: DriverEvents
  /** For sockets of IPv6; `null` for those of IPv4. */
  readonly wide: SocketAddresses | null
}

/** @throws Error when a raw socket is refused, or no descriptor is left */
export function openDriver(parts: DriverParts): OpenDriver {
  const { memory, setup, wide } = parts
  const tun = new Tun(memory, setup.tunFd)
  if (setup.driver === 'dgram') return openDgram(tun, parts)
  if (setup.driver === 'raw') return openRaw(tun, parts)
  const isPlain = setup.driver === 'plain'
  const socket = new UdpSocket(memory, {
    ...{ fd: setup.socketFd, senderFds: setup.senderFds, maxSegments: setup.maxSegments },
    ...(isPlain ? { messagesPerCall: 1 } : {}),
    ...(wide === null ? {} : { addresses: wide }),
    ...(setup.pathFds === null ? {} : { pathFds: setup.pathFds }),
  })
  const device = isPlain ? new HeaderlessDevice(memory, tun) : tun
  return { tun, device, socket, receiveFd: setup.socketFd, ...ALWAYS_READY, close: () => undefined }
}

/** How long the raw driver leaves the device alone after a send that had to wait, milliseconds. */
const RAW_RETRY_MS = 10
const ALWAYS_READY = { isFull: () => false, waiting: () => 0 }

/** Node closes what it is given: it gets descriptors of its own, so that the sockets survive this thread. */
function openDgram(tun: Tun, { memory, setup, events, wide }: DriverParts): OpenDriver {
  const { socketFd, senderFds } = setup
  const socket = new DgramSocket(memory, {
    fd: duplicateOf(socketFd),
    senderFds: senderFds.map(duplicateOf),
    lost: () => libc.socketDrops(socketFd),
    ...(wide === null ? {} : { addresses: wide }),
    ...events,
  })
  const isFull = () => socket.isFull
  return {
    ...{ tun, device: new GatedDevice(tun, isFull), socket, receiveFd: -1, isFull },
    waiting: () => socket.waiting,
    close: () => socket.close(),
  }
}

/** While the socket is full the device is not read, and the thread does its other work. */
function openRaw(tun: Tun, { memory, setup, events, wide }: DriverParts): OpenDriver {
  const sender = openRawSender(wide === null ? 4 : 6)
  if ('kind' in sender) throw new Error(`no raw socket: ${sender.why}`)
  const addresses = wide === null ? {} : { addresses: wide }
  const nothing = new PollSet(memory, [-1])
  let retry: NodeJS.Timeout | undefined
  const socket = new RawSocket(memory, {
    sender,
    udpSocket: new UdpSocket(memory, { fd: setup.socketFd, maxSegments: 1, ...addresses }),
    ...addresses,
    address: setup.underlayAddress,
    ...setup.rawPorts,
    pause: () => void nothing.wait(1),
    onFull: () => {
      retry = setTimeout(() => {
        socket.tryAgain()
        events.onRoom()
      }, RAW_RETRY_MS)
    },
  })
  const isFull = () => socket.isFull
  const close = () => {
    clearTimeout(retry)
    socket.close()
  }
  const device = new GatedDevice(tun, isFull)
  return { tun, device, socket, receiveFd: setup.socketFd, isFull, waiting: () => 0, close }
}

/** @throws Error when the process has no descriptor left */
function duplicateOf(fd: number): number {
  const copy = libc.duplicate(fd)
  if (copy < 0) throw new Error(`descriptor ${fd} cannot be duplicated (errno ${-copy})`)
  return copy
}
