// Underlay → TUN. How a packet goes, each numbered line a step that can be traced:
//
//   1  receive    a batch of datagrams; a train that the kernel merged is cut into its frames
//   2  decap      tunnel header: ours, for us; inner IPv4 header whole and sound; padding cut
//   3  source     the outer source must hold the lease in which the inner source lies
//   4  ecn        congestion marks of the outer header are carried over
//   5  checksum   TCP and UDP verified; left open by a kernel next door: passed on as open
//   6  merge      consecutive packets of a flow become one super-packet (coalesce.ts)
//   7  write      into the TUN (tun-writer.ts)
//
// Two things that a kernel VTEP next door (over veth) sends need care: packets whose checksum field holds only the
// pseudo-header sum, and super-packets of up to 64 KiB in one datagram. Neither is damage: both are work left to us.
import type { DropReason } from '../drop-reason.ts'
import type { Encapsulation } from '../encap/encapsulation.ts'
import { type ForwardingTable, NO_ENTRY } from '../forwarding/forwarding-table.ts'
import { ReceiveSlots } from '../io/receive-slots.ts'
import type { UnderlaySocket } from '../io/underlay-socket.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as ipv4 from '../wire/ipv4.ts'
import { containsAddress } from '../wire/prefix.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { Coalescer } from './coalesce.ts'
import { type Counters, cellOf } from './counters.ts'
import { decapsulateEcn, ECN_ILLEGAL, ECN_MASK } from './ecn.ts'
import type { OutboundParts } from './outbound.ts'
import { packetId } from './packet-id.ts'
import type { EngineSettings } from './settings.ts'
import {
  CHECKSUM_BAD,
  CHECKSUM_GOOD,
  CHECKSUM_PARTIAL,
  CHECKSUM_UNUSED,
  checksumOffsetOf,
  headerChecksumIsGood,
  setHeaderChecksum,
  verifyTransport,
} from './transport-checksum.ts'
import { TunWriter } from './tun-writer.ts'

/** Datagrams, or trains of them, that one receive may bring. */
const SLOTS = 16
/** Slots that may be in hand when another receive is tried: the same few are used again and stay in a core's cache. */
const SLOTS_IN_HAND = 4
/** Datagrams per run, so that the other direction gets its turn. */
const BURST = 256

const READ_PACKETS = cellOf('inbound.packets.read')
const READ_BYTES = cellOf('inbound.bytes.read')
const RECEIVE_CALLS = cellOf('inbound.calls.receive')
const PARTIAL = cellOf('inbound.checksum.partial')
const BAD = cellOf('inbound.checksum.bad')
const OVERFLOWED = cellOf('socket.overflowed')

const VERDICTS = { [CHECKSUM_GOOD]: 'verified', [CHECKSUM_PARTIAL]: 'partial', [CHECKSUM_UNUSED]: 'unused' } as const

export class Inbound {
  readonly #memory: PacketMemory
  readonly #view: DataView
  readonly #socket: UnderlaySocket
  readonly #encapsulation: Encapsulation
  readonly #encapBytes: number
  readonly #counters: Counters
  readonly #settings: EngineSettings
  readonly #slots: ReceiveSlots
  readonly #writer: TunWriter
  readonly #coalescer: Coalescer
  #table: ForwardingTable
  #lastOuter = -1
  #lastInner = -1
  #datagramSerial = 0
  #sink: StepSink | null = null

  constructor(parts: OutboundParts, table: ForwardingTable) {
    this.#memory = parts.memory
    this.#view = parts.memory.view
    this.#socket = parts.socket
    this.#encapsulation = parts.encapsulation
    this.#encapBytes = parts.encapsulation.headerBytes
    this.#counters = parts.counters
    this.#settings = parts.settings
    this.#slots = new ReceiveSlots(parts.memory, SLOTS)
    this.#writer = new TunWriter(parts.memory, parts.device, parts.counters)
    this.#coalescer = new Coalescer(parts.memory, this.#writer, { mergeUdp: parts.settings.mergeUdp })
    this.#table = table
  }

