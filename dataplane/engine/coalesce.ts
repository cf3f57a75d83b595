// Joins consecutive packets of a flow into one TUN write: TCP segments that follow each other, UDP datagrams of equal
// size. The reverse of segment.ts, and the reason why bulk receive costs few system calls. Several flows may be open
// within one batch; the order within a flow never changes. Payloads are gathered from where they arrived, not copied.
//
// Every packet offered here has a verified (or partial) checksum, so the joined packet may carry an open one
// (NEEDS_CSUM) without hiding damage. The rules are those of the kernel's own GRO (net/ipv4/tcp_offload.c).
import { isRefusedShape } from '../io/errno.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import type { GsoTrust } from './gso-trust.ts'
import { InnerPacket, sameHosts } from './inner-packet.ts'
import { packetId } from './packet-id.ts'
import {
  CHECKSUM_PARTIAL,
  checksumOffsetOf,
  pseudoHeaderSum,
  setHeaderChecksum,
  verifyTransport,
} from './transport-checksum.ts'
import type { TunWriter } from './tun-writer.ts'

/** Flows that may be open at once; one more closes the oldest. */
const MAX_RUNS = 16
/** Packets in one write: the kernel's own GRO bound for UDP, and a good bound on latency for TCP. */
const MAX_PACKETS = 64
const MAX_IP_BYTES = 65535
/** TCP flags that may differ from "data, acknowledged": everything else passes alone. */
const MERGEABLE_FLAGS = tcp.FLAG_ACK | tcp.FLAG_PSH | tcp.FLAG_ECE

/** Packets of one flow that will be written together. */
class Run {
  id = 0
  /** The first packet, whose header will speak for all. */
  readonly head = new InnerPacket()
  /** Both ports, see tcp.getPorts. */
  ports = 0
  /** Payload bytes of the first packet: no later one may be larger. */
  payloadBytes = 0
  payloadTotal = 0
  nextSequence = 0
  packets = 0
  frameBytes = 0
  partial = false
  /** Datagram bytes of each packet. */
  readonly frameBytesOf = new Uint32Array(MAX_PACKETS)
  /** What the head's header loses when it comes to speak for all: kept in case the kernel does not want them joined. */
  headerChecksum = 0
  transportChecksum = 0
  readonly iovecs: number

  constructor(iovecs: number) {
    this.iovecs = iovecs
  }
}

export class Coalescer {
  sink: StepSink | null = null
  readonly #memory: PacketMemory
  readonly #view: DataView
  readonly #writer: TunWriter
  readonly #trust: GsoTrust
  readonly #member = new InnerPacket()
  /** The first `#open` are in use, oldest first. */
  readonly #runs: Run[]
  #open = 0
  /** The run that took the latest packet, while it is open, and where that packet lies. */
  #tail: Run | null = null
  #tailAt = 0

  constructor(memory: PacketMemory, writer: TunWriter, trust: GsoTrust) {
    this.#memory = memory
    this.#view = memory.view
    this.#writer = writer
    this.#trust = trust
    this.#runs = Array.from({ length: MAX_RUNS }, () => new Run(writer.reserveIovecs(MAX_PACKETS)))
  }

