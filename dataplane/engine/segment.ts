// Splits a super-packet into the packets it stands for. Payload is never copied: every packet is a header of its own,
// built in a slab, and a slice of the payload where it was read. Called once per super-packet by outbound.ts.
import { complement, complementUdp, fold, type PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'
import type { InnerPacket } from './inner-packet.ts'
import { checksumOffsetOf, pseudoHeaderSum } from './transport-checksum.ts'

/**
 * Largest IP and transport header that can be cut: IPv4 and TCP with all their options, or IPv6 with a few extensions.
 */
export const MAX_HEADER_BYTES = 60 + 60
/**
 * Room in front of the inner header for what an encapsulation adds; a multiple of 4, for headers are copied by words.
 */
const ENCAP_ROOM = 24
const STRIDE = ENCAP_ROOM + MAX_HEADER_BYTES + 16
/** Headers of a few super-packets; one with tiny segments goes through it in several rounds. */
const SLAB_PACKETS = 192

/** Headers at work: reused round after round, reset when the sends that refer to it are done. */
export class Segmenter {
  /** Payload bytes of each packet but the last. */
  payloadBytes = 0
  /** Packets that the super-packet stands for. */
  count = 0
  headerBytes = 0

  /**
   * Where the inner header of the template stands; the tunnel header belongs in the {@link ENCAP_ROOM} bytes before it.
   */
  readonly template: number
  readonly #memory: PacketMemory
  readonly #slab: number
  #used = 0
  #ipBytes = 0
  #payload = 0
  #payloadTotal = 0
  #isIpv4 = false
  #isTcp = false
  #identification = 0
  #sequence = 0
  #flags = 0
  #ipSum = 0
  #transportSum = 0

  constructor(memory: PacketMemory) {
    this.#memory = memory
    this.#slab = memory.reserve(SLAB_PACKETS * STRIDE)
    this.template = memory.reserve(STRIDE) + ENCAP_ROOM
  }

  /** Forgets all headers built: their bytes have been sent. */
  reset(): void {
    this.#used = 0
  }

  get isFull(): boolean {
    return this.#used === SLAB_PACKETS
  }

  /**
   * Prepares a super-packet of TCP or UDP, headers of at most {@link MAX_HEADER_BYTES}, to be cut into payloads of
   * `gsoSize`. Its header, with the varying fields zeroed, becomes the template of all of them; once it is made,
   * whatever stands in front of it is copied along: the tunnel header is written once.
   */
  begin(packet: InnerPacket, gsoSize: number): void {
    const { at, ipBytes, headerBytes } = packet
    this.#memory.bytes.copyWithin(this.template, at, at + headerBytes)
    this.#ipBytes = ipBytes
    this.#isIpv4 = packet.version === 4
    this.#isTcp = packet.protocol === ipv4.PROTOCOL_TCP
    this.headerBytes = headerBytes
    this.#payload = at + headerBytes
    this.#payloadTotal = packet.length - headerBytes
    this.payloadBytes = gsoSize
    this.count = Math.ceil(this.#payloadTotal / gsoSize)
    // What stays the same is summed once, with the varying fields zeroed.
    if (this.#isIpv4) this.#beginIpv4(this.template, ipBytes)
    const pseudo = this.#pseudoSum(packet)
    this.#beginTransport(this.template + ipBytes)
    const transportHeader = this.#memory.sum(this.template + ipBytes, headerBytes - ipBytes)
    this.#transportSum = fold(pseudo + transportHeader)
  }

  /**
   * The pseudo-header sum without the length. Behind extension headers it is taken from the checksum field, where the
   * kernel left it: a routing header may hold the destination that counts (RFC 8200 §8.1).
   */
  #pseudoSum(packet: InnerPacket): number {
    if (packet.version === 4 || packet.ipBytes === ipv6.HEADER_LEN) return pseudoHeaderSum(this.#memory, packet, 0)
    const transport = packet.at + packet.ipBytes
    const stored = this.#memory.view.getUint16(transport + checksumOffsetOf(packet.protocol))
    return fold(stored + complement(packet.length - packet.ipBytes))
  }

  #beginIpv4(at: number, ipBytes: number): void {
    const { view } = this.#memory
    this.#identification = ipv4.getIdentification(view, at)
    ipv4.setTotalLength(view, at, 0)
    ipv4.setIdentification(view, at, 0)
    ipv4.setChecksum(view, at, 0)
    this.#ipSum = this.#memory.sum(at, ipBytes)
  }

  #beginTransport(transport: number): void {
    const { view } = this.#memory
    if (this.#isTcp) {
      this.#sequence = tcp.getSequence(view, transport)
      this.#flags = tcp.getFlags(view, transport)
      tcp.setSequence(view, transport, 0)
      tcp.setFlags(view, transport, 0)
      tcp.setChecksum(view, transport, 0)
    } else {
      udp.setLength(view, transport, 0)
      udp.setChecksum(view, transport, 0)
    }
  }

  /** Offset of the payload slice of packet `index`. */
  payloadAt(index: number): number {
    return this.#payload + index * this.payloadBytes
  }

  payloadLength(index: number): number {
    return Math.min(this.payloadBytes, this.#payloadTotal - index * this.payloadBytes)
  }

  /**
   * Builds the header of packet `index` and returns its offset; {@link ENCAP_ROOM} bytes in front of it are free. The
   * rules are the kernel's (net/ipv4/tcp_offload.c, udp_offload.c): id counts up, sequence advances, FIN and PSH only
   * on the last, CWR only on the first.
   */
  build(index: number): number {
    const { view } = this.#memory
    const at = this.#slab + this.#used++ * STRIDE + ENCAP_ROOM
    this.#copyTemplate(at)
    const payload = this.payloadLength(index)
    const total = this.headerBytes + payload
    if (this.#isIpv4) {
      const identification = (this.#identification + index) & 0xffff
      ipv4.setTotalLength(view, at, total)
      ipv4.setIdentification(view, at, identification)
      ipv4.setChecksum(view, at, complement(this.#ipSum + total + identification))
    } else {
      ipv6.setPayloadLength(view, at, total - ipv6.HEADER_LEN)
    }
    const payloadSum = this.#memory.sum(this.payloadAt(index), payload)
    if (this.#isTcp) this.#finishTcp(at + this.#ipBytes, index, total - this.#ipBytes, payloadSum)
    else this.#finishUdp(at + this.#ipBytes, total - this.#ipBytes, payloadSum)
    return at
  }

  #finishTcp(transport: number, index: number, length: number, payloadSum: number): void {
    const { view } = this.#memory
    const sequence = (this.#sequence + index * this.payloadBytes) >>> 0
    let flags = this.#flags
    if (index > 0) flags &= ~tcp.FLAG_CWR
    if (index < this.count - 1) flags &= ~(tcp.FLAG_FIN | tcp.FLAG_PSH)
    tcp.setSequence(view, transport, sequence)
    tcp.setFlags(view, transport, flags)
    const sum = this.#transportSum + payloadSum + length + (sequence >>> 16) + (sequence & 0xffff) + flags
    tcp.setChecksum(view, transport, complement(sum))
  }

  #finishUdp(transport: number, length: number, payloadSum: number): void {
    const { view } = this.#memory
    udp.setLength(view, transport, length)
    // The length counts twice: in the pseudo-header and in the header.
    udp.setChecksum(view, transport, complementUdp(this.#transportSum + payloadSum + length + length))
  }

  /** Word by word, tunnel header included: headers are short and a multiple of 4 bytes, where a loop beats a call. */
  #copyTemplate(to: number): void {
    const { words } = this.#memory
    const from = (this.template - ENCAP_ROOM) >> 2
    const into = (to - ENCAP_ROOM) >> 2
    const count = (ENCAP_ROOM + this.headerBytes) >> 2
    for (let word = 0; word < count; word++) words[into + word] = words[from + word]!
  }
}
