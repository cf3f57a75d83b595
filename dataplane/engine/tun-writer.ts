// The last step inbound: one packet, or several joined into one, written to the TUN behind a virtio-net header that is
// written whole every time. Counts what became of them.
import { EINVAL, reasonForWriteErrno } from '../io/errno.ts'
import type { PacketDevice } from '../io/packet-device.ts'
import { IOVEC_BYTES, type PacketMemory } from '../memory/packet-memory.ts'
import type { StepSink } from '../step.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { type Counters, cellOf } from './counters.ts'

const READ_PACKETS = cellOf('inbound.packets.read')
const READ_BYTES = cellOf('inbound.bytes.read')
const PASSED_PACKETS = cellOf('inbound.packets.passed')
const PASSED_BYTES = cellOf('inbound.bytes.passed')
const WRITE_CALLS = cellOf('inbound.calls.write')
const SUPER_PACKETS = cellOf('inbound.super-packets')
const REFUSED = cellOf('inbound.super-packets.refused')

export class TunWriter {
  sink: StepSink | null = null
  readonly #memory: PacketMemory
  readonly #device: PacketDevice
  readonly #counters: Counters
  readonly #header: number
  readonly #single: number

  constructor(memory: PacketMemory, device: PacketDevice, counters: Counters) {
    this.#memory = memory
    this.#device = device
    this.#counters = counters
    this.#header = memory.reserve(virtioNet.HEADER_LEN)
    this.#single = this.reserveIovecs(1)
  }

  /** An iovec array for the virtio-net header, set here for good, and `pieces` of packet behind it. */
  reserveIovecs(pieces: number): number {
    const iovecs = this.#memory.reserve((1 + pieces) * IOVEC_BYTES)
    this.#memory.setIovec(iovecs, 0, this.#header, virtioNet.HEADER_LEN)
    return iovecs
  }

  /** The next write is a packet as it stands: an all-zero header. */
  setPlain(): void {
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

  /** Writes the packet of `length` bytes at `at`, which was received as `frameBytes` of datagram. Returns as `write`. */
  writeOne(id: number, at: number, length: number, frameBytes: number): number {
    this.#memory.setIovec(this.#single, 1, at, length)
    return this.write(id, this.#single, 1, 1, frameBytes)
  }

  /**
   * Writes `packets` joined packets gathered from `pieces` iovecs behind the header's. Returns bytes written or -errno.
   * With -EINVAL for more than one packet none of them is counted: they are to be written one by one.
   */
  write(id: number, iovecs: number, pieces: number, packets: number, frameBytes: number): number {
    const result = this.#device.write(iovecs, 1 + pieces)
    const counters = this.#counters
    counters.add(WRITE_CALLS, 1)
    if (this.sink !== null) this.#trace(this.sink, id, packets, frameBytes, Math.max(-result, 0))
    if (result === -EINVAL && packets > 1) {
      counters.add(REFUSED, 1)
      return result
    }
    counters.add(READ_PACKETS, packets)
    counters.add(READ_BYTES, frameBytes)
    if (result >= 0) {
      counters.add(PASSED_PACKETS, packets)
      counters.add(PASSED_BYTES, frameBytes)
      if (packets > 1) counters.add(SUPER_PACKETS, 1)
    } else {
      counters.drop('inbound', reasonForWriteErrno(-result), packets, frameBytes)
    }
    return result
  }

  #trace(sink: StepSink, id: number, packets: number, bytes: number, errno: number): void {
    const gsoType = virtioNet.getGsoType(this.#memory.view, this.#header)
    const gsoSize = virtioNet.getGsoSize(this.#memory.view, this.#header)
    sink.step({ kind: 'tun-write', id, packets, bytes, gsoType, gsoSize, errno })
  }
}