  replaceTable(table: ForwardingTable): void {
    this.#table = table
    this.#lastOuter = -1
  }

  setSink(sink: StepSink | null): void {
    this.#sink = sink
    this.#writer.sink = sink
    this.#coalescer.sink = sink
  }

  /**
   * Moves datagrams until the socket is empty or the burst is over. What arrives while a batch is worked on goes into the
   * slots behind it, so that packets of a flow are joined across receives; only when the slots are used up, or nothing
   * more is there, is everything written. Returns how many datagrams, or -errno when the socket is unwell.
   */
  run(): number {
    const slots = this.#slots
    let total = 0
    let error = 0
    slots.first = 0
    while (total < BURST) {
      const received = this.#socket.receive(slots)
      if (received <= 0) {
        error = received
        break
      }
      this.#counters.add(RECEIVE_CALLS, 1)
      this.#counters.cells[OVERFLOWED] = slots.overflowed
      const end = slots.first + received
      for (let slot = slots.first; slot < end; slot++) this.#datagram(slot)
      total += received
      slots.first = end
      if (end < SLOTS_IN_HAND) continue
      this.#coalescer.flushAll()
      slots.first = 0
    }
    this.#coalescer.flushAll()
    return total > 0 ? total : error
  }

  /** Step 1: one datagram, or the frames of a train. */
  #datagram(slot: number): void {
    const slots = this.#slots
    const at = slots.at(slot)
    const length = slots.length[slot]!
    const segmentSize = slots.segmentSize[slot]!
    this.#datagramSerial += 1
    if (this.#sink !== null) this.#traceReceive(this.#sink, slot)
    if (slots.truncated[slot] === 1) {
      this.#drop('rx-truncated', 0, at, length)
      return
    }
    if (segmentSize === 0 || segmentSize >= length || this.#isOneFrame(at, length)) {
      this.#frame(slot, at, length, segmentSize)
      return
    }
    for (let done = 0; done < length; done += segmentSize) {
      this.#frame(slot, at + done, Math.min(segmentSize, length - done), 0)
    }
  }

  /**
   * Not every large datagram with a segment size is a train: a kernel VTEP next door whose pod sent with UDP_SEGMENT
   * delivers one frame, and the size is that of the inner segments. The inner length tells.
   */
  #isOneFrame(at: number, length: number): boolean {
    if (length < this.#encapBytes + ipv4.HEADER_LEN) return false
    return this.#encapBytes + ipv4.getTotalLength(this.#view, at + this.#encapBytes) === length
  }

