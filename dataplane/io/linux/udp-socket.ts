// The underlay socket: opened by the main thread, used by a worker. sendmmsg(2) with UDP_SEGMENT, recvmmsg(2) with
// UDP_GRO (udp(7)).
import type { PacketMemory } from '../../memory/packet-memory.ts'
import { EAGAIN, ECONNREFUSED, EINTR, EINVAL, EIO, EMSGSIZE, ENOBUFS } from '../errno.ts'
import { isKernelAtLeast } from '../kernel-release.ts'
import { type ReceiveSlots, SLOT_BYTES } from '../receive-slots.ts'
import type { SendBatch } from '../send-batch.ts'
import type { UnderlaySocket } from '../underlay-socket.ts'
import * as libc from './libc.ts'
import { AF_INET, MessageHeaders, type ReceivedControl, socketAddress } from './message-header.ts'
import { POLLOUT, PollSet } from './poll-set.ts'
import { SenderOrder } from './sender-order.ts'
import { SingleSends } from './single-sends.ts'

const SOCK_DGRAM = 2
const SOCK_NONBLOCK = 0x800
const SOCK_CLOEXEC = 0x80000
const SOL_IP = 0
const SOL_SOCKET = 1
const SOL_UDP = 17
const SO_SNDBUF = 7
const SO_RCVBUF = 8
const SO_SNDBUFFORCE = 32
const SO_RCVBUFFORCE = 33
const SO_REUSEPORT = 15
const SO_RXQ_OVFL = 40
const IP_MTU_DISCOVER = 10
const IP_PMTUDISC_DONT = 0
const IP_PMTUDISC_OMIT = 5
const IP_RECVTOS = 13
const UDP_SEGMENT = 103
const UDP_GRO = 104
const MSG_TRUNC = 0x20
const MSG_CTRUNC = 0x8
const MSG_DONTWAIT = 0x40

/** Asked for; the kernel doubles it for its own accounting, where a 1450-byte datagram costs more than 2 KiB. */
const BUFFER_BYTES = 16 * 1024 * 1024
/** How long a send may wait for room, milliseconds. */
const SEND_WAIT_MS = 10
const NOBUFS_RETRIES = 3
/** Segments per send: 64 before Linux 6.9 (UDP_MAX_SEGMENTS); one less, since old kernels count the header too. */
const SEGMENTS = 63
const SEGMENTS_FROM_6_9 = 127
/** Messages of one sendmmsg(2): what a SendBatch holds. */
const MESSAGES = 64
/** What a socket that only sends keeps of datagrams that strangers send to it; the kernel makes the least of it. */
const NO_RECEIVE_BUFFER = 0
/** Segmented sends that may be refused with EINVAL before no more are tried. */
const REFUSALS = 3

export interface UdpFailure {
  readonly step: 'socket' | 'bind'
  readonly errno: number
}

export interface OpenUdpSocket {
  readonly fd: number
  /** Segments that one send may carry, 1 without UDP_SEGMENT. */
  readonly maxSegments: number
  /** Whether trains of datagrams arrive merged (UDP_GRO). */
  readonly receivesMerged: boolean
  /** Receive buffer that was granted, bytes as the kernel counts them; 0 when it does not tell. */
  readonly receiveBufferBytes: number
}

/**
 * Opens `count` sockets on `address` that only send, each from a port of the kernel's choice (ip_local_port_range in
 * ip-sysctl.rst). Fewer come back when the kernel gives no more.
 */
export function openSenders(address: number, count: number): number[] {
  const fds: number[] = []
  while (fds.length < count) {
    const fd = bindUdp(address, 0, false)
    if (typeof fd !== 'number') break
    libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUF, NO_RECEIVE_BUFFER)
    prepareSends(fd)
    fds.push(fd)
  }
  return fds
}

/**
 * Room for what is sent, with CAP_NET_ADMIN beyond the sysctl limit; and as flannel's VTEP: DF clear, learnt path MTUs
 * ignored.
 */
