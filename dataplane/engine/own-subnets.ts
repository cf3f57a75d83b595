// Whether an address of a packet lies in our own subnet, for either family. Words are signed throughout: an unsigned
// one above 2^31 is boxed when it is passed on, once a packet.
import type { Ipv4Prefix, Ipv6Prefix } from '../wire/prefix.ts'
import { maskOf, maskOfIpv6 } from '../wire/prefix.ts'
import type { InnerPacket } from './inner-packet.ts'

const WORDS = 4

export class OwnSubnets {
  readonly #hasIpv4: boolean
  readonly #ipv4Prefix: number
  readonly #ipv4Mask: number
  readonly #hasIpv6: boolean
  readonly #prefix: Int32Array
  readonly #mask: Int32Array

  constructor(ipv4: Ipv4Prefix | null, ipv6: Ipv6Prefix | null) {
    this.#hasIpv4 = ipv4 !== null
    this.#ipv4Prefix = (ipv4?.address ?? 0) | 0
    this.#ipv4Mask = maskOf(ipv4?.length ?? 0) | 0
    this.#hasIpv6 = ipv6 !== null
    this.#prefix = wordsOf(ipv6?.address ?? 0n)
    this.#mask = wordsOf(maskOfIpv6(ipv6?.length ?? 0))
  }

  containsSource(view: DataView, packet: InnerPacket): boolean {
    return this.#contains(view, packet.version, packet.addressesAt)
  }

  containsDestination(view: DataView, packet: InnerPacket): boolean {
    return this.#contains(view, packet.version, packet.addressesAt + packet.addressBytes / 2)
  }

  #contains(view: DataView, version: number, at: number): boolean {
    if (version === 4) return this.#hasIpv4 && (view.getInt32(at) & this.#ipv4Mask) === this.#ipv4Prefix
    if (!this.#hasIpv6) return false
    for (let word = 0; word < WORDS; word++) {
      if ((view.getInt32(at + word * 4) & this.#mask[word]!) !== this.#prefix[word]) return false
    }
    return true
  }
}

/** An IPv6 address as four signed words, most significant first: bit operations in JavaScript are signed. */
function wordsOf(address: bigint): Int32Array {
  return Int32Array.from([96n, 64n, 32n, 0n], (shift) => Number((address >> shift) & 0xffff_ffffn) | 0)
}
