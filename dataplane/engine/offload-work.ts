// What a virtio-net header leaves to the kernel, done here: an open checksum is completed, a super-packet cut. For a
// TUN without such headers, and for one that refuses them.
import type { PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as udp from '../wire/udp.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { InnerPacket } from './inner-packet.ts'
import { MAX_HEADER_BYTES, Segmenter } from './segment.ts'
import { completeChecksum } from './transport-checksum.ts'

/** Iovecs that one packet takes at most: its header, its payload. */
export const PIECES = 2

export class OffloadWork {
  /** Packets that there are to write, by the last {@link begin}. */
  count = 0
  readonly #memory: PacketMemory
  readonly #segmenter: Segmenter
  readonly #packet = new InnerPacket()
  #at = 0
  #length = 0
  #isCut = false

  constructor(memory: PacketMemory) {
    this.#memory = memory
    this.#segmenter = new Segmenter(memory)
  }

  /**
   * Takes the packet of `length` bytes at `at`, with its virtio-net header at `header`, whose bytes are ours to change.
   * False when the header contradicts the packet, as a kernel would find (EINVAL).
   */
  begin(header: number, at: number, length: number): boolean {
    const { view } = this.#memory
    this.#at = at
    this.#length = length
    this.#isCut = virtioNet.getGsoType(view, header) !== virtioNet.GSO_NONE
    this.count = 1
    if (this.#isCut) return this.#beginCut(header)
    if ((virtioNet.getFlags(view, header) & virtioNet.FLAG_NEEDS_CSUM) === 0) return true
    const start = virtioNet.getChecksumStart(view, header)
    const offset = virtioNet.getChecksumOffset(view, header)
    if (start + offset + 2 > length) return false
    completeChecksum(this.#memory, at + start, length - start, at + start + offset, offset === udp.CHECKSUM_OFFSET)
    return true
  }

  /**
   * Puts packet `index` into the iovec array, from entry `first` on; returns how many entries. Valid until the next.
   */
  gather(index: number, iovecs: number, first: number): number {
    const segmenter = this.#segmenter
    if (!this.#isCut) {
      this.#memory.setIovec(iovecs, first, this.#at, this.#length)
      return 1
    }
    segmenter.reset()
    const header = segmenter.build(index)
    this.#memory.setIovec(iovecs, first, header, segmenter.headerBytes)
    this.#memory.setIovec(iovecs, first + 1, segmenter.payloadAt(index), segmenter.payloadLength(index))
    return PIECES
  }

  /** Bytes of packet `index`. */
  lengthOf(index: number): number {
    return this.#isCut ? this.#segmenter.headerBytes + this.#segmenter.payloadLength(index) : this.#length
  }

  /** Payload bytes of packet `index` of several. */
  payloadOf(index: number): number {
    return this.#segmenter.payloadLength(index)
  }

  #beginCut(header: number): boolean {
    const gsoSize = virtioNet.getGsoSize(this.#memory.view, header)
    if (gsoSize === 0 || !this.#isSuperPacket(header)) return false
    this.#segmenter.begin(this.#packet, gsoSize)
    this.count = this.#segmenter.count
    return true
  }

  /**
   * The same conditions under which a kernel takes one: open checksum, type and packet agree, headers that can be cut.
   */
  #isSuperPacket(header: number): boolean {
    const { view } = this.#memory
    const packet = this.#packet
    const length = this.#length
    if ((virtioNet.getFlags(view, header) & virtioNet.FLAG_NEEDS_CSUM) === 0) return false
    if (packet.read(view, this.#at, length) !== null || packet.length !== length) return false
    if (packet.headerBytes === 0 || packet.headerBytes >= length || packet.headerBytes > MAX_HEADER_BYTES) return false
    const type = virtioNet.getGsoType(view, header) & ~virtioNet.GSO_ECN
    if (packet.protocol === ipv4.PROTOCOL_UDP) return type === virtioNet.GSO_UDP_L4
    return type === (packet.version === 4 ? virtioNet.GSO_TCPV4 : virtioNet.GSO_TCPV6)
  }
}
