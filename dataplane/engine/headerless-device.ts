// A TUN without virtio-net headers behind the interface of one that has them: what a kernel would do with the header is
// done here. Reads get an empty header in front; writes lose theirs, after an open checksum was completed or a
// super-packet cut. The plain driver: one packet a call, nothing asked of the kernel.
import { EINVAL } from '../io/errno.ts'
import type { PacketDevice } from '../io/packet-device.ts'
import { IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as udp from '../wire/udp.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { InnerPacket } from './inner-packet.ts'
import { MAX_HEADER_BYTES, Segmenter } from './segment.ts'
import { completeChecksum } from './transport-checksum.ts'

const HEADER_BYTES = virtioNet.HEADER_LEN
/** Header and the largest IP packet. */
const LARGEST_WRITE = HEADER_BYTES + 65535

/** A TUN as it is without IFF_VNET_HDR: the packet alone goes through read and write. */
export type BareDevice = PacketDevice

export class HeaderlessDevice implements PacketDevice {
  readonly #memory: PacketMemory
  readonly #bare: BareDevice
  readonly #segmenter: Segmenter
  readonly #packet = new InnerPacket()
  /** Where a write is put together that cannot go as it lies. */
  readonly #scratch: number
  readonly #iovecs: number

  constructor(memory: PacketMemory, bare: BareDevice) {
    this.#memory = memory
    this.#bare = bare
    this.#segmenter = new Segmenter(memory)
    this.#scratch = memory.reserve(LARGEST_WRITE)
    this.#iovecs = memory.reserve(2 * IOVEC_BYTES)
  }

  read(at: number, capacity: number): number {
    const read = this.#bare.read(at + HEADER_BYTES, capacity - HEADER_BYTES)
    if (read <= 0) return read
    virtioNet.write(this.#memory.view, at, 0, 0, 0, 0, 0, 0)
    return HEADER_BYTES + read
  }

  write(iovecs: number, count: number): number {
    const memory = this.#memory
    if (count > 1 && memory.iovecLength(iovecs, 0) === HEADER_BYTES && this.#isPlain(memory.iovecAt(iovecs, 0))) {
      const written = this.#bare.write(iovecs + IOVEC_BYTES, count - 1)
      return written > 0 ? HEADER_BYTES + written : written
    }
    const length = this.#gather(iovecs, count) - HEADER_BYTES
    if (length <= 0) return -EINVAL
    const result = this.#writeGathered(length)
    return result < 0 ? result : HEADER_BYTES + length
  }

  /** A header that leaves nothing to be done. */
  #isPlain(header: number): boolean {
    const { view } = this.#memory
    const needsChecksum = (virtioNet.getFlags(view, header) & virtioNet.FLAG_NEEDS_CSUM) !== 0
    return !needsChecksum && virtioNet.getGsoType(view, header) === virtioNet.GSO_NONE
  }

  /** Brings header and packet together in the scratch area; returns how many bytes, 0 when they are too many. */
  #gather(iovecs: number, count: number): number {
    const memory = this.#memory
    let done = 0
    for (let index = 0; index < count; index++) {
      const from = memory.iovecAt(iovecs, index)
      const length = memory.iovecLength(iovecs, index)
      if (done + length > LARGEST_WRITE) return 0
      memory.bytes.copyWithin(this.#scratch + done, from, from + length)
      done += length
    }
    return done
  }

  /** The packet of `length` bytes behind the header in the scratch area. Returns 0 or more, or -errno. */
  #writeGathered(length: number): number {
    const { view } = this.#memory
    const header = this.#scratch
    const at = header + HEADER_BYTES
    if (virtioNet.getGsoType(view, header) !== virtioNet.GSO_NONE) return this.#writeCut(at, length)
    if ((virtioNet.getFlags(view, header) & virtioNet.FLAG_NEEDS_CSUM) !== 0) {
      const start = virtioNet.getChecksumStart(view, header)
      const offset = virtioNet.getChecksumOffset(view, header)
      if (start + offset + 2 > length) return -EINVAL
      completeChecksum(this.#memory, at + start, length - start, at + start + offset, offset === udp.CHECKSUM_OFFSET)
    }
    this.#memory.setIovec(this.#iovecs, 0, at, length)
    return this.#bare.write(this.#iovecs, 1)
  }

  /** Every packet that the super-packet stands for, whatever becomes of the others. */
  #writeCut(at: number, length: number): number {
    const segmenter = this.#segmenter
    const gsoSize = virtioNet.getGsoSize(this.#memory.view, this.#scratch)
    if (!this.#isSuperPacket(at, length) || gsoSize === 0) return -EINVAL
    segmenter.begin(this.#packet, gsoSize)
    let result = 0
    for (let index = 0; index < segmenter.count; index++) {
      segmenter.reset()
      const header = segmenter.build(index)
      this.#memory.setIovec(this.#iovecs, 0, header, segmenter.headerBytes)
      this.#memory.setIovec(this.#iovecs, 1, segmenter.payloadAt(index), segmenter.payloadLength(index))
      const written = this.#bare.write(this.#iovecs, 2)
      if (written < 0) result = written
    }
    return result
  }

  /** The same conditions under which a kernel takes one: open checksum, type and packet agree, headers that can be cut. */
  #isSuperPacket(at: number, length: number): boolean {
    const { view } = this.#memory
    const packet = this.#packet
    if ((virtioNet.getFlags(view, this.#scratch) & virtioNet.FLAG_NEEDS_CSUM) === 0) return false
    if (packet.read(view, at, length) !== null || packet.length !== length) return false
    if (packet.headerBytes === 0 || packet.headerBytes >= length || packet.headerBytes > MAX_HEADER_BYTES) return false
    const type = virtioNet.getGsoType(view, this.#scratch) & ~virtioNet.GSO_ECN
    if (packet.protocol === ipv4.PROTOCOL_UDP) return type === virtioNet.GSO_UDP_L4
    return type === (packet.version === 4 ? virtioNet.GSO_TCPV4 : virtioNet.GSO_TCPV6)
  }
}
