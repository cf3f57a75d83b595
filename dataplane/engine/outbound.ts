// TUN → underlay. How a packet goes, each numbered line a step that can be traced:
//
//   1  read       one packet, or a super-packet that stands for many, with its virtio-net header
//   2  check      version, lengths, virtio-net header against the packet behind it
//   3  lookup     longest prefix → remote VTEP; a miss is answered with ICMP
//   4  fit        larger than the MTU: answered with ICMP (DF), or sent alone for the underlay to fragment
//   5  segment    a super-packet is cut; an open checksum is completed
//   6  encap      tunnel header in front, in the headroom; equal-sized frames to one peer join one message
//   7  send       full messages go out at once, the rest when the TUN is empty or the memory is full
//
// Memory: packets are read one behind the other so that each one's tunnel header ends where the packet starts and
// starts where the previous frame ends. A train of small packets is thus one piece of memory: nothing is copied and
// one iovec covers it. Bytes belong to the batch until it is sent.
import type { DropReason } from '../drop-reason.ts'
import type { Encapsulation } from '../encap/encapsulation.ts'
import { type ForwardingTable, NO_ENTRY } from '../forwarding/forwarding-table.ts'
import { reasonForSendErrno } from '../io/errno.ts'
import type { PacketDevice } from '../io/packet-device.ts'
import { SendBatch } from '../io/send-batch.ts'
import type { UnderlaySocket } from '../io/underlay-socket.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as ipv4 from '../wire/ipv4.ts'
import { containsAddress } from '../wire/prefix.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { type Counters, cellOf } from './counters.ts'
import { encapsulateEcn } from './ecn.ts'
import { IcmpAnswer } from './icmp-answer.ts'
import { packetId } from './packet-id.ts'
import { Segmenter } from './segment.ts'
import type { EngineSettings } from './settings.ts'
import { completeChecksum } from './transport-checksum.ts'

/** What one read may bring: virtio-net header and the largest IP packet. */
const READ_BYTES = virtioNet.HEADER_LEN + 65535
/**
 * Packets wait for their send in one of two halves: while the rest of a super-packet waits in one, the next is read into
 * the other. Always the same two places, so that they stay in a core's cache.
 */
const HALF_BYTES = 2 * 65536
/** Packets per run, so that the other direction gets its turn. */
const BURST = 256

const READ_PACKETS = cellOf('outbound.packets.read')
const READ_BYTES_CELL = cellOf('outbound.bytes.read')
const PASSED_PACKETS = cellOf('outbound.packets.passed')
const PASSED_BYTES = cellOf('outbound.bytes.passed')
const READ_CALLS = cellOf('outbound.calls.read')
const SEND_CALLS = cellOf('outbound.calls.send')
const MESSAGES_SENT = cellOf('outbound.messages.sent')
const SUPER_PACKETS = cellOf('outbound.super-packets')
const FOREIGN_SOURCE = cellOf('outbound.foreign-source')

export interface OutboundParts {
  readonly memory: PacketMemory
  readonly device: PacketDevice
  readonly socket: UnderlaySocket
  readonly encapsulation: Encapsulation
  readonly counters: Counters
  readonly settings: EngineSettings
  readonly nowMs: () => number
}

export class Outbound {
  readonly #parts: OutboundParts
  readonly #memory: PacketMemory
  readonly #view: DataView
  readonly #counters: Counters
  readonly #encapBytes: number
  readonly #room: number
  readonly #mtu: number
  readonly #batch: SendBatch
  readonly #segmenter: Segmenter
  readonly #icmp: IcmpAnswer
  readonly #halves: readonly [number, number]
  #half: number
  #cursor: number
  #table: ForwardingTable
  #lastDestination = -1
  #lastEntry = NO_ENTRY
  #messageSerial = 0
  #sink: StepSink | null = null
  readonly #sendBatch = (): void => this.#send()

  constructor(parts: OutboundParts, table: ForwardingTable) {
    this.#parts = parts
    this.#memory = parts.memory
    this.#view = parts.memory.view
    this.#counters = parts.counters
    this.#encapBytes = parts.encapsulation.headerBytes
    this.#room = Math.max(this.#encapBytes, virtioNet.HEADER_LEN)
    this.#mtu = parts.settings.mtuBytes
    this.#batch = new SendBatch(parts.memory, parts.socket.maxSegments)
    this.#segmenter = new Segmenter(parts.memory)
    const source = parts.settings.overlayAddress
    this.#icmp = new IcmpAnswer(parts.memory, parts.device, parts.counters, { source, nowMs: parts.nowMs })
    this.#halves = [parts.memory.reserve(HALF_BYTES), parts.memory.reserve(HALF_BYTES)]
    this.#half = this.#halves[0]
    this.#cursor = this.#half
    this.#table = table
  }

