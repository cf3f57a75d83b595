// The raw driver's end of the underlay: outer IP (outer-header.ts) and UDP headers of our own, sent through the npm package raw-socket
// (raw(7), IPPROTO_RAW). Receiving is left to an ordinary UDP socket on the service port, and so is what needs outer
// fragments. Slower than the others: a call, a copy and a callback for each packet.
import { complementUdp, type PacketMemory } from '../../memory/packet-memory.ts'
import * as ipv4 from '../../wire/ipv4.ts'
import * as ipv6 from '../../wire/ipv6.ts'
import * as udp from '../../wire/udp.ts'
import { EACCES, EAGAIN, EHOSTUNREACH, EINVAL, EIO, EMSGSIZE, ENETDOWN, ENETUNREACH, ENOBUFS, EPERM } from '../errno.ts'
import type { ReceiveSlots } from '../receive-slots.ts'
import { MAX_DATAGRAM_BYTES, SendBatch } from '../send-batch.ts'
import type { SocketAddresses } from '../socket-addresses.ts'
import type { UnderlaySocket } from '../underlay-socket.ts'
import { Ipv4OuterHeader, Ipv6OuterHeader, type OuterHeader } from './outer-header.ts'
import type { RawSender } from './raw-package.ts'

const MOST_HEADER_BYTES = ipv6.HEADER_LEN + udp.HEADER_LEN
/** Tries of a send that found no room, with a millisecond between them: ten, as long as other sockets wait. */
const ROOM_TRIES = 10
/** Such milliseconds until {@link RawSocket.tryAgain}, all sends together: the thread has other work as well. */
const MOST_PAUSES = 50
const NOBUFS_TRIES = 3

/** The package gives errors as text, that of strerror(3). */
const ERRNOS = new Map<string, number>([
  ['Operation not permitted', EPERM],
  ['Permission denied', EACCES],
  ['Resource temporarily unavailable', EAGAIN],
  ['Invalid argument', EINVAL],
  ['Message too long', EMSGSIZE],
  ['Network is down', ENETDOWN],
  ['Network is unreachable', ENETUNREACH],
  ['No buffer space available', ENOBUFS],
  ['No route to host', EHOSTUNREACH],
])

export interface RawSocketOptions {
  readonly sender: RawSender
  /** Bound to the service port: receives, and sends what the underlay must fragment. */
  readonly udpSocket: UnderlaySocket
  /** Own underlay address. */
  readonly address: number | bigint
  /** Needed for an IPv6 address: who is behind the numbers of a batch. */
  readonly addresses?: SocketAddresses
  /** Source ports that flows are spread over: so many (1 to 65,535) from this one on. */
  readonly firstPort: number
  readonly ports: number
  /** Sleeps for a millisecond, blocking: the kernel may have room afterwards. */
  pause(): void
  /** The socket is full: time to call {@link RawSocket.tryAgain} a while later. */
  onFull?(): void
}

export class RawSocket implements UnderlaySocket {
  readonly maxSegments = 1
  readonly senders: number
  readonly #memory: PacketMemory
  readonly #options: RawSocketOptions
  readonly #fragmented: SendBatch
  /** Where the packet is put together. */
  readonly #at: number
  readonly #buffer: Buffer
  readonly #header: OuterHeader
  readonly #headerBytes: number
  #errno = 0
  #pausesLeft = MOST_PAUSES
  readonly #done = (error: Error | null): void => {
    this.#errno = error === null ? 0 : (ERRNOS.get(error.message) ?? EIO)
  }

  constructor(memory: PacketMemory, options: RawSocketOptions) {
    this.#memory = memory
    this.#options = options
    this.senders = options.ports
    this.#fragmented = new SendBatch(memory, 1)
    const room = MOST_HEADER_BYTES + MAX_DATAGRAM_BYTES
    this.#at = memory.reserve(room)
    const { buffer, byteOffset } = memory.bytes
    this.#buffer = Buffer.from(buffer, byteOffset + this.#at, room)
    this.#header = headerOf(memory, this.#at, options)
    this.#headerBytes = this.#header.bytes + udp.HEADER_LEN
  }

  /** Whether a send has had to wait, so that nothing more should be read from the device until {@link tryAgain}. */
  get isFull(): boolean {
    return this.#pausesLeft < MOST_PAUSES
  }

  tryAgain(): void {
    this.#pausesLeft = MOST_PAUSES
  }

  receive(slots: ReceiveSlots): number {
    return this.#options.udpSocket.receive(slots)
  }

  send(batch: SendBatch): void {
    for (let message = 0; message < batch.count; message++) batch.errno[message] = this.#sendOne(batch, message)
  }

  close(): void {
    this.#options.sender.close()
  }

  #sendOne(batch: SendBatch, message: number): number {
    const length = batch.bytes[message]!
    if (length > MAX_DATAGRAM_BYTES) return EMSGSIZE
    const to = batch.address[message]!
    batch.copy(message, this.#memory.bytes, this.#at + this.#headerBytes)
    this.#header.write(udp.HEADER_LEN + length, to, batch.tos[message]!)
    const { firstPort, ports } = this.#options
    this.#writeUdp(udp.HEADER_LEN + length, firstPort + (batch.sender[message]! % ports), batch.port[message]!)
    const errno = this.#sendPacket(this.#headerBytes + length, this.#header.textOf(to))
    return errno === EMSGSIZE ? this.#sendFragmented(batch, message) : errno
  }

  /** Sends what was put together, tried again as often as makes sense. */
  #sendPacket(length: number, address: string): number {
    const { sender } = this.#options
    for (let tries = 1; ; tries++) {
      sender.send(this.#buffer, 0, length, address, this.#done)
      sender.onSendReady()
      const errno = this.#errno
      if (errno === EAGAIN && tries < ROOM_TRIES && this.#pausesLeft > 0) this.#pause()
      else if (errno !== ENOBUFS || tries >= NOBUFS_TRIES) return errno
    }
  }

  #pause(): void {
    if (!this.isFull) this.#options.onFull?.()
    this.#pausesLeft -= 1
    this.#options.pause()
  }

  #writeUdp(bytes: number, source: number, destination: number): void {
    const { view } = this.#memory
    const at = this.#at + this.#header.bytes
    udp.setPorts(view, at, source, destination)
    udp.setLength(view, at, bytes)
    udp.setChecksum(view, at, 0)
    const pseudo = this.#header.sumAddresses() + ipv4.PROTOCOL_UDP + bytes
    udp.setChecksum(view, at, complementUdp(pseudo + this.#memory.sum(at, bytes)))
  }

  /** Too large for the link in one piece, which a raw socket refuses (raw(7)): the kernel's own socket cuts it. */
  #sendFragmented(batch: SendBatch, message: number): number {
    const one = this.#fragmented
    const length = batch.bytes[message]!
    one.clear()
    one.frame(batch.address[message]!, batch.port[message]!, batch.tos[message]!, length, true)
    one.add(this.#at + this.#headerBytes, length)
    this.#options.udpSocket.send(one)
    return one.errno[0]!
  }
}

/** @throws Error for an IPv6 address without anybody to ask for the others */
function headerOf(memory: PacketMemory, at: number, { address, addresses }: RawSocketOptions): OuterHeader {
  if (typeof address === 'number') return new Ipv4OuterHeader(memory, at, address)
  if (addresses === undefined) throw new Error('a raw socket of IPv6 needs to know addresses')
  return new Ipv6OuterHeader(memory, at, address, addresses)
}
