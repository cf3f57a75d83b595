// TUN → underlay. How a packet goes, each numbered line a step that can be traced:
//
//   1  read       one packet, or a super-packet that stands for many, with its virtio-net header
//   2  check      version, lengths, virtio-net header against the packet behind it; one like the last (likeness.ts)
//                 goes to 5
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
import type { PacketDevice } from '../io/packet-device.ts'
import { SendBatch } from '../io/send-batch.ts'
import type { Settled, UnderlaySocket } from '../io/underlay-socket.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as udp from '../wire/udp.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { type Counters, cellOf } from './counters.ts'
import { encapsulateEcn } from './ecn.ts'
import { takeHop } from './hop.ts'
import { IcmpAnswer } from './icmp-answer.ts'
import { InnerPacket } from './inner-packet.ts'
import { Likeness } from './likeness.ts'
import { checkOutbound, destinationOf, gsoTypeOf, vnetOf } from './outbound-check.ts'
import { traceRead, traceSend } from './outbound-trace.ts'
import { NARROW_ADDRESSES, type OuterAddresses } from './outer-addresses.ts'
import { OwnSubnets } from './own-subnets.ts'
import { packetId } from './packet-id.ts'
import { PathLimits } from './path-limits.ts'
import { PathRefusals } from './path-refusals.ts'
import type { PeerActivity } from './peer-activity.ts'
import { readAddress } from './read-address.ts'
import { Segmenter } from './segment.ts'
import { senderOf } from './sender-of.ts'
import { countSent, countSettled } from './sent-counts.ts'
import type { EngineSettings } from './settings.ts'
import { completeChecksum } from './transport-checksum.ts'

/** What one read may bring: virtio-net header and the largest IP packet. */
const READ_BYTES = virtioNet.HEADER_LEN + 65535
/**
 * Packets wait for their send in one of two halves: while the rest of a super-packet waits in one, the next is read
 * into the other. Always the same two places, so that they stay in a core's cache.
 */
const HALF_BYTES = 2 * 65536
/** Packets per run, and segments that super-packets are cut into (some are tiny): the other direction gets its turn. */
const BURST = 256
const BURST_SEGMENTS = 64 * BURST

const READ_PACKETS = cellOf('outbound.packets.read')
const READ_BYTES_CELL = cellOf('outbound.bytes.read')
const READ_CALLS = cellOf('outbound.calls.read')
const SUPER_PACKETS = cellOf('outbound.super-packets')
const FOREIGN_SOURCE = cellOf('outbound.foreign-source')
const OVERSIZED = cellOf('outbound.oversized')

export interface OutboundParts {
  readonly memory: PacketMemory
  readonly device: PacketDevice
  readonly socket: UnderlaySocket
  readonly encapsulation: Encapsulation
  readonly counters: Counters
  readonly settings: EngineSettings
  readonly nowMs: () => number
  /** What stands for underlay addresses; IPv4 addresses by themselves when absent. */
  readonly outer?: OuterAddresses
}

export class Outbound {
  readonly #parts: OutboundParts
  readonly #memory: PacketMemory
  readonly #view: DataView
  readonly #counters: Counters
  readonly #encapBytes: number
  readonly #room: number
  #mtu: number
  readonly #batch: SendBatch
  readonly #segmenter: Segmenter
  readonly #icmp: IcmpAnswer
  readonly #limits: PathLimits
  readonly #refusals: PathRefusals | null
  readonly #halves: readonly [number, number]
  #half: number
  #cursor: number
  readonly #packet = new InnerPacket()
  /** The packet before this one, if it went as it was and the next like it will, and its entry. */
  readonly #likeness = new Likeness()
  #likenessEntry = NO_ENTRY
  readonly #own: OwnSubnets
  readonly #activity: PeerActivity
  readonly #outer: OuterAddresses
  #table: ForwardingTable
  /** Signed, as is what is compared with it: an unsigned number above 2^31 is boxed when it is kept. */
  #lastDestination = 0
  #lastTable: ForwardingTable | null = null
  #lastEntry = NO_ENTRY
  #messageSerial = 0
  #segments = 0
  #sink: StepSink | null = null
  readonly #sendBatch = (): void => this.#send()

