// What follows when the kernel refuses datagrams for their size (EMSGSIZE): their path takes less than was thought. The
// limit is noted, and the sender of a packet that was lost by it is told at once, without waiting for its next one.
import { EMSGSIZE } from '../io/errno.ts'
import type { SendBatch } from '../io/send-batch.ts'
import type { UnderlayPaths } from '../io/underlay-socket.ts'
import type { PacketMemory } from '../memory/packet-memory.ts'
import { type IcmpAnswer, MAX_IPV6_BYTES } from './icmp-answer.ts'
import { InnerPacket } from './inner-packet.ts'
import { packetId } from './packet-id.ts'
import type { PathLimits } from './path-limits.ts'

export class PathRefusals {
  readonly #memory: PacketMemory
  readonly #icmp: IcmpAnswer
  readonly #limits: PathLimits
  readonly #paths: UnderlayPaths
  readonly #encapBytes: number
  readonly #packet = new InnerPacket()
  /** The front of a packet, put together: as much as an answer quotes. */
  readonly #front: number

  constructor(memory: PacketMemory, icmp: IcmpAnswer, limits: PathLimits, paths: UnderlayPaths, encapBytes: number) {
    this.#memory = memory
    this.#icmp = icmp
    this.#limits = limits
    this.#paths = paths
    this.#encapBytes = encapBytes
    this.#front = memory.reserve(MAX_IPV6_BYTES)
  }

  /**
   * Looks for refusals in a batch that was sent, its bytes still in place. Returns whether a limit has changed. Of a message
   * of several flows the first is told; others will be when they send again.
   */
  heed(batch: SendBatch, mtuBytes: number): boolean {
    let changed = false
    for (let message = 0; message < batch.count; message++) {
      if (batch.errno[message] !== EMSGSIZE || batch.sender[message] === this.#paths.fragmentingSender) continue
      const peer = batch.address[message]! | 0
      if (this.#limits.ask(peer, batch.port[message]!, mtuBytes)) changed = true
      this.#tell(batch, message, peer, mtuBytes)
    }
    return changed
  }

  /** The first frame is the largest. */
  #tell(batch: SendBatch, message: number, peer: number, mtuBytes: number): void {
    const { view } = this.#memory
    const packet = this.#packet
    const length = batch.frameBytes[message]! - this.#encapBytes
    const at = this.#memory.iovecAt(batch.iovecAt(message), 0) + this.#encapBytes
    const limit = this.#limits.named(peer, mtuBytes)
    if (length <= limit) return
    // Headers are always in one piece.
    if (packet.read(view, at, length) !== null || packet.routersMayFragment) return
    const id = this.#icmp.sink === null ? 0 : packetId(view, at, length, this.#payloadAt(batch, message))
    this.#gather(batch, message, Math.min(length, MAX_IPV6_BYTES))
    packet.addressesAt += this.#front - at
    packet.at = this.#front
    this.#icmp.tooBig(id, packet, limit)
  }

  /** Where the payload of a segment stands; -1 for a packet in one piece. */
  #payloadAt(batch: SendBatch, message: number): number {
    const iovecs = batch.iovecAt(message)
    const inOne = this.#memory.iovecLength(iovecs, 0) >= batch.frameBytes[message]!
    return inOne ? -1 : this.#memory.iovecAt(iovecs, 1)
  }

  /** So many bytes of the first inner packet of a message, in one piece. */
  #gather(batch: SendBatch, message: number, bytes: number): void {
    const iovecs = batch.iovecAt(message)
    let skip = this.#encapBytes
    for (let index = 0, done = 0; done < bytes && index < batch.iovecCount[message]!; index++) {
      const at = this.#memory.iovecAt(iovecs, index) + skip
      const now = Math.min(this.#memory.iovecLength(iovecs, index) - skip, bytes - done)
      this.#memory.bytes.copyWithin(this.#front + done, at, at + now)
      done += now
      skip = 0
    }
  }
}