function prepareSends(fd: number): void {
  if (libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES) < 0) {
    libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES)
  }
  if (libc.setsockopt(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_OMIT) < 0) {
    libc.setsockopt(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
  }
}

/** Opens the socket on `address`:`port`. Fails with `bind` EADDRINUSE when somebody listens there already. */
export function openUdpSocket(address: number, port: number, kernelRelease: string): OpenUdpSocket | UdpFailure {
  const fd = bindUdp(address, port, false)
  return typeof fd === 'number' ? prepareReceives(fd, kernelRelease) : fd
}

/**
 * Opens `count` sockets on the same address and port, all of them or none. The kernel gives each sender (its address
 * and port) to one of them for good. Fails as {@link openUdpSocket} does: others of ours would be let in, so that
 * nobody listens there yet is made sure of first.
 */
export function openUdpSockets(
  address: number,
  port: number,
  kernelRelease: string,
  count: number,
): OpenUdpSocket[] | UdpFailure {
  const alone = bindUdp(address, port, false)
  if (typeof alone !== 'number') return alone
  if (count === 1) return [prepareReceives(alone, kernelRelease)]
  libc.close(alone)
  const fds: number[] = []
  while (fds.length < count) {
    const fd = bindUdp(address, port, true)
    if (typeof fd !== 'number') {
      for (const opened of fds) libc.close(opened)
      return fd
    }
    fds.push(fd)
  }
  return fds.map((fd) => prepareReceives(fd, kernelRelease))
}

/** The descriptor of a socket bound there; `shared` lets others of the same user that say so bind there too. */
function bindUdp(address: number, port: number, shared: boolean): number | UdpFailure {
  const fd = libc.socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
  if (fd < 0) return { step: 'socket', errno: -fd }
  if (shared) libc.setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, 1)
  const bound = libc.bind(fd, socketAddress(address, port))
  if (bound >= 0) return fd
  libc.close(fd)
  return { step: 'bind', errno: -bound }
}

function prepareReceives(fd: number, kernelRelease: string): OpenUdpSocket {
  // With CAP_NET_ADMIN beyond the sysctl limits, else as far as they allow.
  if (libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES) < 0) {
    libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES)
  }
  prepareSends(fd)
  libc.setsockopt(fd, SOL_IP, IP_RECVTOS, 1)
  libc.setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, 1)
  // Before 5.12 UDP_GRO is there but unreliable.
  const receivesMerged = isKernelAtLeast(kernelRelease, [5, 12, 0]) && libc.setsockopt(fd, SOL_UDP, UDP_GRO, 1) >= 0
  const segments = isKernelAtLeast(kernelRelease, [6, 9, 0]) ? SEGMENTS_FROM_6_9 : SEGMENTS
  return {
    fd,
    maxSegments: libc.getsockopt(fd, SOL_UDP, UDP_SEGMENT) >= 0 ? segments : 1,
    receivesMerged: receivesMerged && libc.getsockopt(fd, SOL_UDP, UDP_GRO) === 1,
    receiveBufferBytes: Math.max(libc.getsockopt(fd, SOL_SOCKET, SO_RCVBUF), 0),
  }
}

export interface UdpSocketOptions {
  readonly fd: number
  readonly maxSegments: number
  /** Sockets that send, see {@link openSenders}; with none, `fd` sends. */
  readonly senderFds?: readonly number[]
  /** Bounds what one system call moves, in both directions: 1 for the plain driver. */
  readonly messagesPerCall?: number
}

/** Trains of datagrams are handed over one by one from now on. */
export function receiveOneByOne(fd: number): void {
  libc.setsockopt(fd, SOL_UDP, UDP_GRO, 0)
}