  /** Steps 2 to 4 for one frame of `length` bytes at `at`; `segmentSize` is that of inner segments, 0 for none. */
  #frame(slot: number, at: number, length: number, segmentSize: number): void {
    const inner = at + this.#encapBytes
    const sink = this.#sink
    const id = sink === null ? 0 : packetId(this.#view, inner, Math.max(0, length - this.#encapBytes))
    let reason = this.#checkFrame(at, length)
    if (reason === null) {
      sink?.step({ kind: 'decap', id, datagram: this.#datagramSerial, at: inner, length: length - this.#encapBytes })
      reason = this.#checkSource(id, slot, inner) ?? this.#combineEcn(id, inner, this.#slots.tos[slot]!)
    }
    if (reason === null) this.#deliver(id, inner, length, segmentSize)
    else this.#drop(reason, id, at, length)
  }

  /** Step 2: tunnel header, then the inner IPv4 header: a whole packet lies behind it. */
  #checkFrame(at: number, length: number): DropReason | null {
    const view = this.#view
    const reason = this.#encapsulation.check(view, at, length)
    if (reason !== null) return reason
    const inner = at + this.#encapBytes
    const left = length - this.#encapBytes
    if (left < ipv4.HEADER_LEN) return 'truncated'
    if (ipv4.getVersion(view, inner) !== 4) return 'bad-version'
    const headerBytes = ipv4.getHeaderBytes(view, inner)
    const total = ipv4.getTotalLength(view, inner)
    if (headerBytes < ipv4.HEADER_LEN || total < headerBytes) return 'bad-header-length'
    if (total > left) return 'truncated'
    return headerChecksumIsGood(this.#memory, inner, headerBytes) ? null : 'bad-checksum'
  }

  /** Step 3. The pair that was right last time is right again until the table changes. */
  #checkSource(id: number, slot: number, inner: number): DropReason | null {
    const mode = this.#settings.sourceCheck
    const outerSource = this.#slots.address[slot]!
    const source = ipv4.getSource(this.#view, inner)
    if (mode === 'off') return null
    if (!containsAddress(this.#settings.subnet, ipv4.getDestination(this.#view, inner))) {
      return 'inner-destination-foreign'
    }
    if (outerSource === this.#lastOuter && source === this.#lastInner && this.#sink === null) return null
    const entry = this.#table.lookup(source)
    if (this.#sink !== null) this.#traceSource(this.#sink, id, source, entry)
    const holds = entry !== NO_ENTRY && this.#table.underlayAddress(entry) === outerSource
    if (!holds && (mode === 'strict' || !this.#table.hasPeer(outerSource))) {
      return this.#table.hasPeer(outerSource) ? 'inner-source-spoofed' : 'unknown-peer'
    }
    this.#lastOuter = outerSource
    this.#lastInner = source
    return null
  }

  /** Step 4. Unless the combination is illegal, the inner header now says what RFC 6040 wants it to say. */
  #combineEcn(id: number, inner: number, outerTos: number): DropReason | null {
    const tos = ipv4.getTos(this.#view, inner)
    const before = tos & ECN_MASK
    const outer = outerTos & ECN_MASK
    const after = decapsulateEcn(before, outer)
    if (after === ECN_ILLEGAL) return 'ecn-illegal'
    if (after !== before) {
      ipv4.setTos(this.#view, inner, (tos & ~ECN_MASK) | after)
      setHeaderChecksum(this.#memory, inner, ipv4.getHeaderBytes(this.#view, inner))
    }
    this.#sink?.step({ kind: 'ecn', id, innerBefore: before, outer, inner: after })
    return null
  }

  /** Steps 5 to 7: what follows `total` bytes is Ethernet padding and is cut here. */
  #deliver(id: number, inner: number, frameBytes: number, segmentSize: number): void {
    const view = this.#view
    const total = ipv4.getTotalLength(view, inner)
    const protocol = ipv4.getProtocol(view, inner)
    if (!this.#isWholeTransport(inner, total, protocol)) {
      // Fragments, other protocols, and transport headers that make no sense: the pod's stack judges, in order.
      this.#coalescer.flushHosts(ipv4.getSource(view, inner), ipv4.getDestination(view, inner), protocol)
      this.#writer.setPlain()
      this.#writer.writeOne(id, inner, total, frameBytes)
      return
    }
    const ipBytes = ipv4.getHeaderBytes(view, inner)
    const state = verifyTransport(this.#memory, inner, inner + ipBytes, total - ipBytes, protocol)
    if (this.#sink !== null) {
      this.#sink.step({ kind: 'checksum', id, verdict: state === CHECKSUM_BAD ? 'bad' : VERDICTS[state as 0 | 1 | 2] })
    }
    if (state === CHECKSUM_PARTIAL) {
      this.#counters.add(PARTIAL, 1)
      if (total > this.#settings.mtuBytes || isSmallUdpTrain(protocol, total - ipBytes, segmentSize)) {
        this.#superPacket(id, inner, total, frameBytes, segmentSize)
        return
      }
    }
    if (state === CHECKSUM_GOOD || state === CHECKSUM_PARTIAL) {
      this.#coalescer.offer(id, inner, total, frameBytes, state === CHECKSUM_PARTIAL)
      return
    }
    // A bad checksum passes alone, so that the pod's stack counts it; one that is not used cannot be joined.
    if (state === CHECKSUM_BAD) this.#counters.add(BAD, 1)
    this.#coalescer.flushFlow(inner)
    this.#writer.setPlain()
    this.#writer.writeOne(id, inner, total, frameBytes)
  }

  /** Whether an unfragmented TCP or UDP header with believable lengths lies behind the IP header. */
  #isWholeTransport(inner: number, total: number, protocol: number): boolean {
    const view = this.#view
    if ((ipv4.getFragmentWord(view, inner) & ~ipv4.DONT_FRAGMENT) !== 0) return false
    const ipBytes = ipv4.getHeaderBytes(view, inner)
    const transport = inner + ipBytes
    const length = total - ipBytes
    if (protocol === ipv4.PROTOCOL_UDP) return length >= udp.HEADER_LEN && udp.getLength(view, transport) === length
    if (protocol !== ipv4.PROTOCOL_TCP || length < tcp.HEADER_LEN) return false
    const transportBytes = tcp.getHeaderBytes(view, transport)
    return transportBytes >= tcp.HEADER_LEN && transportBytes <= length
  }

  /** A kernel next door left the cutting to us: handed on as the super-packet that it is. */
  #superPacket(id: number, inner: number, total: number, frameBytes: number, segmentSize: number): void {
    const view = this.#view
    const ipBytes = ipv4.getHeaderBytes(view, inner)
    const protocol = ipv4.getProtocol(view, inner)
    const isTcp = protocol === ipv4.PROTOCOL_TCP
    const headerBytes = ipBytes + (isTcp ? tcp.getHeaderBytes(view, inner + ipBytes) : udp.HEADER_LEN)
    const size = segmentSize > 0 ? segmentSize : this.#settings.mtuBytes - headerBytes
    // A UDP datagram without a segment size is one datagram, to be fragmented: it has no segments.
    const gsoType = isTcp ? virtioNet.GSO_TCPV4 : segmentSize > 0 ? virtioNet.GSO_UDP_L4 : virtioNet.GSO_NONE
    this.#coalescer.flushFlow(inner)
    const gsoSize = gsoType === virtioNet.GSO_NONE ? 0 : size
    this.#writer.setOffloaded(gsoType, gsoSize, headerBytes, ipBytes, checksumOffsetOf(protocol))
    this.#writer.writeOne(id, inner, total, frameBytes)
  }

  #drop(reason: DropReason, id: number, at: number, length: number): void {
    this.#counters.add(READ_PACKETS, 1)
    this.#counters.add(READ_BYTES, length)
    this.#counters.drop('inbound', reason, 1, length)
    this.#sink?.step({ kind: 'drop', id, direction: 'inbound', reason, at, length })
  }

  #traceReceive(sink: StepSink, slot: number): void {
    const slots = this.#slots
    sink.step({
      kind: 'receive',
      datagram: this.#datagramSerial,
      at: slots.at(slot),
      length: slots.length[slot]!,
      address: slots.address[slot]!,
      port: slots.port[slot]!,
      tos: slots.tos[slot]!,
      segmentSize: slots.segmentSize[slot]!,
    })
  }

  #traceSource(sink: StepSink, id: number, source: number, entry: number): void {
    const { generation } = this.#table
    const found = entry === NO_ENTRY ? null : this.#table.entry(entry)
    sink.step({ kind: 'source-check', id, source, generation, entry: found })
  }
}

/** Datagrams of a pod's UDP_SEGMENT that are one packet yet although they fit the MTU together. */
function isSmallUdpTrain(protocol: number, transportBytes: number, segmentSize: number): boolean {
  return protocol === ipv4.PROTOCOL_UDP && segmentSize > 0 && transportBytes - udp.HEADER_LEN > segmentSize
}
