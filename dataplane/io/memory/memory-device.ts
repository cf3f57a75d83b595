// A TUN without a kernel: packets are queued by hand and writes are handed to whoever listens. For tests, simulation
// and benchmarks; allocates nothing by itself when packets are replayed from packet memory.
import type { PacketMemory } from '../../memory/packet-memory.ts'
import { EINVAL, EIO } from '../errno.ts'
import type { PacketDevice } from '../packet-device.ts'

/** Called for each write with its iovecs; the bytes are valid during the call. Returns 0, or an errno to refuse. */
export type WriteListener = (iovecs: number, count: number) => number

/** Smallest thing that a TUN with virtio-net headers accepts: the header and at least a version nibble. */
const MIN_WRITE_BYTES = 11

export class MemoryDevice implements PacketDevice {
  /** As with a real TUN that is set down: writes fail with EIO. */
  isUp = true
  readonly #memory: PacketMemory
  readonly #onWrite: WriteListener
  readonly #queue: Uint8Array[] = []
  #replay: { readonly at: number; readonly length: number; readonly packets: number } | null = null
  #replaysLeft = 0
  #replayed = 0

  constructor(memory: PacketMemory, onWrite: WriteListener = () => 0) {
    this.#memory = memory
    this.#onWrite = onWrite
  }

  /** Queues one packet, virtio-net header first. The bytes are copied when they are read. */
  queue(packet: Uint8Array): void {
    this.#queue.push(packet)
  }

  /**
   * Lets the next `times` reads give the packet that lies in packet memory, or by turns `packets` of one length that
   * follow each other.
   */
  replay(at: number, length: number, times: number, packets = 1): void {
    this.#replay = { at, length, packets }
    this.#replaysLeft = times
  }

  read(at: number, capacity: number): number {
    if (this.#replay !== null && this.#replaysLeft > 0) {
      this.#replaysLeft -= 1
      const { length, packets } = this.#replay
      const bytes = Math.min(length, capacity)
      this.#replayed = this.#replayed + 1 < packets ? this.#replayed + 1 : 0
      const from = this.#replay.at + this.#replayed * length
      this.#memory.bytes.copyWithin(at, from, from + bytes)
      return bytes
    }
    const packet = this.#queue.shift()
    if (packet === undefined) return 0
    const bytes = Math.min(packet.length, capacity)
    this.#memory.bytes.set(packet.subarray(0, bytes), at)
    return bytes
  }

  write(iovecs: number, count: number): number {
    let bytes = 0
    for (let index = 0; index < count; index++) bytes += this.#memory.iovecLength(iovecs, index)
    if (!this.isUp) return -EIO
    if (bytes < MIN_WRITE_BYTES) return -EINVAL
    const errno = this.#onWrite(iovecs, count)
    return errno === 0 ? bytes : -errno
  }
}

/** The bytes behind an array of iovecs, copied out of packet memory. */
export function gather(memory: PacketMemory, iovecs: number, count: number): Uint8Array {
  let total = 0
  for (let index = 0; index < count; index++) total += memory.iovecLength(iovecs, index)
  const gathered = new Uint8Array(total)
  let done = 0
  for (let index = 0; index < count; index++) {
    const at = memory.iovecAt(iovecs, index)
    const length = memory.iovecLength(iovecs, index)
    gathered.set(memory.bytes.subarray(at, at + length), done)
    done += length
  }
  return gathered
}