/** The worker's end of an open socket. */
export class UdpSocket implements UnderlaySocket {
  readonly maxSegments: number
  readonly senders: number
  readonly #fd: number
  readonly #senderFds: readonly number[]
  readonly #order = new SenderOrder(MESSAGES)
  readonly #memory: PacketMemory
  readonly #writable: PollSet
  readonly #sendHeaders: MessageHeaders
  readonly #control: ReceivedControl = { segmentSize: 0, tos: 0, overflowed: 0 }
  readonly #messagesPerCall: number
  #receiveHeaders: MessageHeaders | null = null
  /** Whether segmented sends are tried: until the kernel has refused them at work. */
  #segments = true
  #refusals = 0
  readonly #singles: SingleSends

  constructor(memory: PacketMemory, options: UdpSocketOptions) {
    this.maxSegments = options.maxSegments
    this.#messagesPerCall = options.messagesPerCall ?? MESSAGES
    this.#fd = options.fd
    // Without sockets of their own for sending, everything leaves from the service port.
    this.#senderFds = options.senderFds?.length ? options.senderFds : [options.fd]
    this.senders = this.#senderFds.length
    this.#memory = memory
    this.#writable = new PollSet(memory, [options.fd], POLLOUT)
    this.#sendHeaders = new MessageHeaders(memory, MESSAGES)
    this.#singles = new SingleSends(memory)
  }

