// Joins consecutive packets of a flow into one TUN write: TCP segments that follow each other, UDP datagrams of equal
// size. The reverse of segment.ts, and the reason why bulk receive costs few system calls. Several flows may be open
// within one batch; the order within a flow never changes. Payloads are gathered from where they arrived, not copied.
//
// Every packet offered here has a verified (or partial) checksum, so the joined packet may carry an open one
// (NEEDS_CSUM) without hiding damage. The rules are those of the kernel's own GRO (net/ipv4/tcp_offload.c).
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { checksumOffsetOf, pseudoHeaderSum, setHeaderChecksum } from './transport-checksum.ts'
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
  at = 0
  source = 0
  destination = 0
  /** Both, as a signed number. */
  ports = 0
  protocol = 0
  headerBytes = 0
  /** Payload bytes of the first packet: no later one may be larger. */
  payloadBytes = 0
  payloadTotal = 0
  nextSequence = 0
  packets = 0
  frameBytes = 0
  partial = false
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
  readonly #mergeUdp: boolean
  /** The first `#open` are in use, oldest first. */
  readonly #runs: Run[]
  #open = 0

  constructor(memory: PacketMemory, writer: TunWriter, options: { readonly mergeUdp: boolean }) {
    this.#memory = memory
    this.#view = memory.view
    this.#writer = writer
    this.#mergeUdp = options.mergeUdp
    this.#runs = Array.from({ length: MAX_RUNS }, () => new Run(writer.reserveIovecs(MAX_PACKETS)))
  }

  /** Takes a TCP or UDP packet of `length` bytes at `at`, whole and unfragmented, received as `frameBytes`. */
  offer(id: number, at: number, length: number, frameBytes: number, partial: boolean): void {
    const view = this.#view
    const transport = at + ipv4.HEADER_LEN
    const protocol = ipv4.getProtocol(view, at)
    const isTcp = protocol === ipv4.PROTOCOL_TCP
    const ipBytes = ipv4.getHeaderBytes(view, at)
    const headerBytes = ipBytes + (isTcp ? tcp.getHeaderBytes(view, at + ipBytes) : udp.HEADER_LEN)
    const payload = length - headerBytes
    const ports = tcp.getPorts(view, at + ipBytes) | 0 // signed: an unsigned one above 2^31 is boxed when passed on
    const index = this.#find(ipv4.getSource(view, at), ipv4.getDestination(view, at), ports, protocol)
    const mayMerge =
      ipBytes === ipv4.HEADER_LEN && payload > 0 && (isTcp ? isPlainData(view, transport) : this.#mergeUdp)
    if (index >= 0) {
      const run = this.#runs[index]!
      if (mayMerge && this.#continues(run, at, transport, headerBytes, payload)) {
        this.#append(run, id, at, headerBytes, payload, frameBytes)
        const pushed = isTcp && (tcp.getFlags(view, transport) & tcp.FLAG_PSH) !== 0
        if (pushed || payload < run.payloadBytes || run.packets === MAX_PACKETS) this.#flush(index)
        return
      }
      this.#flush(index)
    }
    const ends = isTcp && mayMerge && (tcp.getFlags(view, transport) & tcp.FLAG_PSH) !== 0
    if (mayMerge && !ends) this.#begin(id, at, headerBytes, payload, frameBytes, partial, ports)
    else this.#writeAlone(id, at, length, ipBytes, headerBytes, frameBytes, partial)
  }

  /** Writes what is open between two hosts for a protocol: something of theirs that has no ports comes next. */
  flushHosts(source: number, destination: number, protocol: number): void {
    for (let index = this.#open - 1; index >= 0; index--) {
      const run = this.#runs[index]!
      if (run.source === source && run.destination === destination && run.protocol === protocol) this.#flush(index)
    }
  }

  /** Writes what is open of the flow of the TCP or UDP packet at `at`: one that cannot be joined comes next. */
  flushFlow(at: number): void {
    const view = this.#view
    const ports = tcp.getPorts(view, at + ipv4.getHeaderBytes(view, at)) | 0
    const index = this.#find(ipv4.getSource(view, at), ipv4.getDestination(view, at), ports, ipv4.getProtocol(view, at))
    if (index >= 0) this.#flush(index)
  }

  /** Writes everything, oldest first: the batch is over and nothing waits for the next one. */
  flushAll(): void {
    while (this.#open > 0) this.#flush(0)
  }

  #find(source: number, destination: number, ports: number, protocol: number): number {
    for (let index = this.#open - 1; index >= 0; index--) {
      const run = this.#runs[index]!
      if (
        run.ports === ports &&
        run.source === source &&
        run.destination === destination &&
        run.protocol === protocol
      ) {
        return index
      }
    }
    return -1
  }

  /** Whether the packet at `at` is the next one of the run, alike in all that a joined packet can say only once. */
  #continues(run: Run, at: number, transport: number, headerBytes: number, payload: number): boolean {
    const view = this.#view
    const fragmentWord = ipv4.getFragmentWord(view, at)
    if (
      headerBytes !== run.headerBytes ||
      payload > run.payloadBytes ||
      run.headerBytes + run.payloadTotal + payload > MAX_IP_BYTES ||
      ipv4.getTos(view, at) !== ipv4.getTos(view, run.at) ||
      ipv4.getTtl(view, at) !== ipv4.getTtl(view, run.at) ||
      fragmentWord !== ipv4.getFragmentWord(view, run.at)
    ) {
      return false
    }
    // Without DF the identification matters to whoever reassembles: it must be what cutting would give.
    if ((fragmentWord & ipv4.DONT_FRAGMENT) === 0) {
      const next = (ipv4.getIdentification(view, run.at) + run.packets) & 0xffff
      if (ipv4.getIdentification(view, at) !== next) return false
    }
    if (run.protocol === ipv4.PROTOCOL_UDP) return true
    return this.#continuesTcp(run, transport, headerBytes)
  }

  #continuesTcp(run: Run, transport: number, headerBytes: number): boolean {
    const view = this.#view
    const head = run.at + ipv4.HEADER_LEN
    if (
      tcp.getSequence(view, transport) !== run.nextSequence ||
      tcp.getAcknowledgment(view, transport) !== tcp.getAcknowledgment(view, head) ||
      tcp.getUrgentPointer(view, transport) !== tcp.getUrgentPointer(view, head) ||
      ((tcp.getControlWord(view, transport) ^ tcp.getControlWord(view, head)) & ~tcp.PSH_IN_CONTROL_WORD) !== 0
    ) {
      return false
    }
    const optionBytes = headerBytes - ipv4.HEADER_LEN - tcp.HEADER_LEN
    for (let done = 0; done < optionBytes; done += 4) {
      const option = tcp.HEADER_LEN + done
      if (view.getUint32(transport + option) !== view.getUint32(head + option)) return false
    }
    return true
  }

  #begin(
    id: number,
    at: number,
    headerBytes: number,
    payload: number,
    frameBytes: number,
    partial: boolean,
    ports: number,
  ): void {
    if (this.#open === MAX_RUNS) this.#flush(0)
    const view = this.#view
    const run = this.#runs[this.#open++]!
    run.id = id
    run.at = at
    run.source = ipv4.getSource(view, at)
    run.destination = ipv4.getDestination(view, at)
    run.protocol = ipv4.getProtocol(view, at)
    run.ports = ports
    run.headerBytes = headerBytes
    run.payloadBytes = payload
    run.payloadTotal = payload
    run.packets = 1
    run.frameBytes = frameBytes
    run.partial = partial
    if (run.protocol === ipv4.PROTOCOL_TCP) {
      run.nextSequence = (tcp.getSequence(view, at + ipv4.HEADER_LEN) + payload) >>> 0
    }
    this.#memory.setIovec(run.iovecs, 1, at, headerBytes + payload)
    this.sink?.step({ kind: 'merge', id, into: id, index: 0 })
  }

  #append(run: Run, id: number, at: number, headerBytes: number, payload: number, frameBytes: number): void {
    this.sink?.step({ kind: 'merge', id, into: run.id, index: run.packets })
    run.packets += 1
    this.#memory.setIovec(run.iovecs, run.packets, at + headerBytes, payload)
    run.payloadTotal += payload
    run.frameBytes += frameBytes
    if (run.protocol !== ipv4.PROTOCOL_TCP) return
    run.nextSequence = (run.nextSequence + payload) >>> 0
    const head = run.at + ipv4.HEADER_LEN
    const pushed = tcp.getFlags(this.#view, at + ipv4.HEADER_LEN) & tcp.FLAG_PSH
    tcp.setFlags(this.#view, head, tcp.getFlags(this.#view, head) | pushed)
  }

  /** Writes the run at `index` and takes it out; the others keep their order. */
  #flush(index: number): void {
    const run = this.#runs[index]!
    this.#open -= 1
    for (let next = index; next < this.#open; next++) this.#runs[next] = this.#runs[next + 1]!
    this.#runs[this.#open] = run
    const ipBytes = ipv4.HEADER_LEN
    if (run.packets === 1) {
      const length = run.headerBytes + run.payloadTotal
      this.#writeAlone(run.id, run.at, length, ipBytes, run.headerBytes, run.frameBytes, run.partial)
      return
    }
    this.#patchHeader(run)
    const isTcp = run.protocol === ipv4.PROTOCOL_TCP
    const gsoType = isTcp ? virtioNet.GSO_TCPV4 : virtioNet.GSO_UDP_L4
    const checksumOffset = checksumOffsetOf(run.protocol)
    this.#writer.setOffloaded(gsoType, run.payloadBytes, run.headerBytes, ipBytes, checksumOffset)
    this.#writer.write(run.id, run.iovecs, run.packets, run.packets, run.frameBytes)
  }

  /** The first packet's header now speaks for all: total lengths, header checksum, pseudo-header sum. */
  #patchHeader(run: Run): void {
    const view = this.#view
    const transport = run.at + ipv4.HEADER_LEN
    const total = run.headerBytes + run.payloadTotal
    const transportBytes = total - ipv4.HEADER_LEN
    ipv4.setTotalLength(view, run.at, total)
    setHeaderChecksum(this.#memory, run.at, ipv4.HEADER_LEN)
    const pseudo = pseudoHeaderSum(this.#memory, run.at, transportBytes)
    if (run.protocol === ipv4.PROTOCOL_TCP) {
      tcp.setChecksum(view, transport, pseudo)
    } else {
      udp.setLength(view, transport, transportBytes)
      udp.setChecksum(view, transport, pseudo)
    }
  }

  #writeAlone(
    id: number,
    at: number,
    length: number,
    ipBytes: number,
    headerBytes: number,
    frameBytes: number,
    partial: boolean,
  ): void {
    if (partial) {
      const checksumOffset = checksumOffsetOf(ipv4.getProtocol(this.#view, at))
      this.#writer.setOffloaded(virtioNet.GSO_NONE, 0, headerBytes, ipBytes, checksumOffset)
    } else {
      this.#writer.setPlain()
    }
    this.#writer.writeOne(id, at, length, frameBytes)
  }
}

/** Data with ACK and at most PSH or ECE: what a joined packet can stand for. */
function isPlainData(view: DataView, transport: number): boolean {
  const flags = tcp.getFlags(view, transport)
  if ((flags & ~MERGEABLE_FLAGS) !== 0 || (flags & tcp.FLAG_ACK) === 0) return false
  return tcp.getAccurateEcn(view, transport) === 0
}