  constructor(parts: OutboundParts, table: ForwardingTable, activity: PeerActivity) {
    this.#parts = parts
    this.#activity = activity
    this.#outer = parts.outer ?? NARROW_ADDRESSES
    this.#memory = parts.memory
    this.#view = parts.memory.view
    this.#counters = parts.counters
    this.#encapBytes = parts.encapsulation.headerBytes
    this.#room = Math.max(this.#encapBytes, virtioNet.HEADER_LEN)
    this.#mtu = parts.settings.mtuBytes
    this.#batch = new SendBatch(parts.memory, parts.socket.maxSegments)
    this.#segmenter = new Segmenter(parts.memory)
    this.#icmp = new IcmpAnswer(parts)
    const paths = parts.socket.paths ?? null
    this.#limits = new PathLimits({ ...parts, paths, encapBytes: this.#encapBytes, activity })
    this.#refusals =
      paths === null ? null : new PathRefusals(parts.memory, this.#icmp, this.#limits, paths, this.#encapBytes)
    this.#halves = [parts.memory.reserve(HALF_BYTES), parts.memory.reserve(HALF_BYTES)]
    this.#half = this.#halves[0]
    this.#cursor = this.#half
    this.#table = table
    this.#own = new OwnSubnets(parts.settings.subnet, parts.settings.ipv6Subnet)
    parts.socket.tellSettled?.((settled) => this.#settled(settled))
  }

  replaceTable(table: ForwardingTable): void {
    this.#table = table
    this.#limits.replaceTable(table)
    this.#likeness.forget()
  }

  setMtu(mtuBytes: number): void {
    this.#mtu = mtuBytes
    this.#likeness.forget()
  }

  /** Looks whether the ways to peers take more, or less, than they did; costs nothing while none is limited. */
  reviewPaths(): void {
    if (this.#limits.review(this.#mtu)) this.#likeness.forget()
  }

  setSink(sink: StepSink | null): void {
    this.#sink = sink
    this.#likeness.forget()
    this.#icmp.sink = sink
  }

  /**
   * Moves packets until the TUN is empty or the burst is over. Returns packets read, or -errno when the TUN is unwell.
   */
  run(): number {
    const { device } = this.#parts
    let reads = 0
    let error = 0
    this.#segments = 0
    while (reads < BURST && this.#segments < BURST_SEGMENTS) {
      if (this.#cursor > this.#half + HALF_BYTES - this.#room - READ_BYTES) this.#flush()
      if (this.#batch.count === 0) this.#cursor = this.#half
      const at = this.#cursor + this.#room
      const read = device.read(at - virtioNet.HEADER_LEN, READ_BYTES)
      if (read <= 0) {
        error = read
        break
      }
      if (reads++ === 0) this.#activity.look()
      const length = read - virtioNet.HEADER_LEN
      if (this.#likeness.matches(this.#view, at, length)) this.#repeat(at)
      else this.#take(at, length)
    }
    this.#counters.add(READ_CALLS, reads)
    this.#flush()
    return reads > 0 ? reads : error
  }

  /** One packet at `at` that is like the one before: what was found out for that one is true of it. */
  #repeat(at: number): void {
    const packet = this.#packet
    packet.addressesAt += at - packet.at
    packet.at = at
    this.#prepare(0, this.#likenessEntry)
    const bytes = this.#encapBytes + packet.length
    if (this.#batch.repeat(at - this.#encapBytes, bytes)) this.#cursor = at + packet.length
    else this.#add(0, this.#likenessEntry, false)
  }

  /** One packet of `length` bytes at `at`, its virtio-net header in front of it. */
  #take(at: number, length: number): void {
    const sink = this.#sink
    const packet = this.#packet
    this.#likeness.forget()
    const id = sink === null ? 0 : packetId(this.#view, at, length)
    if (sink !== null) traceRead(sink, this.#view, id, at, length)
    const reason = checkOutbound(this.#view, packet, at, length)
    if (reason !== null) {
      this.#drop(reason, id, at, Math.max(length, 0))
      return
    }
    const entry = this.#lookup(id)
    if (entry === NO_ENTRY) {
      this.#drop('no-route', id, at, length)
      this.#icmp.networkUnreachable(id, packet)
      return
    }
    const gsoSize = gsoTypeOf(this.#view, at) === virtioNet.GSO_NONE ? 0 : virtioNet.getGsoSize(this.#view, vnetOf(at))
    const size = gsoSize === 0 ? packet.length : packet.headerBytes + gsoSize
    const limit = this.#limits.count === 0 ? this.#mtu : this.#limits.whole(this.#table.peer(entry), this.#mtu)
    const fits = size <= limit
    sink?.step({ kind: 'fit', id, length: size, mtuBytes: limit })
    if (!fits && !packet.routersMayFragment && size > this.#named(entry)) {
      this.#drop('too-big', id, at, length)
      this.#icmp.tooBig(id, packet, this.#named(entry))
      return
    }
    if (this.#parts.settings.countsHop && !takeHop(this.#memory, packet)) {
      this.#drop('ttl-expired', id, at, length)
      this.#icmp.timeExceeded(id, packet)
      return
    }
    const isOwn = this.#own.containsSource(this.#view, packet)
    if (!isOwn) this.#counters.add(FOREIGN_SOURCE, 1)
    packet.sender = this.#senderFor(fits)
    if (!fits)
      this.#counters.add(OVERSIZED, gsoSize === 0 ? 1 : Math.ceil((packet.length - packet.headerBytes) / gsoSize))
    if (gsoSize !== 0) {
      this.#superPacket(id, gsoSize, entry, !fits)
      return
    }
    if (sink === null && fits && isOwn && !this.#parts.settings.countsHop)
      this.#likeness.remember(this.#view, at, length)
    this.#likenessEntry = entry
    this.#prepare(id, entry)
    this.#add(id, entry, !fits)
  }

  #named(entry: number): number {
    return this.#limits.named(this.#table.peer(entry), this.#mtu)
  }

  /** Where DF is set, what does not fit the way leaves without it. */
  #senderFor(fits: boolean): number {
    const { senders, paths } = this.#parts.socket
    return fits || paths === undefined ? senderOf(this.#view, this.#packet, senders) : paths.fragmentingSender
  }

  /** Step 3. */
  #lookup(id: number): number {
    const entry =
      this.#packet.version === 4 ? this.#lookupIpv4() : this.#table.lookupIpv6(this.#view, destinationOf(this.#packet))
    this.#sink?.step({
      kind: 'lookup',
      id,
      destination: readAddress(this.#view, this.#packet.version, destinationOf(this.#packet)),
      generation: this.#table.generation,
      entry: entry === NO_ENTRY ? null : this.#table.entry(entry),
    })
    return entry
  }

  /** The destination of the last packet is often that of this one. */
  #lookupIpv4(): number {
    const destination = this.#view.getInt32(destinationOf(this.#packet))
    if (destination !== this.#lastDestination || this.#lastTable !== this.#table) {
      this.#lastTable = this.#table
      this.#lastDestination = destination
      this.#lastEntry = this.#table.lookup(destination)
    }
    return this.#lastEntry
  }

  /** Step 5 and the first half of 6 for a packet that goes as it is. */
  #prepare(id: number, entry: number): void {
    const view = this.#view
    const { at, length } = this.#packet
    const vnet = vnetOf(at)
    if ((virtioNet.getFlags(view, vnet) & virtioNet.FLAG_NEEDS_CSUM) !== 0) {
      const start = virtioNet.getChecksumStart(view, vnet)
      const offset = virtioNet.getChecksumOffset(view, vnet)
      completeChecksum(this.#memory, at + start, length - start, at + start + offset, offset === udp.CHECKSUM_OFFSET)
      this.#sink?.step({ kind: 'checksum', id, verdict: 'completed' })
    }
    this.#encapsulate(at, entry)
  }

  /** Step 6, second half, for a packet that goes as it is; what follows its own length in the read is cut. */
  #add(id: number, entry: number, alone: boolean): void {
    const { at, length } = this.#packet
    this.#place(id, at, this.#encapBytes + length, entry, alone)
    this.#batch.add(at - this.#encapBytes, this.#encapBytes + length)
    this.#cursor = at + length
  }

  /**
   * Steps 5 to 7 for a super-packet. What fills whole messages leaves at once; the rest waits for the next read to fill
   * its message up, or to find the TUN empty: half-filled sends cost as much as full ones.
   */
  #superPacket(id: number, gsoSize: number, entry: number, alone: boolean): void {
    const segmenter = this.#segmenter
    const batch = this.#batch
    const encapBytes = this.#encapBytes
    const { at, length, headerBytes } = this.#packet
    segmenter.begin(this.#packet, gsoSize)
    this.#encapsulate(segmenter.template, entry)
    this.#counters.add(SUPER_PACKETS, 1)
    this.#segments += segmenter.count
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
      this.#place(segmentId, header, encapBytes + headerBytes + payloadLength, entry, alone)
      batch.addPair(header - encapBytes, encapBytes + headerBytes, payloadAt, payloadLength)
    }
    this.#cursor = at + length
    if (!batch.isOpen) this.#flush()
    else if (batch.sendAllButLast(this.#sendBatch)) this.#changeHalf()
  }

  /** Step 6, first half: the tunnel header in front of the inner packet at `at`. */
  #encapsulate(at: number, entry: number): void {
    this.#parts.encapsulation.write(this.#view, at - this.#encapBytes, this.#table, entry, this.#packet.version)
  }

  /** Step 6, second half: a place in the batch for a frame of `bytes` around the inner packet at `at`. */
  #place(id: number, at: number, bytes: number, entry: number, alone: boolean): void {
    const tos = encapsulateEcn(this.#packet.tos)
    const address = this.#table.peer(entry)
    const port = this.#table.port(entry)
    const { sender } = this.#packet
    if (!this.#batch.frame(address, port, tos, bytes, alone, sender)) {
      this.#send()
      this.#batch.frame(address, port, tos, bytes, alone, sender)
    }
    if (this.#sink === null) return
    const message = this.#messageSerial + this.#batch.current + 1
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
    batch.firstSerial = this.#messageSerial + 1
    this.#parts.socket.send(batch)
    countSent(this.#counters, batch, this.#encapBytes, this.#activity)
    for (let message = 0; this.#sink !== null && message < batch.count; message++) {
      traceSend(this.#sink, batch, message, this.#outer)
    }
    if (this.#refusals?.heed(batch, this.#mtu)) this.#likeness.forget()
    this.#messageSerial += batch.count
    batch.clear()
  }

  /** Step 7 for a message that was under way. */
  #settled(settled: Settled): void {
    countSettled(this.#counters, settled, this.#encapBytes)
    if (this.#sink === null) return
    const { serial, address, ...rest } = settled
    const to = this.#outer.addressOf(address)
    this.#sink.step({ kind: 'send', message: serial, packets: 1, segmentSize: 0, address: to, ...rest })
  }

  #drop(reason: DropReason, id: number, at: number, length: number): void {
    this.#counters.add(READ_PACKETS, 1)
    this.#counters.add(READ_BYTES_CELL, length)
    this.#counters.drop('outbound', reason, 1, length)
    this.#sink?.step({ kind: 'drop', id, direction: 'outbound', reason, at, length })
  }
}