  receive(slots: ReceiveSlots): number {
    const headers = this.#receiveHeaders ?? this.#prepareReceive(slots)
    const { first } = slots
    const most = Math.min(slots.capacity - first, this.#messagesPerCall)
    let received = libc.recvmmsg(this.#fd, headers.addressOf(first), most, MSG_DONTWAIT)
    // An error may be one that was left on the socket, of an earlier datagram: told once, and what is queued comes
    // next.
    if (received < 0 && received !== -EAGAIN) {
      received = libc.recvmmsg(this.#fd, headers.addressOf(first), most, MSG_DONTWAIT)
    }
    if (received < 0) return received === -EAGAIN || received === -EINTR ? 0 : received
    const control = this.#control
    for (let slot = first; slot < first + received; slot++) {
      control.segmentSize = 0
      control.tos = 0
      headers.readControl(slot, control)
      slots.length[slot] = headers.receivedLength(slot)
      slots.segmentSize[slot] = control.segmentSize
      slots.address[slot] = headers.sourceAddress(slot)
      slots.port[slot] = headers.sourcePort(slot)
      slots.tos[slot] = control.tos
      slots.truncated[slot] = (headers.receivedFlags(slot) & (MSG_TRUNC | MSG_CTRUNC)) !== 0 ? 1 : 0
      headers.resetReceive(slot)
    }
    slots.overflowed = control.overflowed
    return received
  }

  #prepareReceive(slots: ReceiveSlots): MessageHeaders {
    const headers = new MessageHeaders(this.#memory, slots.capacity)
    headers.setSlots(slots.capacity, (slot) => slots.at(slot), SLOT_BYTES)
    for (let slot = 0; slot < slots.capacity; slot++) headers.resetReceive(slot)
    this.#receiveHeaders = headers
    return headers
  }

  send(batch: SendBatch): void {
    const headers = this.#sendHeaders
    const order = this.#order.of(batch)
    for (let place = 0; place < batch.count; place++) {
      const message = order[place]!
      headers.setDestination(place, batch.address[message]!, batch.port[message]!)
      headers.setIovecs(place, batch.iovecAt(message), batch.iovecCount[message]!)
      headers.setSendControl(place, batch.segmentSize(message), batch.tos[message]!)
    }
    for (let place = 0; place < batch.count; ) place = this.#sendNext(batch, order, place)
  }

  /** Older kernels refuse segments larger than the interface's MTU with EINVAL as well. */
  forgetRefusals(): void {
    this.#segments = true
    this.#refusals = 0
  }

  /**
   * Sends what one call can carry from the message at `place` of the order on; returns the place behind what is
   * settled.
   */
  #sendNext(batch: SendBatch, order: Uint8Array, place: number): number {
    const message = order[place]!
    if (!this.#segments && batch.packets[message]! > 1) {
      this.#sendFrames(batch, message)
      return place + 1
    }
    const count = this.#endOfSends(batch, order, place) - place
    const sent = this.#sendSome(this.#fdFor(batch, message), this.#sendHeaders, place, count)
    if (sent > 0) return place + sent
    this.#settle(batch, message, -sent)
    return place + 1
  }

  #fdFor(batch: SendBatch, message: number): number {
    return this.#senderFds[batch.sender[message]! % this.senders]!
  }

  /**
   * Up to which place one call may go: to the next port, and without segmented sends to the next message that would
   * need one.
   */
  #endOfSends(batch: SendBatch, order: Uint8Array, from: number): number {
    const most = Math.min(batch.count, from + this.#messagesPerCall)
    const sender = batch.sender[order[from]!]!
    let end = from + 1
    while (end < most && batch.sender[order[end]!] === sender) {
      if (!this.#segments && batch.packets[order[end]!] !== 1) break
      end++
    }
    return end
  }

  /**
   * Sends at most `count` messages from `first` on. Returns how many went, or -errno of the first, tried as often as
   * fits.
   */
  #sendSome(fd: number, headers: MessageHeaders, first: number, count: number): number {
    for (let retries = 0; ; ) {
      const sent = libc.sendmmsg(fd, headers.addressOf(first), count, 0)
      if (sent >= 0) return sent
      if (sent !== -EINTR && !this.#mayRetry(fd, -sent, retries++)) return sent
    }
  }

  /**
   * A message that failed. A segmented one that was refused as such is sent frame by frame, and remembered: EIO says
   * that segmented sends do not work here, EINVAL may have a reason of its own, EMSGSIZE says something of one path
   * only.
   */
  #settle(batch: SendBatch, message: number, errno: number): void {
    const refused = errno === EIO || errno === EINVAL || errno === EMSGSIZE
    if (!refused || batch.packets[message] === 1) {
      batch.errno[message] = errno
      return
    }
    // Where single frames fail as well, it was not for being segmented.
    const went = this.#sendFrames(batch, message)
    if (!went || errno === EMSGSIZE) return
    this.#refusals += errno === EIO ? REFUSALS : 1
    if (this.#refusals < REFUSALS) return
    this.#segments = false
    batch.givenUp = 1
  }

  /** Sends a message frame by frame, whatever becomes of each. Returns whether any went. */
  #sendFrames(batch: SendBatch, message: number): boolean {
    const singles = this.#singles
    const fd = this.#fdFor(batch, message)
    batch.resent += 1
    let errno = 0
    singles.begin(batch, message)
    while (singles.next(batch, message)) {
      for (let done = 0; done < singles.count; ) {
        const sent = this.#sendSome(fd, singles.headers, done, singles.count - done)
        if (sent <= 0) errno = -sent
        for (let frame = done; frame < done + sent; frame++) {
          batch.sentPackets[message]! += 1
          batch.sentBytes[message]! += singles.bytesOf(frame)
        }
        done += Math.max(sent, 1)
      }
    }
    batch.errno[message] = errno
    return batch.sentPackets[message]! > 0
  }

  /** Whether the message that failed shall be tried again; waits for room first, never longer than SEND_WAIT_MS. */
  #mayRetry(fd: number, errno: number, retries: number): boolean {
    if (errno === EAGAIN && retries === 0) {
      this.#writable.setDescriptor(0, fd)
      // A wait that failed says nothing of the room.
      return this.#writable.wait(SEND_WAIT_MS) !== 0
    }
    // Left on the socket by an earlier datagram, and told once: this one has not been tried yet.
    if (errno === ECONNREFUSED) return retries === 0
    return errno === ENOBUFS && retries < NOBUFS_RETRIES
  }
}
