// ICMP errors to the pod (RFC 792, RFC 1191): a tunnel endpoint is a router and must say why it does not forward.
// Built in a scratch region and written back into the TUN.
import type { PacketDevice } from '../io/packet-device.ts'
import { complement, IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as icmpv4 from '../wire/icmpv4.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { type Counters, cellOf } from './counters.ts'
import { setHeaderChecksum } from './transport-checksum.ts'

/** Bytes of the offender's payload that an error quotes behind its IP header (RFC 792). */
const QUOTED_PAYLOAD_BYTES = 8
const MAX_ANSWER_BYTES = virtioNet.HEADER_LEN + ipv4.HEADER_LEN + icmpv4.HEADER_LEN + 60 + QUOTED_PAYLOAD_BYTES
/** As flannel's: far enough for a pod on this host, no further. */
const ANSWER_TTL = 8
/** Answers per second, and how many may come at once: a scan through unused addresses is not answered one by one. */
const RATE_PER_SECOND = 1000
const BURST = 200

const SENT = cellOf('icmp.sent')
const SUPPRESSED = cellOf('icmp.suppressed')
const FAILED = cellOf('icmp.failed')

export class IcmpAnswer {
  readonly #memory: PacketMemory
  readonly #device: PacketDevice
  readonly #counters: Counters
  readonly #source: number
  readonly #nowMs: () => number
  readonly #scratch: number
  readonly #iovec: number
  #tokens = BURST
  #refilledAtMs = 0
  sink: StepSink | null = null

  constructor(
    memory: PacketMemory,
    device: PacketDevice,
    counters: Counters,
    options: { readonly source: number; readonly nowMs: () => number },
  ) {
    this.#memory = memory
    this.#device = device
    this.#counters = counters
    this.#source = options.source
    this.#nowMs = options.nowMs
    this.#scratch = memory.reserve(MAX_ANSWER_BYTES)
    this.#iovec = memory.reserve(IOVEC_BYTES)
  }

  /** "Network unreachable" about the IPv4 packet at `at`: no lease covers its destination. */
  networkUnreachable(id: number, at: number): void {
    this.#answer(id, at, icmpv4.CODE_NET_UNREACHABLE, 0)
  }

  /** "Fragmentation needed" (RFC 1191 §4) about the IPv4 packet at `at`, with the size that would have passed. */
  fragmentationNeeded(id: number, at: number, mtuBytes: number): void {
    this.#answer(id, at, icmpv4.CODE_FRAGMENTATION_NEEDED, mtuBytes)
  }

  #answer(id: number, at: number, code: number, rest: number): void {
    const suppressed = !mayAnswer(this.#memory.view, at) || !this.#takeToken()
    this.sink?.step({
      kind: 'icmp-answer',
      id,
      to: ipv4.getSource(this.#memory.view, at),
      type: icmpv4.TYPE_UNREACHABLE,
      code,
      suppressed,
    })
    if (suppressed) {
      this.#counters.add(SUPPRESSED, 1)
      return
    }
    const length = this.#build(at, code, rest)
    this.#memory.setIovec(this.#iovec, 0, this.#scratch, length)
    this.#counters.add(this.#device.write(this.#iovec, 1) < 0 ? FAILED : SENT, 1)
  }

  /** Builds header, ICMP and quote; returns the bytes to write, virtio-net header included. */
  #build(offender: number, code: number, rest: number): number {
    const { view, bytes } = this.#memory
    const headerBytes = ipv4.getHeaderBytes(view, offender)
    const quoted = Math.min(ipv4.getTotalLength(view, offender), headerBytes + QUOTED_PAYLOAD_BYTES)
    const at = this.#scratch + virtioNet.HEADER_LEN
    const icmp = at + ipv4.HEADER_LEN
    const total = ipv4.HEADER_LEN + icmpv4.HEADER_LEN + quoted
    bytes.fill(0, this.#scratch, icmp)
    ipv4.emit(
      {
        ...ANSWER_HEADER,
        totalLength: total,
        source: this.#source,
        destination: ipv4.getSource(view, offender),
      },
      bytes,
      at,
    )
    setHeaderChecksum(this.#memory, at, ipv4.HEADER_LEN)
    icmpv4.write(view, icmp, icmpv4.TYPE_UNREACHABLE, code, rest)
    bytes.copyWithin(icmp + icmpv4.HEADER_LEN, offender, offender + quoted)
    icmpv4.setChecksum(view, icmp, complement(this.#memory.sum(icmp, total - ipv4.HEADER_LEN)))
    return virtioNet.HEADER_LEN + total
  }

  #takeToken(): boolean {
    const now = this.#nowMs()
    this.#tokens = Math.min(BURST, this.#tokens + ((now - this.#refilledAtMs) * RATE_PER_SECOND) / 1000)
    this.#refilledAtMs = now
    if (this.#tokens < 1) return false
    this.#tokens -= 1
    return true
  }
}

const ANSWER_HEADER = {
  version: 4,
  headerWords: ipv4.HEADER_LEN / 4,
  dscp: 0,
  ecn: 0,
  identification: 0,
  flags: 0,
  fragmentOffset: 0,
  ttl: ANSWER_TTL,
  protocol: ipv4.PROTOCOL_ICMP,
  checksum: 0,
  options: new Uint8Array(0),
} as const

/**
 * Whether an error may be sent about this packet (RFC 1122 §3.2.2): never about an ICMP error, a fragment other than
 * the first, or a source that is not one host.
 */
function mayAnswer(view: DataView, at: number): boolean {
  const source = ipv4.getSource(view, at)
  if (source === 0 || source >>> 28 >= 14 || source >>> 24 === 127) return false
  if ((ipv4.getFragmentWord(view, at) & ipv4.OFFSET_MASK) !== 0) return false
  if (ipv4.getProtocol(view, at) !== ipv4.PROTOCOL_ICMP) return true
  const headerBytes = ipv4.getHeaderBytes(view, at)
  if (ipv4.getTotalLength(view, at) < headerBytes + icmpv4.HEADER_LEN) return false
  return !icmpv4.isError(icmpv4.getType(view, at + headerBytes))
}
