// The numbers that stand for underlay addresses on the fast path, seen from an engine: for IPv4 the addresses themselves, for
// IPv6 what the table in force says (forwarding/outer-numbers.ts). Who is no peer has a number as well, so that a refused
// packet can be traced to its sender.
import { encodeForwardingTable, ForwardingTable, NO_ENTRY } from '../forwarding/forwarding-table.ts'
import type { UnderlayAddress } from '../forwarding/remote-vtep.ts'
import type { SocketAddresses } from '../io/socket-addresses.ts'
import { readAddress } from './read-address.ts'

export interface OuterAddresses {
  replaceTable(table: ForwardingTable): void
  /** The address behind a number, signed or unsigned: for people, not for packets. */
  addressOf(number: number): UnderlayAddress
}

/** IPv4: nothing to look up. */
export const NARROW_ADDRESSES: OuterAddresses = {
  replaceTable: () => undefined,
  addressOf: (number) => number >>> 0,
}

/** Strangers whose addresses are kept; the next one takes the place of the first. */
const STRANGERS = 64
const WORDS = 4
const BYTES = WORDS * 4
const UNSPECIFIED = 0n

/** IPv6. One for an engine and its socket. Strangers have negative numbers, which are no peer's. */
export class WideAddresses implements OuterAddresses, SocketAddresses {
  #peers = new ForwardingTable(encodeForwardingTable([], 0)).peers
  readonly #strangers = new DataView(new ArrayBuffer(STRANGERS * BYTES))
  #nextStranger = 0
  /** The sender of the last datagram is often that of the next. */
  readonly #last = new Int32Array(WORDS)
  #lastNumber = 0

  replaceTable(table: ForwardingTable): void {
    this.#peers = table.peers
    this.#lastNumber = 0
  }

  numberOf(view: DataView, at: number): number {
    if (this.#lastNumber !== 0 && this.#isLast(view, at)) return this.#lastNumber
    const peers = this.#peers
    const index = peers.indexOfIpv6(view, at)
    const number = index === NO_ENTRY ? this.#stranger(view, at) : peers.number(index)
    for (let word = 0; word < WORDS; word++) this.#last[word] = view.getInt32(at + word * 4)
    this.#lastNumber = number
    return number
  }

  #isLast(view: DataView, at: number): boolean {
    for (let word = WORDS - 1; word >= 0; word--) if (view.getInt32(at + word * 4) !== this.#last[word]) return false
    return true
  }

  #stranger(view: DataView, at: number): number {
    for (let place = 0; place < STRANGERS; place++) if (this.#isStranger(place, view, at)) return -1 - place
    const place = this.#nextStranger
    this.#nextStranger = (place + 1) % STRANGERS
    for (let done = 0; done < BYTES; done += 4) {
      this.#strangers.setInt32(place * BYTES + done, view.getInt32(at + done))
    }
    return -1 - place
  }

  #isStranger(place: number, view: DataView, at: number): boolean {
    for (let done = 0; done < BYTES; done += 4) {
      if (this.#strangers.getInt32(place * BYTES + done) !== view.getInt32(at + done)) return false
    }
    return true
  }

  write(number: number, view: DataView, at: number): void {
    const peers = this.#peers
    const index = peers.indexOf(number)
    if (index !== NO_ENTRY) {
      peers.writeIpv6(index, view, at)
      return
    }
    const stranger = this.#strangerAt(number)
    for (let done = 0; done < BYTES; done += 4) {
      view.setInt32(at + done, stranger < 0 ? 0 : this.#strangers.getInt32(stranger + done))
    }
  }

  addressOf(number: number): UnderlayAddress {
    const index = this.#peers.indexOf(number)
    if (index !== NO_ENTRY) return this.#peers.address(index)
    const at = this.#strangerAt(number)
    if (at < 0) return UNSPECIFIED
    return readAddress(this.#strangers, 6, at)
  }

  /** Where a stranger's address is kept; -1 when the number is no stranger's. */
  #strangerAt(number: number): number {
    const place = -1 - (number | 0)
    return place >= 0 && place < STRANGERS ? place * BYTES : -1
  }
}