  replaceTable(table: ForwardingTable): void {
    this.#table = table
    this.#lastDestination = -1
  }

  setSink(sink: StepSink | null): void {
    this.#sink = sink
    this.#icmp.sink = sink
  }

  /** Moves packets until the TUN is empty or the burst is over. Returns packets read, or -errno when the TUN is unwell. */
  run(): number {
    const { device } = this.#parts
    let reads = 0
    let error = 0
    while (reads < BURST) {
      if (this.#cursor > this.#half + HALF_BYTES - this.#room - READ_BYTES) this.#flush()
      if (this.#batch.count === 0) this.#cursor = this.#half
      const at = this.#cursor + this.#room
      const read = device.read(at - virtioNet.HEADER_LEN, READ_BYTES)
      if (read <= 0) {
        error = read
        break
      }
      reads++
      this.#packet(at, read - virtioNet.HEADER_LEN)
    }
    this.#counters.add(READ_CALLS, reads)
    this.#flush()
    return reads > 0 ? reads : error
  }

  /** One packet of `length` bytes at `at`, its virtio-net header in front of it. */
  #packet(at: number, length: number): void {
    const vnet = at - virtioNet.HEADER_LEN
    const sink = this.#sink
    const id = sink === null ? 0 : packetId(this.#view, at, length)
    if (sink !== null) this.#traceRead(sink, id, at, length)
    const reason = this.#check(at, length)
    if (reason !== null) {
      this.#drop(reason, id, at, Math.max(length, 0))
      return
    }
    const entry = this.#lookup(id, at)
    if (entry === NO_ENTRY) {
      this.#drop('no-route', id, at, length)
      this.#icmp.networkUnreachable(id, at)
      return
    }
    const gsoSize = gsoTypeOf(this.#view, vnet) === virtioNet.GSO_NONE ? 0 : virtioNet.getGsoSize(this.#view, vnet)
    const size = gsoSize === 0 ? ipv4.getTotalLength(this.#view, at) : this.#headerBytes(at) + gsoSize
    const fits = size <= this.#mtu
    sink?.step({ kind: 'fit', id, length: size, mtuBytes: this.#mtu })
    if (!fits && (ipv4.getFragmentWord(this.#view, at) & ipv4.DONT_FRAGMENT) !== 0) {
      this.#drop('too-big', id, at, length)
      this.#icmp.fragmentationNeeded(id, at, this.#mtu)
      return
    }
    if (!containsAddress(this.#parts.settings.subnet, ipv4.getSource(this.#view, at))) {
      this.#counters.add(FOREIGN_SOURCE, 1)
    }
    if (gsoSize === 0) this.#single(id, at, size, entry, !fits)
    else this.#superPacket(id, at, length, gsoSize, entry, !fits)
  }

  /** Step 2: is this a whole IPv4 packet, and does its virtio-net header tell the truth? */
  #check(at: number, length: number): DropReason | null {
    const view = this.#view
    if (length < 1) return 'truncated'
    const version = ipv4.getVersion(view, at)
    if (version !== 4) return version === 6 ? 'ipv6-unsupported' : 'not-ip'
    if (length < ipv4.HEADER_LEN) return 'truncated'
    const headerBytes = ipv4.getHeaderBytes(view, at)
    const total = ipv4.getTotalLength(view, at)
    if (headerBytes < ipv4.HEADER_LEN || total < headerBytes) return 'bad-header-length'
    if (total > length) return 'truncated'
    const destination = ipv4.getDestination(view, at)
    // 224.0.0.0/4 and beyond, 169.254.0.0/16: noise of the host, never for a lease.
    if (destination >>> 28 >= 14 || destination >>> 16 === 0xa9fe) return 'link-local-or-multicast'
    const vnet = at - virtioNet.HEADER_LEN
    const gsoType = gsoTypeOf(view, vnet)
    if (gsoType !== virtioNet.GSO_NONE)
      return this.#superPacketIsSound(at, length, gsoType) ? null : 'vnet-inconsistent'
    if ((virtioNet.getFlags(view, vnet) & virtioNet.FLAG_NEEDS_CSUM) === 0) return null
    const start = virtioNet.getChecksumStart(view, vnet)
    const field = start + virtioNet.getChecksumOffset(view, vnet)
    return start < headerBytes || field + 2 > total ? 'vnet-inconsistent' : null
  }

  /** A super-packet's type, sizes and headers agree. `hdr_len` is not looked at: kernels fill it with other things. */
  #superPacketIsSound(at: number, length: number, gsoType: number): boolean {
    const view = this.#view
    const protocol = ipv4.getProtocol(view, at)
    const expected = protocol === ipv4.PROTOCOL_TCP ? virtioNet.GSO_TCPV4 : virtioNet.GSO_UDP_L4
    if (gsoType !== expected || (protocol !== ipv4.PROTOCOL_TCP && protocol !== ipv4.PROTOCOL_UDP)) return false
    if (virtioNet.getGsoSize(view, at - virtioNet.HEADER_LEN) === 0) return false
    if ((ipv4.getFragmentWord(view, at) & ~ipv4.DONT_FRAGMENT) !== 0) return false
    const ipBytes = ipv4.getHeaderBytes(view, at)
    const transportBytes = protocol === ipv4.PROTOCOL_TCP ? tcp.HEADER_LEN : udp.HEADER_LEN
    if (ipBytes + transportBytes > length || ipv4.getTotalLength(view, at) !== length) return false
    const headerBytes = this.#headerBytes(at)
    return headerBytes >= ipBytes + transportBytes && headerBytes < length
  }

  /** IPv4 and transport header together; the caller knows that it is TCP or UDP and that a minimal header is there. */
  #headerBytes(at: number): number {
    const ipBytes = ipv4.getHeaderBytes(this.#view, at)
    if (ipv4.getProtocol(this.#view, at) !== ipv4.PROTOCOL_TCP) return ipBytes + udp.HEADER_LEN
    return ipBytes + tcp.getHeaderBytes(this.#view, at + ipBytes)
  }

  /** Step 3. */
  #lookup(id: number, at: number): number {
    const destination = ipv4.getDestination(this.#view, at)
    if (destination !== this.#lastDestination) {
      this.#lastDestination = destination
      this.#lastEntry = this.#table.lookup(destination)
    }
    const entry = this.#lastEntry
    this.#sink?.step({
      kind: 'lookup',
      id,
      destination,
      generation: this.#table.generation,
      entry: entry === NO_ENTRY ? null : this.#table.entry(entry),
    })
    return entry
  }

  /** Steps 5 and 6 for a packet that goes as it is: `length` is its IP length; what follows it in the read is cut. */
  #single(id: number, at: number, length: number, entry: number, alone: boolean): void {
    const view = this.#view
    const vnet = at - virtioNet.HEADER_LEN
    if ((virtioNet.getFlags(view, vnet) & virtioNet.FLAG_NEEDS_CSUM) !== 0) {
      const start = virtioNet.getChecksumStart(view, vnet)
      const offset = virtioNet.getChecksumOffset(view, vnet)
      completeChecksum(this.#memory, at + start, length - start, at + start + offset, offset === udp.CHECKSUM_OFFSET)
      this.#sink?.step({ kind: 'checksum', id, verdict: 'completed' })
    }
    this.#frame(id, at, length, entry, alone)
    this.#batch.add(at - this.#encapBytes, this.#encapBytes + length)
    this.#cursor = at + length
  }

  /**
   * Steps 5 to 7 for a super-packet. What fills whole messages leaves at once; the rest waits for the next read to fill
   * its message up, or to find the TUN empty: half-filled sends cost as much as full ones.
   */
  #superPacket(id: number, at: number, length: number, gsoSize: number, entry: number, alone: boolean): void {
    const segmenter = this.#segmenter
    const headerBytes = this.#headerBytes(at)
    segmenter.begin(at, ipv4.getHeaderBytes(this.#view, at), headerBytes, length, gsoSize)
    this.#counters.add(SUPER_PACKETS, 1)
    for (let index = 0; index < segmenter.count; index++) {
      if (segmenter.isFull) this.#flush()
      const header = segmenter.build(index)
      const payloadAt = segmenter.payloadAt(index)
      const payloadLength = segmenter.payloadLength(index)
      let segmentId = 0
      if (this.#sink !== null) {
        segmentId = packetId(this.#view, header, headerBytes + payloadLength, payloadAt)
        const piece = { index, at: header, headerLength: headerBytes, payloadAt, payloadLength }
        this.#sink.step({ kind: 'segment', id: segmentId, parent: id, ...piece })
      }
      this.#frame(segmentId, header, headerBytes + payloadLength, entry, alone)
      this.#batch.add(header - this.#encapBytes, this.#encapBytes + headerBytes)
      this.#batch.add(payloadAt, payloadLength)
    }
    this.#cursor = at + length
    if (!this.#batch.isOpen) this.#flush()
    else if (this.#batch.sendAllButLast(this.#sendBatch)) this.#changeHalf()
  }

  /** Step 6: a place in the batch for the packet at `at`, and the tunnel header in front of it. */
  #frame(id: number, at: number, length: number, entry: number, alone: boolean): void {
    const table = this.#table
    const tos = encapsulateEcn(ipv4.getTos(this.#view, at))
    const bytes = this.#encapBytes + length
    // As a signed number: an unsigned one above 2^31 would be boxed on its way into the call, once a packet.
    const address = table.underlayAddress(entry) | 0
    const port = table.port(entry)
    if (!this.#batch.frame(address, port, tos, bytes, alone)) {
      this.#send()
      this.#batch.frame(address, port, tos, bytes, alone)
    }
    this.#parts.encapsulation.write(this.#view, at - this.#encapBytes, table, entry)
    if (this.#sink === null) return
    const message = this.#messageSerial + this.#batch.count
    const frame = { at: at - this.#encapBytes, headerLength: this.#encapBytes, outerTos: tos, message }
    this.#sink.step({ kind: 'encap', id, ...frame })
  }

  /** What is left of the batch lies in this half, all of it: the other one is free. */
  #changeHalf(): void {
    this.#half = this.#half === this.#halves[0] ? this.#halves[1] : this.#halves[0]
    this.#cursor = this.#half
  }

  /** Step 7, and all memory is free again. */
  #flush(): void {
    this.#send()
    this.#segmenter.reset()
  }

  /** Sends the batch and counts what became of each message: read and passed (or dropped) change together. */
  #send(): void {
    const batch = this.#batch
    if (batch.count === 0) return
    this.#parts.socket.send(batch)
    this.#counters.add(SEND_CALLS, 1)
    for (let message = 0; message < batch.count; message++) {
      const packets = batch.packets[message]!
      const bytes = batch.bytes[message]! - packets * this.#encapBytes
      this.#counters.add(READ_PACKETS, packets)
      this.#counters.add(READ_BYTES_CELL, bytes)
      const errno = batch.errno[message]!
      if (errno === 0) {
        this.#counters.add(PASSED_PACKETS, packets)
        this.#counters.add(PASSED_BYTES, bytes)
        this.#counters.add(MESSAGES_SENT, 1)
      } else {
        this.#counters.drop('outbound', reasonForSendErrno(errno), packets, bytes)
      }
      if (this.#sink !== null) this.#traceSend(this.#sink, message, errno)
    }
    this.#messageSerial += batch.count
    batch.clear()
  }

  #drop(reason: DropReason, id: number, at: number, length: number): void {
    this.#counters.add(READ_PACKETS, 1)
    this.#counters.add(READ_BYTES_CELL, length)
    this.#counters.drop('outbound', reason, 1, length)
    this.#sink?.step({ kind: 'drop', id, direction: 'outbound', reason, at, length })
  }

  #traceRead(sink: StepSink, id: number, at: number, length: number): void {
    const vnet = at - virtioNet.HEADER_LEN
    sink.step({
      kind: 'tun-read',
      id,
      at,
      length,
      gsoType: virtioNet.getGsoType(this.#view, vnet),
      gsoSize: virtioNet.getGsoSize(this.#view, vnet),
      needsChecksum: (virtioNet.getFlags(this.#view, vnet) & virtioNet.FLAG_NEEDS_CSUM) !== 0,
    })
  }

  #traceSend(sink: StepSink, message: number, errno: number): void {
    const batch = this.#batch
    sink.step({
      kind: 'send',
      message: this.#messageSerial + message + 1,
      address: batch.address[message]!,
      port: batch.port[message]!,
      packets: batch.packets[message]!,
      bytes: batch.bytes[message]!,
      segmentSize: batch.segmentSize(message),
      errno,
    })
  }
}

/** GSO type without the ECN bit, which only says that CWR may be set. */
function gsoTypeOf(view: DataView, vnet: number): number {
  return virtioNet.getGsoType(view, vnet) & ~virtioNet.GSO_ECN
}
