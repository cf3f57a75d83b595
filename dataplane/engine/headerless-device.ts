// A TUN without virtio-net headers behind the interface of one that has them: what a kernel would do with the header is
// done here. Reads get an empty header in front; writes lose theirs, after an open checksum was completed or a
// super-packet cut. The plain driver: one packet a call, nothing asked of the kernel.
import { EINVAL } from '../io/errno.ts'
import type { PacketDevice } from '../io/packet-device.ts'
import { IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { OffloadWork, PIECES } from './offload-work.ts'

const HEADER_BYTES = virtioNet.HEADER_LEN
/** Header and the largest IP packet. */
const LARGEST_WRITE = HEADER_BYTES + 65535

/** A TUN as it is without IFF_VNET_HDR: the packet alone goes through read and write. */
export type BareDevice = PacketDevice

export class HeaderlessDevice implements PacketDevice {
  readonly #memory: PacketMemory
  readonly #bare: BareDevice
  readonly #work: OffloadWork
  /** Where a write is put together that cannot go as it lies. */
  readonly #scratch: number
  readonly #iovecs: number

  constructor(memory: PacketMemory, bare: BareDevice) {
    this.#memory = memory
    this.#bare = bare
    this.#work = new OffloadWork(memory)
    this.#scratch = memory.reserve(LARGEST_WRITE)
    this.#iovecs = memory.reserve(PIECES * IOVEC_BYTES)
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

  /** Every packet that the one of `length` bytes in the scratch area stands for, whatever becomes of the others. */
  #writeGathered(length: number): number {
    const work = this.#work
    if (!work.begin(this.#scratch, this.#scratch + HEADER_BYTES, length)) return -EINVAL
    let result = 0
    for (let index = 0; index < work.count; index++) {
      const written = this.#bare.write(this.#iovecs, work.gather(index, this.#iovecs, 0))
      if (written < 0) result = written
    }
    return result
  }
}