  /** Takes a whole, unfragmented TCP or UDP packet, received as `frameBytes` of datagram. */
  offer(id: number, packet: InnerPacket, frameBytes: number, partial: boolean): void {
    const isTcp = packet.protocol === ipv4.PROTOCOL_TCP
    const transport = packet.at + packet.ipBytes
    const mayMerge = this.#mayMerge(packet)
    const pushed = isTcp && (tcp.getFlags(this.#view, transport) & tcp.FLAG_PSH) !== 0
    const index = this.#find(packet)
    if (index >= 0) {
      const run = this.#runs[index]!
      const isShort = packet.length - packet.headerBytes < run.payloadBytes
      if (mayMerge && this.#continues(run, packet) && (!isShort || this.#trust.shortTail)) {
        this.#append(run, id, packet, frameBytes)
        if (pushed || isShort || run.packets === MAX_PACKETS) this.#flush(index)
        else this.#remember(run, packet.at)
        return
      }
      this.#flush(index)
    }
    if (mayMerge && !pushed) this.#begin(id, packet, frameBytes, partial)
    else this.#writeAlone(id, packet, frameBytes, partial)
  }

  /**
   * Takes more of a train, a frame every `stride` bytes: as many of the `most` frames behind the one whose packet, the
   * latest that was offered, lies at `at`, as are alike. All that was found out for that one is true of them, and they
   * join the run that it is in. Returns how many; 0 when the packet at `at` was not joined, or nothing more can be.
   */
  extend(at: number, encapBytes: number, stride: number, most: number): number {
    const run = this.#tail
    if (run === null || this.#tailAt !== at) return 0
    const { head, payloadBytes } = run
    const { headerBytes } = head
    const room = ((MAX_IP_BYTES - headerBytes - run.payloadTotal) / payloadBytes) | 0
    const limit = Math.min(most, MAX_PACKETS - run.packets, room)
    const length = headerBytes + payloadBytes
    const count = this.#memory.countAlike(at - encapBytes, stride, limit, encapBytes, head.ipBytes, headerBytes, length)
    for (let index = 1; index <= count; index++) {
      run.frameBytesOf[run.packets] = stride
      run.packets += 1
      this.#memory.setIovec(run.iovecs, run.packets, at + index * stride + headerBytes, payloadBytes)
    }
    run.payloadTotal += count * payloadBytes
    run.frameBytes += count * stride
    if (head.protocol === ipv4.PROTOCOL_TCP) run.nextSequence = (run.nextSequence + count * payloadBytes) | 0
    if (run.packets === MAX_PACKETS) this.#flush(this.#runs.indexOf(run))
    else this.#tailAt = at + count * stride
    return count
  }

  #remember(run: Run, at: number): void {
    this.#tail = run
    this.#tailAt = at
  }

  /**
   * Whether the packet can be part of a joined one at all: payload, no IP options or extensions, nothing special in
   * TCP.
   */
  #mayMerge(packet: InnerPacket): boolean {
    if (packet.length === packet.headerBytes) return false
    if (packet.ipBytes !== (packet.version === 4 ? ipv4.HEADER_LEN : ipv6.HEADER_LEN)) return false
    const isTcp = packet.protocol === ipv4.PROTOCOL_TCP
    if (!this.#trust.mayJoin(isTcp, packet.version)) return false
    return !isTcp || isPlainData(this.#view, packet.at + packet.ipBytes)
  }

  /**
   * Writes what is open between two hosts for a protocol: something of theirs that has no ports comes next. What an
   * IPv6 fragment is of is not asked: it may be any protocol.
   */
  flushHosts(packet: InnerPacket): void {
    const isAny = packet.version === 6 && packet.isFragment
    for (let index = this.#open - 1; index >= 0; index--) {
      const { head } = this.#runs[index]!
      if ((isAny || head.protocol === packet.protocol) && sameHosts(this.#view, head, packet)) this.#flush(index)
    }
  }

  /** Writes what is open of the packet's flow: one that cannot be joined comes next. */
  flushFlow(packet: InnerPacket): void {
    const index = this.#find(packet)
    if (index >= 0) this.#flush(index)
  }

  /** Writes everything, oldest first: the batch is over and nothing waits for the next one. */
  flushAll(): void {
    while (this.#open > 0) this.#flush(0)
  }

  #find(packet: InnerPacket): number {
    const ports = tcp.getPorts(this.#view, packet.at + packet.ipBytes)
    for (let index = this.#open - 1; index >= 0; index--) {
      const run = this.#runs[index]!
      if (run.ports !== ports || run.head.protocol !== packet.protocol) continue
      if (sameHosts(this.#view, run.head, packet)) return index
    }
    return -1
  }

  /** Whether the packet is the next one of the run, alike in all that a joined packet can say only once. */
  #continues(run: Run, packet: InnerPacket): boolean {
    const { head } = run
    const payload = packet.length - packet.headerBytes
    if (
      packet.headerBytes !== head.headerBytes ||
      payload > run.payloadBytes ||
      head.headerBytes + run.payloadTotal + payload > MAX_IP_BYTES ||
      packet.tos !== head.tos
    ) {
      return false
    }
    if (!(packet.version === 4 ? this.#continuesIpv4(run, packet.at) : this.#continuesIpv6(head.at, packet.at))) {
      return false
    }
    return packet.protocol === ipv4.PROTOCOL_UDP || this.#continuesTcp(run, packet)
  }

  #continuesIpv4(run: Run, at: number): boolean {
    const view = this.#view
    const head = run.head.at
    const fragmentWord = ipv4.getFragmentWord(view, at)
    if (ipv4.getTtl(view, at) !== ipv4.getTtl(view, head)) return false
    if (fragmentWord !== ipv4.getFragmentWord(view, head)) return false
    // Without DF the identification matters to whoever reassembles: it must be what cutting would give.
    if ((fragmentWord & ipv4.DONT_FRAGMENT) !== 0) return true
    return ipv4.getIdentification(view, at) === ((ipv4.getIdentification(view, head) + run.packets) & 0xffff)
  }

  #continuesIpv6(head: number, at: number): boolean {
    const view = this.#view
    if (ipv6.getFlowLabel(view, at) !== ipv6.getFlowLabel(view, head)) return false
    return ipv6.getHopLimit(view, at) === ipv6.getHopLimit(view, head)
  }

  #continuesTcp(run: Run, packet: InnerPacket): boolean {
    const view = this.#view
    const head = run.head.at + run.head.ipBytes
    const transport = packet.at + packet.ipBytes
    if (
      (tcp.getSequence(view, transport) | 0) !== run.nextSequence ||
      tcp.getAcknowledgment(view, transport) !== tcp.getAcknowledgment(view, head) ||
      tcp.getUrgentPointer(view, transport) !== tcp.getUrgentPointer(view, head) ||
      ((tcp.getControlWord(view, transport) ^ tcp.getControlWord(view, head)) & ~tcp.PSH_IN_CONTROL_WORD) !== 0
    ) {
      return false
    }
    const optionBytes = packet.headerBytes - packet.ipBytes - tcp.HEADER_LEN
    for (let done = 0; done < optionBytes; done += 4) {
      const option = tcp.HEADER_LEN + done
      if (view.getInt32(transport + option) !== view.getInt32(head + option)) return false
    }
    return true
  }

  #begin(id: number, packet: InnerPacket, frameBytes: number, partial: boolean): void {
    if (this.#open === MAX_RUNS) this.#flush(0)
    const transport = packet.at + packet.ipBytes
    const run = this.#runs[this.#open++]!
    run.id = id
    run.head.copy(packet)
    run.ports = tcp.getPorts(this.#view, transport)
    run.payloadBytes = packet.length - packet.headerBytes
    run.payloadTotal = run.payloadBytes
    run.packets = 1
    run.frameBytes = frameBytes
    run.frameBytesOf[0] = frameBytes
    run.partial = partial
    run.nextSequence = 0
    if (packet.protocol === ipv4.PROTOCOL_TCP) {
      run.nextSequence = (tcp.getSequence(this.#view, transport) + run.payloadBytes) | 0
    }
    this.#memory.setIovec(run.iovecs, 1, packet.at, packet.length)
    this.#remember(run, packet.at)
    this.sink?.step({ kind: 'merge', id, into: id, index: 0 })
  }

  #append(run: Run, id: number, packet: InnerPacket, frameBytes: number): void {
    this.sink?.step({ kind: 'merge', id, into: run.id, index: run.packets })
    const payload = packet.length - packet.headerBytes
    run.frameBytesOf[run.packets] = frameBytes
    run.packets += 1
    this.#memory.setIovec(run.iovecs, run.packets, packet.at + packet.headerBytes, payload)
    run.payloadTotal += payload
    run.frameBytes += frameBytes
    if (packet.protocol !== ipv4.PROTOCOL_TCP) return
    run.nextSequence = (run.nextSequence + payload) | 0
    const head = run.head.at + run.head.ipBytes
    const pushed = tcp.getFlags(this.#view, packet.at + packet.ipBytes) & tcp.FLAG_PSH
    tcp.setFlags(this.#view, head, tcp.getFlags(this.#view, head) | pushed)
  }

  /** Writes the run at `index` and takes it out; the others keep their order. */
  #flush(index: number): void {
    const run = this.#runs[index]!
    this.#open -= 1
    for (let next = index; next < this.#open; next++) this.#runs[next] = this.#runs[next + 1]!
    this.#runs[this.#open] = run
    this.#tail = null
    const { head } = run
    if (run.packets === 1) {
      this.#writeAlone(run.id, head, run.frameBytes, run.partial)
      return
    }
    this.#patchHeader(run)
    const isTcp = head.protocol === ipv4.PROTOCOL_TCP
    const gsoTcp = head.version === 4 ? virtioNet.GSO_TCPV4 : virtioNet.GSO_TCPV6
    const gsoType = isTcp ? gsoTcp : virtioNet.GSO_UDP_L4
    const checksumOffset = checksumOffsetOf(head.protocol)
    this.#writer.setOffloaded(gsoType, run.payloadBytes, head.headerBytes, head.ipBytes, checksumOffset)
    const length = head.headerBytes + run.payloadTotal
    const result = this.#writer.write(run.id, run.iovecs, run.packets, run.packets, length, run.frameBytes)
    if (result < 0 && isRefusedShape(-result)) this.#takeApart(run, gsoType)
  }

  /** The kernel does not want these packets joined: the head gets its own header back, and they go one by one. */
  #takeApart(run: Run, gsoType: number): void {
    const { head } = run
    const member = this.#member
    this.#restoreHeader(run)
    let anyPassed = false
    let length = 0
    for (let index = 0; index < run.packets; index++) {
      const piece = this.#memory.iovecAt(run.iovecs, index + 1)
      const at = index === 0 ? head.at : piece - head.headerBytes
      length = head.headerBytes + (index === 0 ? run.payloadBytes : this.#memory.iovecLength(run.iovecs, index + 1))
      member.read(this.#view, at, length)
      const partial = verifyTransport(this.#memory, member) === CHECKSUM_PARTIAL
      const id = this.sink === null ? 0 : packetId(this.#view, at, length)
      if (this.#writeAlone(id, member, run.frameBytesOf[index]!, partial) >= 0) anyPassed = true
    }
    if (anyPassed) this.#trust.refused(gsoType, length < head.headerBytes + run.payloadBytes)
  }

  /** Undoes {@link #patchHeader}, and the PSH that the last packet may have lent the first. */
  #restoreHeader(run: Run): void {
    const { head } = run
    const view = this.#view
    const length = head.headerBytes + run.payloadBytes
    const transport = head.at + head.ipBytes
    if (head.version === 4) {
      ipv4.setTotalLength(view, head.at, length)
      ipv4.setChecksum(view, head.at, run.headerChecksum)
    } else {
      ipv6.setPayloadLength(view, head.at, length - head.ipBytes)
    }
    if (head.protocol === ipv4.PROTOCOL_TCP) {
      tcp.setFlags(view, transport, tcp.getFlags(view, transport) & ~tcp.FLAG_PSH)
      tcp.setChecksum(view, transport, run.transportChecksum)
    } else {
      udp.setLength(view, transport, length - head.ipBytes)
      udp.setChecksum(view, transport, run.transportChecksum)
    }
  }

  /** The first packet's header now speaks for all: total lengths, header checksum, pseudo-header sum. */
  #patchHeader(run: Run): void {
    const { head, payloadTotal } = run
    const view = this.#view
    const transport = head.at + head.ipBytes
    run.transportChecksum = view.getUint16(transport + checksumOffsetOf(head.protocol))
    if (head.version === 4) run.headerChecksum = ipv4.getChecksum(view, head.at)
    const total = head.headerBytes + payloadTotal
    const transportBytes = total - head.ipBytes
    if (head.version === 4) {
      ipv4.setTotalLength(view, head.at, total)
      setHeaderChecksum(this.#memory, head.at, head.ipBytes)
    } else {
      ipv6.setPayloadLength(view, head.at, total - ipv6.HEADER_LEN)
    }
    const pseudo = pseudoHeaderSum(this.#memory, head, transportBytes)
    if (head.protocol === ipv4.PROTOCOL_TCP) {
      tcp.setChecksum(view, transport, pseudo)
    } else {
      udp.setLength(view, transport, transportBytes)
      udp.setChecksum(view, transport, pseudo)
    }
  }

  #writeAlone(id: number, packet: InnerPacket, frameBytes: number, partial: boolean): number {
    if (!partial) return this.#writer.writePlain(id, packet.at, packet.length, frameBytes)
    const checksumOffset = checksumOffsetOf(packet.protocol)
    this.#writer.setOffloaded(virtioNet.GSO_NONE, 0, packet.headerBytes, packet.ipBytes, checksumOffset)
    return this.#writer.writeOffloaded(id, packet.at, packet.length, frameBytes)
  }
}

/** Data with ACK and at most PSH or ECE: what a joined packet can stand for. */
function isPlainData(view: DataView, transport: number): boolean {
  const flags = tcp.getFlags(view, transport)
  if ((flags & ~MERGEABLE_FLAGS) !== 0 || (flags & tcp.FLAG_ACK) === 0) return false
  return tcp.getAccurateEcn(view, transport) === 0
}
