// The underlay socket: opened by the main thread (udp-open.ts), used by a worker. sendmmsg(2) with UDP_SEGMENT, recvmmsg(2) with
// UDP_GRO (udp(7)).
import type { PacketMemory } from '../../memory/packet-memory.ts'
import { EAGAIN, ECONNREFUSED, EINTR, EINVAL, EIO, EMSGSIZE, ENOBUFS } from '../errno.ts'
import { type ReceiveSlots, SLOT_BYTES } from '../receive-slots.ts'
import type { SendBatch } from '../send-batch.ts'
import type { SocketAddresses } from '../socket-addresses.ts'
import type { UnderlayPaths, UnderlaySocket } from '../underlay-socket.ts'
import * as libc from './libc.ts'
import { MessageHeaders, type ReceivedControl } from './message-header.ts'
import { PathProbe } from './path-probe.ts'
import { POLLOUT, PollSet } from './poll-set.ts'
import { SenderOrder } from './sender-order.ts'
import { SingleSends } from './single-sends.ts'
import type { PathFds } from './udp-open.ts'

const MSG_TRUNC = 0x20
const MSG_CTRUNC = 0x8
const MSG_DONTWAIT = 0x40

/** How long a send may wait for room, milliseconds. */
const SEND_WAIT_MS = 10
const NOBUFS_RETRIES = 3
/** Messages of one sendmmsg(2): what a SendBatch holds. */
const MESSAGES = 64
/** Segmented sends that may be refused with EINVAL before no more are tried. */
const REFUSALS = 3

export interface UdpSocketOptions {
  readonly fd: number
  readonly maxSegments: number
  /** Sockets that send, see openSenders; with none, `fd` sends. */
  readonly senderFds?: readonly number[]
  /** Bounds what one system call moves, in both directions: 1 for the plain driver. */
  readonly messagesPerCall?: number
  /** Where the others were opened with DF set. */
  readonly pathFds?: PathFds
  /** For a socket of IPv6: who is behind the numbers of batches and slots. */
  readonly addresses?: SocketAddresses
}

/** The worker's end of an open socket. */
export class UdpSocket implements UnderlaySocket {
  readonly maxSegments: number
  readonly senders: number
  readonly paths?: UnderlayPaths
  readonly #fd: number
  readonly #senderFds: readonly number[]
  /** -1 where there is none. */
  readonly #fragmentingFd: number
  readonly #order = new SenderOrder(MESSAGES)
  readonly #memory: PacketMemory
  readonly #addresses: SocketAddresses | null
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
    this.#addresses = options.addresses ?? null
    this.#sendHeaders = new MessageHeaders(memory, MESSAGES, this.#addresses)
    this.#singles = new SingleSends(memory, this.#addresses)
    this.#fragmentingFd = options.pathFds?.fragmentingFd ?? -1
    if (options.pathFds === undefined) return
    const probe = new PathProbe(options.pathFds.probeFd, this.#addresses)
    this.paths = {
      // One behind those that flows are spread over.
      fragmentingSender: this.senders,
      payloadTo: (address, port) => probe.payloadTo(address, port),
    }
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
    const headers = new MessageHeaders(this.#memory, slots.capacity, this.#addresses)
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
    const sender = batch.sender[message]!
    if (sender === this.paths?.fragmentingSender) return this.#fragmentingFd
    return this.#senderFds[sender % this.senders]!
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
    if (!went || errno === EMSGSIZE || batch.errno[message] === EMSGSIZE) return
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
