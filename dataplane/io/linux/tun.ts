// The TUN: opened by the main thread, read and written by a worker. Linux, Documentation/networking/tuntap.rst and
// include/uapi/linux/if_tun.h.
import type { PacketMemory } from '../../memory/packet-memory.ts'
import { EAGAIN, EBUSY, EINTR } from '../errno.ts'
import { type Feature, type FeatureName, lost, unwanted, works } from '../feature.ts'
import type { PacketDevice } from '../packet-device.ts'
import * as libc from './libc.ts'
import { POLLOUT, PollSet } from './poll-set.ts'

const TUNSETIFF = 0x400454ca
const TUNSETPERSIST = 0x400454cb
const TUNSETOFFLOAD = 0x400454d0
const TUNSETVNETHDRSZ = 0x400454d8

const IFF_TUN = 0x0001
const IFF_NO_PI = 0x1000
const IFF_VNET_HDR = 0x4000
const IFF_MULTI_QUEUE = 0x0100

const TUN_F_CSUM = 0x01
const TUN_F_TSO4 = 0x02
const TUN_F_TSO6 = 0x04
const TUN_F_USO = 0x20 | 0x40
/** From most to least: kernels before 6.2 know no USO. The kernel takes a mask whole or not at all. */
const OFFLOADS = [TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_USO, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6, TUN_F_CSUM, 0]
const NO_OFFLOADS = [0]

const O_RDWR = 0x2
const O_NONBLOCK = 0x800
const O_CLOEXEC = 0x80000

const SIOCGIFMTU = 0x8921
const AF_INET = 2
const SOCK_DGRAM = 2

/** struct ifreq: name (16 bytes), then flags. */
const IFREQ_BYTES = 40
const IFNAMSIZ = 16

/** How long a write may wait for room, milliseconds. A TUN's send buffer is unlimited by default, so this is rare. */
const WRITE_WAIT_MS = 10

/** What stands behind the names in errors: which step of opening was refused, and how. */
export interface TunFailure {
  readonly step: 'open' | 'attach' | 'offload' | 'persist'
  readonly errno: number
}

export interface OpenTun {
  readonly fd: number
  /** TUN_F_ mask that the kernel granted. */
  readonly offloads: number
  /** What there is to say of them. */
  readonly features: readonly Feature[]
}

export interface TunOptions {
  /**
   * Whether packets come and go with a virtio-net header; they do unless this says no, and then nothing is offloaded.
   */
  readonly header?: boolean
  /** Whether super-packets and open checksums may be read; they may unless this says no. */
  readonly offloads?: boolean
  /** Whether other descriptors may share the device; none unless this says so. */
  readonly multiQueue?: boolean
}

/**
 * Opens `/dev/net/tun` and attaches to the device `name` (at most 15 bytes), which is made if it is not there.
 * Fails with `attach` EBUSY when another process holds it, EINVAL when a device of another kind has the name, EPERM
 * without CAP_NET_ADMIN. With `multiQueue` the descriptor is one of several that may share the device; a device is of
 * one mode for life, the other one fails with EINVAL.
 */
export function openTun(
  name: string,
  { header = true, offloads = true, multiQueue = false }: TunOptions = {},
): OpenTun | TunFailure {
  const fd = libc.open('/dev/net/tun', O_RDWR | O_NONBLOCK | O_CLOEXEC)
  if (fd < 0) return { step: 'open', errno: -fd }
  const fail = (step: TunFailure['step'], result: number): TunFailure => {
    libc.close(fd)
    return { step, errno: -result }
  }
  const flags = IFF_TUN | IFF_NO_PI | (header ? IFF_VNET_HDR : 0) | (multiQueue ? IFF_MULTI_QUEUE : 0)
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(Buffer.from(name).subarray(0, IFNAMSIZ - 1))
  new DataView(request.buffer).setUint16(IFNAMSIZ, flags, true)
  const attached = libc.ioctlPointer(fd, TUNSETIFF, request)
  if (attached < 0) return fail('attach', attached)
  // A persistent device keeps what its last owner set: say again what we need.
  if (header) {
    const headerSize = libc.ioctlPointer(fd, TUNSETVNETHDRSZ, new Uint8Array(Int32Array.of(10).buffer))
    if (headerSize < 0) return fail('offload', headerSize)
  }
  for (const mask of header && offloads ? OFFLOADS : NO_OFFLOADS) {
    if (libc.ioctlValue(fd, TUNSETOFFLOAD, mask) < 0) continue
    return { fd, offloads: mask, features: tunFeatures(mask, header && offloads) }
  }
  return fail('offload', -EBUSY)
}

/** MTU of the network device of that name in bytes, or -errno; netdevice(7), SIOCGIFMTU. */
export function deviceMtu(name: string): number {
  const fd = libc.socket(AF_INET, SOCK_DGRAM | O_CLOEXEC, 0)
  if (fd < 0) return fd
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(Buffer.from(name).subarray(0, IFNAMSIZ - 1))
  const result = libc.ioctlPointer(fd, SIOCGIFMTU, request)
  libc.close(fd)
  return result < 0 ? result : new DataView(request.buffer).getInt32(IFNAMSIZ, true)
}

/**
 * Opens the device with `count` queues, a descriptor for each: all of them or none. One queue is a device without
 * queues.
 */
export function openTunQueues(name: string, count: number, options: TunOptions = {}): OpenTun[] | TunFailure {
  const queues: OpenTun[] = []
  for (let queue = 0; queue < count; queue++) {
    const opened = openTun(name, { ...options, multiQueue: count > 1 })
    if ('step' in opened) {
      for (const { fd } of queues) libc.close(fd)
      return opened
    }
    queues.push(opened)
  }
  return queues
}

function tunFeatures(offloads: number, wanted: boolean): Feature[] {
  const granted = (mask: number, name: FeatureName): Feature => {
    if (!wanted) return unwanted(name, 'not asked for')
    return (offloads & mask) === mask ? works(name, 'granted by the kernel') : lost(name, 'refused by the kernel')
  }
  return [granted(TUN_F_TSO4 | TUN_F_TSO6, 'tun-tso'), granted(TUN_F_USO, 'tun-uso')]
}

/** Whether the device outlives the descriptor: a restart then finds its address, routes and queue as they were. */
export function setPersistent(fd: number, persistent: boolean): number {
  return libc.ioctlValue(fd, TUNSETPERSIST, persistent ? 1 : 0)
}

/** The worker's end of an open TUN. */
export class Tun implements PacketDevice {
  #fd: number
  readonly #memory: PacketMemory
  readonly #writable: PollSet

  constructor(memory: PacketMemory, fd: number) {
    this.#fd = fd
    this.#memory = memory
    this.#writable = new PollSet(memory, [fd], POLLOUT)
  }

  /** Goes on with another descriptor: the device was made anew. */
  replaceDescriptor(fd: number): void {
    this.#fd = fd
    this.#writable.setDescriptor(0, fd)
  }

  read(at: number, capacity: number): number {
    for (;;) {
      const result = libc.read(this.#fd, this.#memory.addressAt(at), capacity)
      if (result === -EAGAIN) return 0
      if (result !== -EINTR) return result
    }
  }

  write(iovecs: number, count: number): number {
    const address = this.#memory.addressAt(iovecs)
    for (let waited = false; ; ) {
      const result = libc.writev(this.#fd, address, count)
      if (result === -EAGAIN && !waited) {
        this.#writable.wait(WRITE_WAIT_MS)
        waited = true
      } else if (result !== -EINTR) {
        return result
      }
    }
  }
}
