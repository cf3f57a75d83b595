// Underlay → TUN. How a packet goes, each numbered line a step that can be traced:
//
//   1  receive    a batch of datagrams; a train that the kernel merged is cut into its frames
//   2  decap      tunnel header: ours, for us; inner IP header whole and sound; padding cut
//   3  source     the outer source must hold the lease in which the inner source lies
//   4  ecn        congestion marks of the outer header are carried over; a tunnel that counts as a hop takes one off
//   5  checksum   TCP and UDP verified; left open by a kernel next door: passed on as open
//   6  merge      consecutive packets of a flow become one super-packet (coalesce.ts); of a train, frames alike in one
//                 go
//   7  write      into the TUN (tun-writer.ts)
//
// Two things that a kernel VTEP next door (over veth) sends need care: packets whose checksum field holds only the
// pseudo-header sum, and super-packets of up to 64 KiB in one datagram. Neither is damage: both are work left to us.
import type { DropReason } from '../drop-reason.ts'
import type { Encapsulation } from '../encap/encapsulation.ts'
import type { ForwardingTable } from '../forwarding/forwarding-table.ts'
import { ReceiveSlots } from '../io/receive-slots.ts'
import type { UnderlaySocket } from '../io/underlay-socket.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { Coalescer } from './coalesce.ts'
import { type Counters, cellOf } from './counters.ts'
import { decapsulateEcn, ECN_ILLEGAL, ECN_MASK } from './ecn.ts'
import { GsoTrust } from './gso-trust.ts'
import { takeHop } from './hop.ts'
import { InnerPacket } from './inner-packet.ts'
import { Offenders } from './offenders.ts'
import type { OutboundParts } from './outbound.ts'
import { OwnSubnets } from './own-subnets.ts'
import { packetId } from './packet-id.ts'
import type { PeerActivity } from './peer-activity.ts'
import type { EngineSettings } from './settings.ts'
import { SourceCheck } from './source-check.ts'
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
  readonly #sourceCheck: SourceCheck
  /** Whom the source check refused lately. */
  readonly offenders: Offenders
  readonly #activity: PeerActivity
  readonly #packet = new InnerPacket()
  #datagramSerial = 0
  #mtu: number
  #sink: StepSink | null = null
  /** Whether frames may pass in numbers: while nobody looks at each, and nothing is to be written into each. */
  #mayExtend: boolean

  constructor(parts: OutboundParts, table: ForwardingTable, activity: PeerActivity) {
    this.#activity = activity
    this.#memory = parts.memory
    this.#view = parts.memory.view
    this.#socket = parts.socket
    this.#encapsulation = parts.encapsulation
    this.#encapBytes = parts.encapsulation.headerBytes
    this.#counters = parts.counters
    this.#settings = parts.settings
    this.#mtu = parts.settings.mtuBytes
    this.#mayExtend = !parts.settings.countsHop
    this.#slots = new ReceiveSlots(parts.memory, SLOTS)
    const { mergeTcp = true, mergeUdp } = parts.settings
    const trust = new GsoTrust(parts.counters, { mergeTcp, mergeUdp })
    this.#writer = new TunWriter(parts.memory, parts.device, parts.counters, trust)
    this.#coalescer = new Coalescer(parts.memory, this.#writer, trust)
    const own = new OwnSubnets(parts.settings.subnet, parts.settings.ipv6Subnet)
    this.offenders = new Offenders(parts.nowMs)
    this.#sourceCheck = new SourceCheck(parts.settings, own, table, this.offenders)
  }

  replaceTable(table: ForwardingTable): void {
    this.#sourceCheck.replaceTable(table)
  }

  setMtu(mtuBytes: number): void {
    this.#mtu = mtuBytes
  }

  setSink(sink: StepSink | null): void {
    this.#sink = sink
    this.#mayExtend = sink === null && !this.#settings.countsHop
    this.#writer.sink = sink
    this.#coalescer.sink = sink
    this.#sourceCheck.sink = sink
  }

  /**
   * Moves datagrams until the socket is empty or the burst is over. What arrives while a batch is worked on goes into
   * the slots behind it, so that packets of a flow are joined across receives; only when the slots are used up, or
   * nothing more is there, is everything written. Returns how many datagrams, or -errno when the socket is unwell.
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
      if (total === 0) this.#activity.look()
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
    let passed = 0
    if (segmentSize === 0 || segmentSize >= length || this.#isOneFrame(at, length)) {
      passed = this.#frame(slot, at, length, segmentSize)
    } else {
      for (let done = 0; done < length; done += segmentSize) {
        const first = this.#frame(slot, at + done, Math.min(segmentSize, length - done), 0)
        const more = first > 0 && this.#mayExtend ? this.#extend(at + done, segmentSize, length - done) : 0
        passed += first + more
        done += segmentSize * more
      }
    }
    if (passed > 0) this.#activity.received(slots.address[slot]! | 0, passed, length - passed * this.#encapBytes)
  }

  /**
   * Takes at one go what goes on as the first frame, just done, of the `length` bytes at `at` did. Returns how many
   * frames.
   */
  #extend(at: number, segmentSize: number, length: number): number {
    const whole = ((length / segmentSize) | 0) - 1
    return whole > 0 ? this.#coalescer.extend(at + this.#encapBytes, this.#encapBytes, segmentSize, whole) : 0
  }

  /**
   * Not every large datagram with a segment size is a train: a kernel VTEP next door whose pod sent with UDP_SEGMENT
   * delivers one frame, and the size is that of the inner segments. The inner length tells.
   */
  #isOneFrame(at: number, length: number): boolean {
    const left = length - this.#encapBytes
    return this.#packet.read(this.#view, at + this.#encapBytes, left) === null && this.#packet.length === left
  }

  /**
   * Steps 2 to 4 for one frame of `length` bytes at `at`; `segmentSize` is that of inner segments, 0 for none. Returns
   * how many frames passed: 1 or 0.
   */
  #frame(slot: number, at: number, length: number, segmentSize: number): number {
    const inner = at + this.#encapBytes
    const sink = this.#sink
    const id = sink === null ? 0 : packetId(this.#view, inner, Math.max(0, length - this.#encapBytes))
    let reason = this.#checkFrame(at, length)
    if (reason === null) {
      sink?.step({ kind: 'decap', id, datagram: this.#datagramSerial, at: inner, length: length - this.#encapBytes })
      const outerSource = this.#slots.address[slot]! | 0
      reason =
        this.#sourceCheck.check(id, this.#view, this.#packet, outerSource) ??
        this.#combineEcn(id, this.#slots.tos[slot]!) ??
        this.#countHop()
    }
    if (reason === null) {
      this.#deliver(id, length, segmentSize)
      return 1
    }
    this.#drop(reason, id, at, length)
    return 0
  }

  /** Step 2: tunnel header, then the inner IP header: a whole packet lies behind it. */
  #checkFrame(at: number, length: number): DropReason | null {
    const reason = this.#encapsulation.check(this.#view, at, length)
    if (reason !== null) return reason
    const packet = this.#packet
    const flaw = packet.read(this.#view, at + this.#encapBytes, length - this.#encapBytes)
    if (flaw !== null || packet.version !== 4) return flaw
    return headerChecksumIsGood(this.#memory, packet.at, ipv4.getHeaderBytes(this.#view, packet.at))
      ? null
      : 'bad-checksum'
  }

  /** Step 4. Unless the combination is illegal, the inner header now says what RFC 6040 wants it to say. */
  #combineEcn(id: number, outerTos: number): DropReason | null {
    const packet = this.#packet
    const before = packet.tos & ECN_MASK
    const outer = outerTos & ECN_MASK
    const after = decapsulateEcn(before, outer)
    if (after === ECN_ILLEGAL) return 'ecn-illegal'
    if (after !== before) {
      packet.tos = (packet.tos & ~ECN_MASK) | after
      if (packet.version === 4) {
        ipv4.setTos(this.#view, packet.at, packet.tos)
        setHeaderChecksum(this.#memory, packet.at, packet.ipBytes)
      } else {
        ipv6.setTrafficClass(this.#view, packet.at, packet.tos)
      }
    }
    this.#sink?.step({ kind: 'ecn', id, innerBefore: before, outer, inner: after })
    return null
  }

  /** A tunnel that counts as a hop takes one off; one that is no hop (VXLAN) leaves the TTL alone. */
  #countHop(): DropReason | null {
    if (!this.#settings.countsHop) return null
    return takeHop(this.#memory, this.#packet) ? null : 'ttl-expired'
  }

  /** Steps 5 to 7: what follows the packet's own length is Ethernet padding and is cut here. */
  #deliver(id: number, frameBytes: number, segmentSize: number): void {
    const packet = this.#packet
    if (packet.headerBytes === 0) {
      // Fragments, other protocols, and transport headers that make no sense: the pod's stack judges, in order.
      this.#coalescer.flushHosts(packet)
      this.#writer.writePlain(id, packet.at, packet.length, frameBytes)
      return
    }
    const state = verifyTransport(this.#memory, packet)
    if (this.#sink !== null) {
      this.#sink.step({ kind: 'checksum', id, verdict: state === CHECKSUM_BAD ? 'bad' : VERDICTS[state as 0 | 1 | 2] })
    }
    if (state === CHECKSUM_PARTIAL) {
      this.#counters.add(PARTIAL, 1)
      if (packet.length > this.#mtu || isSmallUdpTrain(packet, segmentSize)) {
        this.#superPacket(id, frameBytes, segmentSize)
        return
      }
    }
    if (state === CHECKSUM_GOOD || state === CHECKSUM_PARTIAL) {
      this.#coalescer.offer(id, packet, frameBytes, state === CHECKSUM_PARTIAL)
      return
    }
    // A bad checksum passes alone, so that the pod's stack counts it; one that is not used cannot be joined.
    if (state === CHECKSUM_BAD) this.#counters.add(BAD, 1)
    this.#coalescer.flushFlow(packet)
    this.#writer.writePlain(id, packet.at, packet.length, frameBytes)
  }

  /** A kernel next door left the cutting to us: handed on as the super-packet that it is, to a TUN that takes it so. */
  #superPacket(id: number, frameBytes: number, segmentSize: number): void {
    const packet = this.#packet
    const isTcp = packet.protocol === ipv4.PROTOCOL_TCP
    const gsoTcp = packet.version === 4 ? virtioNet.GSO_TCPV4 : virtioNet.GSO_TCPV6
    const size = segmentSize > 0 ? segmentSize : this.#mtu - packet.headerBytes
    // A UDP datagram without a segment size is one datagram, to be fragmented: it has no segments.
    const gsoType = isTcp ? gsoTcp : segmentSize > 0 ? virtioNet.GSO_UDP_L4 : virtioNet.GSO_NONE
    this.#coalescer.flushFlow(packet)
    const gsoSize = gsoType === virtioNet.GSO_NONE ? 0 : size
    this.#writer.setOffloaded(gsoType, gsoSize, packet.headerBytes, packet.ipBytes, checksumOffsetOf(packet.protocol))
    this.#writer.writeOffloaded(id, packet.at, packet.length, frameBytes)
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
}

/** Datagrams of a pod's UDP_SEGMENT that are one packet yet although they fit the MTU together. */
function isSmallUdpTrain(packet: InnerPacket, segmentSize: number): boolean {
  const payload = packet.length - packet.headerBytes
  return packet.protocol === ipv4.PROTOCOL_UDP && segmentSize > 0 && payload > segmentSize
}
