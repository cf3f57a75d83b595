// Splits a super-packet into the packets it stands for. Payload is never copied: every packet is a header of its own,
// built in a slab, and a slice of the payload where it was read. Called once per super-packet by outbound.ts.
import { complement, complementUdp, fold, type PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'

/** Largest IPv4 header plus largest TCP header. */
const MAX_HEADER_BYTES = 60 + 60
/** Room in front of the inner header for what an encapsulation adds; a multiple of 4 keeps word copies aligned. */
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

  readonly #memory: PacketMemory
  readonly #slab: number
  #used = 0
  #at = 0
  #ipBytes = 0
  #payload = 0
  #payloadTotal = 0
  #isTcp = false
  #identification = 0
  #sequence = 0
  #flags = 0
  #ipSum = 0
  #transportSum = 0

  constructor(memory: PacketMemory) {
    this.#memory = memory
    this.#slab = memory.reserve(SLAB_PACKETS * STRIDE)
  }

  /** Forgets all headers built: their bytes have been sent. */
  reset(): void {
    this.#used = 0
  }

  get isFull(): boolean {
    return this.#used === SLAB_PACKETS
  }

  /**
   * Prepares the super-packet at `at`: IPv4 header of `ipBytes`, TCP or UDP header, `length` bytes in all, to be cut
   * into payloads of `gsoSize`. The caller has checked the lengths. Changes bytes of the header that was read (it
   * serves as the template), never the payload.
   */
  begin(at: number, ipBytes: number, headerBytes: number, length: number, gsoSize: number): void {
    const { view } = this.#memory
    const transport = at + ipBytes
    this.#at = at
    this.#ipBytes = ipBytes
    this.headerBytes = headerBytes
    this.#payload = at + headerBytes
    this.#payloadTotal = length - headerBytes
    this.payloadBytes = gsoSize
    this.count = Math.ceil(this.#payloadTotal / gsoSize)
    this.#identification = ipv4.getIdentification(view, at)
    this.#isTcp = ipv4.getProtocol(view, at) === ipv4.PROTOCOL_TCP
    // What stays the same is summed once, with the varying fields zeroed.
    ipv4.setTotalLength(view, at, 0)
    ipv4.setIdentification(view, at, 0)
    ipv4.setChecksum(view, at, 0)
    this.#ipSum = this.#memory.sum(at, ipBytes)
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
    const addresses = this.#memory.sum(at + ipv4.SOURCE_OFFSET, 8)
    this.#transportSum = fold(
      addresses + ipv4.getProtocol(view, at) + this.#memory.sum(transport, headerBytes - ipBytes),
    )
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
    this.#copyHeader(at)
    const payload = this.payloadLength(index)
    const total = this.headerBytes + payload
    const identification = (this.#identification + index) & 0xffff
    ipv4.setTotalLength(view, at, total)
    ipv4.setIdentification(view, at, identification)
    ipv4.setChecksum(view, at, complement(this.#ipSum + total + identification))
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

  /** Word by word: headers are a multiple of 4 bytes and 60 at most, where a loop beats a call. */
  #copyHeader(to: number): void {
    const { view } = this.#memory
    for (let done = 0; done < this.headerBytes; done += 4) {
      view.setUint32(to + done, view.getUint32(this.#at + done))
    }
  }
}
