// Addresses of the underlay as packets carry them about: small numbers, whatever the family. An IPv4 address is its own
// number. IPv6 addresses are numbered here, by the thread that encodes tables, so that everything per packet (batches,
// slots, source check, activity) compares 32 bits and knows no family; only sockets turn numbers into addresses and back.
import type { ForwardingEntry, UnderlayAddress } from './remote-vtep.ts'

/** Numbers of addresses that no table has any more are forgotten beyond this many. */
const KEPT = 1024

/** Gives numbers, 1 and up, to IPv6 addresses. An address keeps its number from table to table: none is ever given twice. */
export class OuterNumbers {
  readonly #numbers = new Map<bigint, number>()
  #next = 1

  /** The number of an address, as an unsigned 32-bit one. */
  of(address: UnderlayAddress): number {
    if (typeof address === 'number') return address
    const known = this.#numbers.get(address)
    if (known !== undefined) return known
    const number = this.#next++
    this.#numbers.set(address, number)
    return number
  }

  /** Forgets addresses that these entries do not have, once there are many of them. */
  forgetAllBut(entries: readonly ForwardingEntry[]): void {
    if (this.#numbers.size <= entries.length + KEPT) return
    const present = new Set(entries.map(({ vtep }) => vtep.underlayAddress))
    for (const address of this.#numbers.keys()) if (!present.has(address)) this.#numbers.delete(address)
  }
}
