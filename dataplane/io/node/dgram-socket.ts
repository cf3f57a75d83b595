// The dgram driver's end of the underlay: Node's own UDP sockets (node:dgram), one datagram a call, on the event loop
// of the thread that made them. No system call of ours moves a datagram here. Node allocates for every one of them,
// tells what became of a send only later, and shows no control data: congestion marks are neither read nor written.
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram'
import type { PacketMemory } from '../../memory/packet-memory.ts'
import { formatIpv4, formatIpv6, parseIpv4, parseIpv6 } from '../../wire/address.ts'
import * as ipv6 from '../../wire/ipv6.ts'
import { EINPROGRESS, EIO, EMSGSIZE } from '../errno.ts'
import type { ReceiveSlots } from '../receive-slots.ts'
import { MAX_DATAGRAM_BYTES, type SendBatch } from '../send-batch.ts'
import type { SocketAddresses } from '../socket-addresses.ts'
import type { Settled, UnderlaySocket } from '../underlay-socket.ts'

/** Datagrams under way from which on no more should be sent, and at which it may go on. */
const MOST_UNDER_WAY = 512
const FEW_UNDER_WAY = 128
/** Datagrams that may wait for a receive: far more than libuv reads in one turn (32), so that it is never full. */
const MOST_WAITING = 1024

export interface DgramSocketOptions {
  /**
   * Open and bound UDP sockets, which are closed with this one: the first receives, all send when there are others,
   * else the first.
   */
  readonly fd: number
  readonly senderFds?: readonly number[]
  /** Datagrams that the receiving socket's queue has lost, as the kernel counts them. */
  readonly lost?: () => number
  /** For sockets of IPv6: who is behind the numbers of batches and slots. */
  readonly addresses?: SocketAddresses
  /** Datagrams wait to be received, or receiving failed; called once until the next {@link DgramSocket.receive}. */
  onReceivable(): void
  /** After {@link DgramSocket.isFull} was seen: there is room again. */
  onRoom(): void
}

interface Waiting {
  readonly bytes: Uint8Array
  readonly from: RemoteInfo
}

export class DgramSocket implements UnderlaySocket {
  readonly maxSegments = 1
  readonly senders: number
  readonly #memory: PacketMemory
  readonly #options: DgramSocketOptions
  readonly #receiver: Socket
  readonly #sendersOf: readonly Socket[]
  #waiting: Waiting[] = []
  #isAnnounced = false
  /** Datagrams that found no place among the waiting ones. */
  #overflowed = 0
  #failure = 0
  #underWay = 0
  #wasFull = false
  #closed = false
  #settled: (settled: Settled) => void = () => undefined
  readonly #names: Names

