// The last step inbound: one packet, or several joined into one, written to the TUN behind a virtio-net header that is
// written whole every time. What the TUN does not take with work left in it is done here and written packet by packet.
// Counts what became of them.
import { EINVAL, EIO, isRefusedShape, reasonForWriteErrno } from '../io/errno.ts'
import type { PacketDevice } from '../io/packet-device.ts'
import { IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { type Counters, cellOf } from './counters.ts'
import type { GsoTrust } from './gso-trust.ts'
import { OffloadWork, PIECES } from './offload-work.ts'

const READ_PACKETS = cellOf('inbound.packets.read')
const READ_BYTES = cellOf('inbound.bytes.read')
const PASSED_PACKETS = cellOf('inbound.packets.passed')
const PASSED_BYTES = cellOf('inbound.bytes.passed')
const WRITE_CALLS = cellOf('inbound.calls.write')
const SUPER_PACKETS = cellOf('inbound.super-packets')
const REFUSED = cellOf('inbound.super-packets.refused')
const OPEN_REFUSED = cellOf('inbound.checksum.refused')
/** What a write that was cut short is counted as: it has no errno. */
const CUT_SHORT = 0

export class TunWriter {
  sink: StepSink | null = null
  readonly #memory: PacketMemory
  readonly #device: PacketDevice
  readonly #counters: Counters
  readonly #header: number
  readonly #single: number
  readonly #trust: GsoTrust
  readonly #work: OffloadWork

  constructor(memory: PacketMemory, device: PacketDevice, counters: Counters, trust: GsoTrust) {
    this.#memory = memory
    this.#device = device
    this.#counters = counters
    this.#trust = trust
    this.#work = new OffloadWork(memory)
    this.#header = memory.reserve(virtioNet.HEADER_LEN)
    this.#single = this.reserveIovecs(PIECES)
  }

  /** An iovec array for the virtio-net header, set here for good, and `pieces` of packet behind it. */
  reserveIovecs(pieces: number): number {
    const iovecs = this.#memory.reserve((1 + pieces) * IOVEC_BYTES)
    this.#memory.setIovec(iovecs, 0, this.#header, virtioNet.HEADER_LEN)
    return iovecs
  }

  /** The next write is a packet as it stands: an all-zero header. */
  #setPlain(): void {
    virtioNet.write(this.#memory.view, this.#header, 0, 0, 0, 0, 0, 0)
  }

  /**
   * The next write leaves the checksum to the kernel and, with a `gsoType`, the cutting too. `checksumStart` is the
   * IP header length; `headerBytes` counts the transport header as well.
   */
  setOffloaded(
    gsoType: number,
    gsoSize: number,
    headerBytes: number,
    checksumStart: number,
    checksumOffset: number,
  ): void {
    const flags = virtioNet.FLAG_NEEDS_CSUM
    const { view } = this.#memory
    virtioNet.write(view, this.#header, flags, gsoType, headerBytes, gsoSize, checksumStart, checksumOffset)
  }

  /**
   * Writes the packet of `length` bytes at `at` as it stands, which was received as `frameBytes` of datagram. Returns
   * as `write`.
   */
  writePlain(id: number, at: number, length: number, frameBytes: number): number {
    this.#setPlain()
    this.#memory.setIovec(this.#single, 1, at, length)
    return this.write(id, this.#single, 1, 1, length, frameBytes)
  }

  /**
   * The same behind the header that {@link setOffloaded} made, whose work is done here where the kernel refuses to do
   * it: it then counts as the packets that it stands for. The bytes at `at` may change. Returns 0 or more when any of
   * them was written, else -errno.
   */
  writeOffloaded(id: number, at: number, length: number, frameBytes: number): number {
    const { view } = this.#memory
    const gsoType = virtioNet.getGsoType(view, this.#header)
    const gsoSize = virtioNet.getGsoSize(view, this.#header)
    const hasShortTail = gsoSize > 0 && (length - virtioNet.getHeaderLength(view, this.#header)) % gsoSize !== 0
    if (!this.#trust.takes(gsoType, hasShortTail)) return this.#doWork(id, at, length, frameBytes)
    this.#memory.setIovec(this.#single, 1, at, length)
    const result = this.#call(id, this.#single, 1, 1, frameBytes)
    // EIO is a device that is down: the first of the packets that it stands for tells.
    if (result >= 0 || !(isRefusedShape(-result) || result === -EIO)) {
      return this.#settle(result, 1, length, frameBytes)
    }
    this.#counters.add(gsoType === virtioNet.GSO_NONE ? OPEN_REFUSED : REFUSED, 1)
    const single = this.#doWork(id, at, length, frameBytes)
    if (single >= 0 && result !== -EIO) this.#trust.refused(gsoType, hasShortTail)
    return single
  }

  /**
   * Writes `packets` joined packets, `length` bytes gathered from `pieces` iovecs behind the header's. Returns bytes
   * written or -errno. With an errno of {@link isRefusedShape} for more than one packet none of them is counted: they
   * are to be written one by one.
   */
  write(id: number, iovecs: number, pieces: number, packets: number, length: number, frameBytes: number): number {
    const result = this.#call(id, iovecs, pieces, packets, frameBytes)
    if (result < 0 && packets > 1 && isRefusedShape(-result)) {
      this.#counters.add(REFUSED, 1)
      return result
    }
    return this.#settle(result, packets, length, frameBytes)
  }

  /**
   * Does what the header leaves to be done, and writes each packet that comes of it; the last one stands for the
   * headers' bytes.
   */
  #doWork(id: number, at: number, length: number, frameBytes: number): number {
    const work = this.#work
    if (!work.begin(this.#header, at, length)) return this.#settle(-EINVAL, 1, length, frameBytes)
    this.#setPlain()
    let left = frameBytes
    let result = 0
    let passed = false
    for (let index = 0; index < work.count; index++) {
      const share = index < work.count - 1 ? work.payloadOf(index) : left
      const pieces = work.gather(index, this.#single, 1)
      // A device that is down takes none of the others either.
      if (result !== -EIO) result = this.#call(id, this.#single, pieces, 1, share)
      if (this.#settle(result, 1, work.lengthOf(index), share) >= 0) passed = true
      left -= share
    }
    return passed ? 0 : result
  }

  #call(id: number, iovecs: number, pieces: number, packets: number, frameBytes: number): number {
    const result = this.#device.write(iovecs, 1 + pieces)
    this.#counters.add(WRITE_CALLS, 1)
    if (this.sink !== null) this.#trace(this.sink, id, packets, frameBytes, Math.max(-result, 0))
    return result
  }

  /** Counts what became of a write of `length` bytes and a header; returns its result. */
  #settle(result: number, packets: number, length: number, frameBytes: number): number {
    const counters = this.#counters
    counters.add(READ_PACKETS, packets)
    counters.add(READ_BYTES, frameBytes)
    if (result >= virtioNet.HEADER_LEN + length) {
      counters.add(PASSED_PACKETS, packets)
      counters.add(PASSED_BYTES, frameBytes)
      if (packets > 1) counters.add(SUPER_PACKETS, 1)
    } else {
      // What is missing of one that was cut short would be a packet of its own: it is not tried again.
      counters.drop('inbound', reasonForWriteErrno(result < 0 ? -result : CUT_SHORT), packets, frameBytes)
    }
    return result
  }

  #trace(sink: StepSink, id: number, packets: number, bytes: number, errno: number): void {
    const gsoType = virtioNet.getGsoType(this.#memory.view, this.#header)
    const gsoSize = virtioNet.getGsoSize(this.#memory.view, this.#header)
    sink.step({ kind: 'tun-write', id, packets, bytes, gsoType, gsoSize, errno })
  }
}
