// Who was refused by the source check, for whoever has to find out why. Bounded and made of fixed arrays: a flood of
// bad packets costs no memory, and a good packet never gets here.
import type { DropReason } from '../drop-reason.ts'
import type { UnderlayAddress } from '../forwarding/remote-vtep.ts'
import type { InnerPacket } from './inner-packet.ts'
import type { OuterAddresses } from './outer-addresses.ts'
import { readAddress } from './read-address.ts'

/** Kept at once; a new one takes the place of the one that was seen longest ago. */
export const OFFENDERS_KEPT = 32

/** Words of the longest address. */
const WORDS = 4

/** Packets of one inner source from one outer source, refused for one reason. */
export interface Offender {
  /** Address on the underlay. */
  readonly outerSource: UnderlayAddress
  /** Unsigned 32-bit IPv4 or 128-bit IPv6 address. */
  readonly innerSource: number | bigint
  readonly reason: DropReason
  readonly packets: number
  /** Wall clock, milliseconds since 1970. */
  readonly lastSeenMs: number
}

export class Offenders {
  readonly #nowMs: () => number
  readonly #addresses: OuterAddresses
  readonly #outer = new Int32Array(OFFENDERS_KEPT)
  readonly #version = new Uint8Array(OFFENDERS_KEPT)
  readonly #inner = new DataView(new ArrayBuffer(OFFENDERS_KEPT * WORDS * 4))
  readonly #reason: (DropReason | null)[] = Array(OFFENDERS_KEPT).fill(null)
  readonly #packets = new Float64Array(OFFENDERS_KEPT)
  readonly #lastSeenMs = new Float64Array(OFFENDERS_KEPT)
  #count = 0

  /** `nowMs` is the engine's clock: any origin, only ages are taken from it. */
  constructor(nowMs: () => number, outer: OuterAddresses) {
    this.#nowMs = nowMs
    this.#addresses = outer
  }

  get isEmpty(): boolean {
    return this.#count === 0
  }

  /** Takes note of a packet that came from `outerSource`, a signed number, and was refused. */
  note(view: DataView, packet: InnerPacket, outerSource: number, reason: DropReason): void {
    let index = 0
    while (index < this.#count && !this.#is(index, view, packet, outerSource, reason)) index++
    if (index === this.#count) index = this.#begin(view, packet, outerSource, reason)
    this.#packets[index]! += 1
    this.#lastSeenMs[index] = this.#nowMs()
  }

  /** All that was noted since the last call. `wallMs` is the time now. */
  take(wallMs: number): Offender[] {
    const nowMs = this.#nowMs()
    const taken = Array.from({ length: this.#count }, (_, index) => ({
      outerSource: this.#addresses.addressOf(this.#outer[index]!),
      innerSource: readAddress(this.#inner, this.#version[index]!, index * WORDS * 4),
      reason: this.#reason[index]!,
      packets: this.#packets[index]!,
      lastSeenMs: Math.round(wallMs - (nowMs - this.#lastSeenMs[index]!)),
    }))
    this.#count = 0
    return taken
  }

  #is(index: number, view: DataView, packet: InnerPacket, outerSource: number, reason: DropReason): boolean {
    if (this.#outer[index] !== outerSource || this.#version[index] !== packet.version) return false
    if (this.#reason[index] !== reason) return false
    for (let done = 0; done < packet.addressBytes / 2; done += 4) {
      if (this.#inner.getInt32(index * WORDS * 4 + done) !== view.getInt32(packet.addressesAt + done)) return false
    }
    return true
  }

  #begin(view: DataView, packet: InnerPacket, outerSource: number, reason: DropReason): number {
    const index = this.#count < OFFENDERS_KEPT ? this.#count++ : this.#oldest()
    this.#outer[index] = outerSource
    this.#version[index] = packet.version
    for (let done = 0; done < packet.addressBytes / 2; done += 4) {
      this.#inner.setInt32(index * WORDS * 4 + done, view.getInt32(packet.addressesAt + done))
    }
    this.#reason[index] = reason
    this.#packets[index] = 0
    return index
  }

  #oldest(): number {
    let oldest = 0
    for (let index = 1; index < OFFENDERS_KEPT; index++) {
      if (this.#lastSeenMs[index]! < this.#lastSeenMs[oldest]!) oldest = index
    }
    return oldest
  }
}
