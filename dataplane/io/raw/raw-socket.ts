// The raw driver's end of the underlay: outer IPv4 and UDP headers of our own, sent through the npm package raw-socket
// (raw(7), IPPROTO_RAW). Receiving is left to an ordinary UDP socket on the service port, and so is what needs outer
// fragments. Slower than the others: a call, a copy and a callback for each packet.
import { complement, complementUdp, type PacketMemory } from '../../memory/packet-memory.ts'
import { formatIpv4 } from '../../wire/address.ts'
import * as ipv4 from '../../wire/ipv4.ts'
import * as udp from '../../wire/udp.ts'
import { EACCES, EAGAIN, EHOSTUNREACH, EINVAL, EIO, EMSGSIZE, ENETDOWN, ENETUNREACH, ENOBUFS, EPERM } from '../errno.ts'
import type { ReceiveSlots } from '../receive-slots.ts'
import { MAX_DATAGRAM_BYTES, SendBatch } from '../send-batch.ts'
import type { UnderlaySocket } from '../underlay-socket.ts'
import type { RawSender } from './raw-package.ts'

const HEADER_BYTES = ipv4.HEADER_LEN + udp.HEADER_LEN
const TTL = 64
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
  /** Own underlay address, unsigned 32-bit. */
  readonly address: number
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
  #identification = 0
  #lastAddress = 0
  #lastText = '0.0.0.0'
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
    this.#at = memory.reserve(HEADER_BYTES + MAX_DATAGRAM_BYTES)
    const { buffer, byteOffset } = memory.bytes
    this.#buffer = Buffer.from(buffer, byteOffset + this.#at, HEADER_BYTES + MAX_DATAGRAM_BYTES)
    this.#prepareHeader()
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

  /** What is the same for every datagram. */
  #prepareHeader(): void {
    ipv4.emit(
      {
        ...{ version: 4, headerWords: ipv4.HEADER_LEN / 4, dscp: 0, ecn: 0, totalLength: 0 },
        ...{ identification: 0, flags: 0, fragmentOffset: 0, ttl: TTL, protocol: ipv4.PROTOCOL_UDP, checksum: 0 },
        ...{ source: this.#options.address, destination: 0, options: new Uint8Array(0) },
      },
      this.#memory.bytes,
      this.#at,
    )
  }

  #sendOne(batch: SendBatch, message: number): number {
    const length = batch.bytes[message]!
    if (length > MAX_DATAGRAM_BYTES) return EMSGSIZE
    batch.copy(message, this.#memory.bytes, this.#at + HEADER_BYTES)
    this.#writeIpv4(HEADER_BYTES + length, batch.address[message]!, batch.tos[message]!)
    const { firstPort, ports } = this.#options
    this.#writeUdp(udp.HEADER_LEN + length, firstPort + (batch.sender[message]! % ports), batch.port[message]!)
    const errno = this.#sendPacket(HEADER_BYTES + length, this.#textOf(batch.address[message]!))
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

  #writeIpv4(totalBytes: number, destination: number, tos: number): void {
    const { view } = this.#memory
    const at = this.#at
    // Zero would let the kernel choose.
    this.#identification = (this.#identification % 0xffff) + 1
    ipv4.setTos(view, at, tos)
    ipv4.setTotalLength(view, at, totalBytes)
    ipv4.setIdentification(view, at, this.#identification)
    ipv4.setDestination(view, at, destination)
    ipv4.setChecksum(view, at, 0)
    ipv4.setChecksum(view, at, complement(this.#memory.sum(at, ipv4.HEADER_LEN)))
  }

  #writeUdp(bytes: number, source: number, destination: number): void {
    const { view } = this.#memory
    const at = this.#at + ipv4.HEADER_LEN
    udp.setPorts(view, at, source, destination)
    udp.setLength(view, at, bytes)
    udp.setChecksum(view, at, 0)
    const addresses = this.#memory.sum(this.#at + ipv4.SOURCE_OFFSET, ipv4.HEADER_LEN - ipv4.SOURCE_OFFSET)
    const pseudo = addresses + ipv4.PROTOCOL_UDP + bytes
    udp.setChecksum(view, at, complementUdp(pseudo + this.#memory.sum(at, bytes)))
  }

  /** Too large for the link in one piece, which a raw socket refuses (raw(7)): the kernel's own socket cuts it. */
  #sendFragmented(batch: SendBatch, message: number): number {
    const one = this.#fragmented
    const length = batch.bytes[message]!
    one.clear()
    one.frame(batch.address[message]!, batch.port[message]!, batch.tos[message]!, length, true)
    one.add(this.#at + HEADER_BYTES, length)
    this.#options.udpSocket.send(one)
    return one.errno[0]!
  }

  #textOf(address: number): string {
    if (address !== this.#lastAddress) {
      this.#lastAddress = address
      this.#lastText = formatIpv4(address)
    }
    return this.#lastText
  }
}