  constructor(memory: PacketMemory, options: DgramSocketOptions) {
    this.#memory = memory
    this.#options = options
    this.#names = options.addresses === undefined ? new NarrowNames() : new WideNames(options.addresses)
    const adopt = (fd: number) => adoptSocket(fd, this.#names.family)
    this.#receiver = adopt(options.fd)
    this.#receiver.on('message', (bytes, from) => this.#arrived(bytes, from))
    this.#receiver.on('error', (error) => this.#failed(error))
    const others = (options.senderFds ?? []).map(adopt)
    // What strangers send to them is nobody's business; an error of a send is told to the send.
    for (const socket of others) socket.on('error', () => undefined)
    this.#sendersOf = others.length > 0 ? others : [this.#receiver]
    this.senders = this.#sendersOf.length
  }

  /** Whether so much is under way that no more should be read from the device. */
  get isFull(): boolean {
    if (this.#underWay >= MOST_UNDER_WAY) this.#wasFull = true
    return this.#wasFull
  }

  /** Datagrams that wait to be received. */
  get waiting(): number {
    return this.#waiting.length
  }

  receive(slots: ReceiveSlots): number {
    this.#isAnnounced = false
    const { first } = slots
    const count = Math.min(slots.capacity - first, this.#waiting.length)
    if (count === 0) return this.#takeFailure()
    for (let index = 0; index < count; index++) {
      const { bytes, from } = this.#waiting[index]!
      const slot = first + index
      this.#memory.bytes.set(bytes, slots.at(slot))
      slots.length[slot] = bytes.length
      slots.segmentSize[slot] = 0
      slots.address[slot] = this.#names.numberOf(from.address)
      slots.port[slot] = from.port
      slots.tos[slot] = 0
      slots.truncated[slot] = 0
    }
    this.#waiting.splice(0, count)
    slots.overflowed = this.#overflowed + Math.max(this.#options.lost?.() ?? 0, 0)
    return count
  }

  send(batch: SendBatch): void {
    for (let message = 0; message < batch.count; message++) {
      const length = batch.bytes[message]!
      batch.errno[message] = length > MAX_DATAGRAM_BYTES ? EMSGSIZE : EINPROGRESS
      if (length <= MAX_DATAGRAM_BYTES) this.#sendOne(batch, message)
    }
  }

  tellSettled(listener: (settled: Settled) => void): void {
    this.#settled = listener
  }

  /** Closes all sockets, once. What is still under way is told of yet. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#receiver.close()
    for (const socket of this.#sendersOf) if (socket !== this.#receiver) socket.close()
  }

  #sendOne(batch: SendBatch, message: number): void {
    const serial = batch.firstSerial + message
    const address = batch.address[message]!
    const port = batch.port[message]!
    // The bytes are the engine's again at once, and Node may keep them: a copy.
    const frame = Buffer.allocUnsafe(batch.bytes[message]!)
    batch.copy(message, frame, 0)
    this.#underWay += 1
    const socket = this.#sendersOf[batch.sender[message]! % this.senders]!
    socket.send(frame, port, this.#names.textOf(address), (error: NodeJS.ErrnoException | null) => {
      this.#underWay -= 1
      this.#settled({ serial, address, port, bytes: frame.length, errno: errnoOf(error) })
      if (!this.#wasFull || this.#underWay > FEW_UNDER_WAY) return
      this.#wasFull = false
      this.#options.onRoom()
    })
  }

  #arrived(bytes: Uint8Array, from: RemoteInfo): void {
    if (this.#waiting.length < MOST_WAITING) this.#waiting.push({ bytes, from })
    else this.#overflowed += 1
    this.#announce()
  }

  #failed(error: NodeJS.ErrnoException): void {
    this.#failure = errnoOf(error)
    this.#announce()
  }

  /** -errno of a failed receive, once; else 0. */
  #takeFailure(): number {
    const failure = this.#failure
    this.#failure = 0
    return failure === 0 ? 0 : -failure
  }

  #announce(): void {
    if (this.#isAnnounced) return
    this.#isAnnounced = true
    this.#options.onReceivable()
  }
}

/** Node writes addresses as text, batches and slots carry numbers. The last one is often the next one. */
interface Names {
  readonly family: 4 | 6
  textOf(number: number): string
  numberOf(text: string): number
}

class NarrowNames implements Names {
  readonly family = 4
  #number = 0
  #text = '0.0.0.0'

  textOf(number: number): string {
    if (number !== this.#number) this.#remember(number, formatIpv4(number))
    return this.#text
  }

  numberOf(text: string): number {
    if (text !== this.#text) this.#remember(parseIpv4(text) ?? 0, text)
    return this.#number
  }

  #remember(number: number, text: string): void {
    this.#number = number
    this.#text = text
  }
}

/** Whose number a text is may change with every table: only the address itself is kept. */
class WideNames implements Names {
  readonly family = 6
  readonly #addresses: SocketAddresses
  readonly #address = new DataView(new ArrayBuffer(16))
  #text = '::'
  readonly #wanted = new DataView(new ArrayBuffer(16))

  constructor(addresses: SocketAddresses) {
    this.#addresses = addresses
  }

  textOf(number: number): string {
    const wanted = this.#wanted
    this.#addresses.write(number, wanted, 0)
    const address = ipv6.addressAt(wanted, 0)
    if (address !== ipv6.addressAt(this.#address, 0)) this.#remember(address, formatIpv6(address))
    return this.#text
  }

  numberOf(text: string): number {
    if (text !== this.#text) this.#remember(parseIpv6(text) ?? 0n, text)
    return this.#addresses.numberOf(this.#address, 0)
  }

  #remember(address: bigint, text: string): void {
    ipv6.writeAddress(this.#address, 0, address)
    this.#text = text
  }
}

/** Node's socket around an open descriptor, which is closed with it. @throws Error when it is no UDP socket */
function adoptSocket(fd: number, family: 4 | 6): Socket {
  const socket = createSocket({
    type: family === 4 ? 'udp4' : 'udp6',
    // Addresses are all that is ever sent to: without a turn of the loop for a name.
    lookup: (address, _options, done) => done(null, address, family),
  })
  socket.bind({ fd })
  return socket
}

/** Node's errors carry the negative errno (of libuv, which on Linux is the kernel's). */
function errnoOf(error: NodeJS.ErrnoException | null): number {
  if (error === null) return 0
  return error.errno === undefined ? EIO : Math.abs(error.errno)
}
