// ICMP errors to the pod (RFC 792, RFC 1191, RFC 4443): a tunnel endpoint is a router and must say why it does not
// forward. Built in a scratch region and written back into the TUN.
import type { PacketDevice } from '../io/packet-device.ts'
import { complement, fold, IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as icmpv4 from '../wire/icmpv4.ts'
import * as icmpv6 from '../wire/icmpv6.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { type Counters, cellOf } from './counters.ts'
import type { InnerPacket } from './inner-packet.ts'
import { RateLimit } from './rate-limit.ts'
import { readAddress } from './read-address.ts'
import type { EngineSettings } from './settings.ts'
import { setHeaderChecksum } from './transport-checksum.ts'

/** Bytes of the offender's payload that an ICMP error quotes behind its IP header (RFC 792). */
const QUOTED_PAYLOAD_BYTES = 8
/** An ICMPv6 error quotes as much as fits into the smallest MTU (RFC 4443 §2.4 c). */
export const MAX_IPV6_BYTES = ipv6.LEAST_MTU_BYTES
/** As flannel's: far enough for a pod on this host, no further. */
const ANSWER_TTL = 8
/** Answers to one source: a scan through unused addresses is not answered one by one. */
const RATE = { perSecond: 100, burst: 50 } as const

// The first addresses that are nobody's: 224.0.0.0 and ff00::, up to the last. Only the unspecified one lies below ::1.
const IPV4_MULTICAST = 0xe000_0000
const IPV6_MULTICAST = 0xffn << 120n
const IPV6_LOOPBACK = 1n

const SENT = cellOf('icmp.sent')
const SUPPRESSED = cellOf('icmp.suppressed')
const FAILED = cellOf('icmp.failed')

/** What an answer says: type and code of each family, and the 32 bits behind the checksum. */
interface Answer {
  readonly v4: readonly [type: number, code: number]
  readonly v6: readonly [type: number, code: number]
}

const UNREACHABLE: Answer = {
  v4: [icmpv4.TYPE_UNREACHABLE, icmpv4.CODE_NET_UNREACHABLE],
  v6: [icmpv6.TYPE_UNREACHABLE, icmpv6.CODE_NO_ROUTE],
}
const TOO_BIG: Answer = {
  v4: [icmpv4.TYPE_UNREACHABLE, icmpv4.CODE_FRAGMENTATION_NEEDED],
  v6: [icmpv6.TYPE_PACKET_TOO_BIG, 0],
}
const TIME_EXCEEDED: Answer = { v4: [icmpv4.TYPE_TIME_EXCEEDED, 0], v6: [icmpv6.TYPE_TIME_EXCEEDED, 0] }

export interface IcmpAnswerParts {
  readonly memory: PacketMemory
  readonly device: PacketDevice
  readonly counters: Counters
  readonly settings: EngineSettings
  readonly nowMs: () => number
}

export class IcmpAnswer {
  sink: StepSink | null = null
  readonly #parts: IcmpAnswerParts
  readonly #memory: PacketMemory
  readonly #limit = new RateLimit(RATE)
  readonly #scratch: number
  readonly #iovec: number

  constructor(parts: IcmpAnswerParts) {
    this.#parts = parts
    this.#memory = parts.memory
    this.#scratch = parts.memory.reserve(virtioNet.HEADER_LEN + MAX_IPV6_BYTES)
    this.#iovec = parts.memory.reserve(IOVEC_BYTES)
  }

  /** No lease covers the packet's destination. */
  networkUnreachable(id: number, packet: InnerPacket): void {
    this.#answer(id, packet, UNREACHABLE, 0)
  }

  /** The packet is too big, with the size that would have passed (RFC 1191 §4, RFC 4443 §3.2). */
  tooBig(id: number, packet: InnerPacket, mtuBytes: number): void {
    this.#answer(id, packet, TOO_BIG, mtuBytes)
  }

  /** The packet's TTL or hop limit ran out in a tunnel that counts as a hop. */
  timeExceeded(id: number, packet: InnerPacket): void {
    this.#answer(id, packet, TIME_EXCEEDED, 0)
  }

  #answer(id: number, packet: InnerPacket, answer: Answer, rest: number): void {
    const { view } = this.#memory
    const { counters, device, settings, nowMs } = this.#parts
    const [type, code] = packet.version === 4 ? answer.v4 : answer.v6
    const canSay = (packet.version === 4 ? settings.overlayAddress : settings.overlayIpv6) !== null
    const suppressed = !canSay || !mayAnswer(view, packet) || !this.#limit.take(sourceHash(view, packet), nowMs())
    this.sink?.step({
      kind: 'icmp-answer',
      id,
      to: readAddress(view, packet.version, packet.addressesAt),
      type,
      code,
      suppressed,
    })
    if (suppressed) {
      counters.add(SUPPRESSED, 1)
      return
    }
    const at = this.#scratch + virtioNet.HEADER_LEN
    virtioNet.write(view, this.#scratch, 0, 0, 0, 0, 0, 0)
    const length =
      packet.version === 4 ? this.#ipv4(at, packet, type, code, rest) : this.#ipv6(at, packet, type, code, rest)
    this.#memory.setIovec(this.#iovec, 0, this.#scratch, virtioNet.HEADER_LEN + length)
    counters.add(device.write(this.#iovec, 1) < 0 ? FAILED : SENT, 1)
  }

  /** Builds an ICMP error at `at`; returns its bytes. */
  #ipv4(at: number, packet: InnerPacket, type: number, code: number, rest: number): number {
    const { view, bytes } = this.#memory
    const icmp = at + ipv4.HEADER_LEN
    const quoted = Math.min(packet.length, packet.ipBytes + QUOTED_PAYLOAD_BYTES)
    const total = ipv4.HEADER_LEN + icmpv4.HEADER_LEN + quoted
    const source = this.#parts.settings.overlayAddress ?? 0
    const destination = ipv4.getSource(view, packet.at)
    ipv4.emit({ ...IPV4_HEADER, totalLength: total, source, destination }, bytes, at)
    setHeaderChecksum(this.#memory, at, ipv4.HEADER_LEN)
    icmpv4.write(view, icmp, type, code, rest)
    bytes.copyWithin(icmp + icmpv4.HEADER_LEN, packet.at, packet.at + quoted)
    icmpv4.setChecksum(view, icmp, complement(this.#memory.sum(icmp, total - ipv4.HEADER_LEN)))
    return total
  }

  /** Builds an ICMPv6 error at `at`; returns its bytes. Its checksum covers a pseudo-header (RFC 4443 §2.3). */
  #ipv6(at: number, packet: InnerPacket, type: number, code: number, rest: number): number {
    const { view, bytes } = this.#memory
    const icmp = at + ipv6.HEADER_LEN
    const quoted = Math.min(packet.length, MAX_IPV6_BYTES - ipv6.HEADER_LEN - icmpv4.HEADER_LEN)
    const payloadLength = icmpv4.HEADER_LEN + quoted
    const source = this.#parts.settings.overlayIpv6 ?? 0n
    const destination = ipv6.getSource(view, packet.at)
    ipv6.emit({ ...IPV6_HEADER, payloadLength, source, destination }, bytes, at)
    icmpv4.write(view, icmp, type, code, rest)
    bytes.copyWithin(icmp + icmpv4.HEADER_LEN, packet.at, packet.at + quoted)
    const addresses = this.#memory.sum(at + ipv6.SOURCE_OFFSET, 2 * 16)
    const sum = fold(addresses + payloadLength + ipv6.PROTOCOL_ICMPV6 + this.#memory.sum(icmp, payloadLength))
    icmpv4.setChecksum(view, icmp, complement(sum))
    return ipv6.HEADER_LEN + payloadLength
  }
}

const IPV4_HEADER = {
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

const IPV6_HEADER = {
  version: 6,
  dscp: 0,
  ecn: 0,
  flowLabel: 0,
  nextHeader: ipv6.PROTOCOL_ICMPV6,
  hopLimit: ANSWER_TTL,
} as const

/**
 * Whether an error may be sent about this packet (RFC 1122 §3.2.2, RFC 4443 §2.4 e): never about an ICMP error, a
 * fragment other than the first, or a source that is not one host.
 */
function mayAnswer(view: DataView, packet: InnerPacket): boolean {
  if (packet.isLaterFragment || !isOneHost(view, packet)) return false
  const isIcmpv4 = packet.version === 4 && packet.protocol === ipv4.PROTOCOL_ICMP
  const isIcmpv6 = packet.version === 6 && packet.protocol === ipv6.PROTOCOL_ICMPV6
  if (!isIcmpv4 && !isIcmpv6) return true
  if (packet.length < packet.ipBytes + icmpv4.HEADER_LEN) return false
  const type = icmpv4.getType(view, packet.at + packet.ipBytes)
  return isIcmpv4 ? !icmpv4.isError(type) : !icmpv6.isError(type)
}

/** A unicast source that an answer can reach: not unspecified, not multicast, not loopback. */
function isOneHost(view: DataView, packet: InnerPacket): boolean {
  if (packet.version === 6) {
    const source = ipv6.getSource(view, packet.at)
    return source > IPV6_LOOPBACK && source < IPV6_MULTICAST
  }
  const source = ipv4.getSource(view, packet.at)
  return source !== 0 && source < IPV4_MULTICAST && source >>> 24 !== 127
}

/** The source's last 32 bits, as a signed number: hosts of one subnet differ there. */
function sourceHash(view: DataView, packet: InnerPacket): number {
  return (packet.version === 4 ? ipv4.getSource(view, packet.at) : ipv6.getSourceWord(view, packet.at, 3)) | 0
}
