// The peers of a forwarding table: by number on the way out, by address on the way in. One section of the table, in shared
// memory. An IPv4 address is its own number; for IPv6 the section holds the addresses, and a hash table of them that is
// made by whoever encodes, so that no packet waits for it.
import { NOBODY } from './address-ranges.ts'
import type { OuterNumbers } from './outer-numbers.ts'
import type { UnderlayAddress } from './remote-vtep.ts'
import { lastAtMost, WIDE, wideAddress, wideWords } from './words.ts'

// Layout in words: slots of the hash table (0 for IPv4), peers, numbers ascending; then for IPv6 the addresses in the same
// order and the slots, each an index and one more, 0 for an empty one.
const HEADER_WORDS = 2
/** Slots for each peer: the way to an address is one step long, seldom two. */
const SLOTS_PER_PEER = 2
const LEAST_SLOTS = 8
/** Fibonacci hashing: 2^32 divided by the golden ratio. */
const GOLDEN = 0x9e3779b1

/** The words of a section. @throws Error when the addresses are of both families */
export function encodePeers(addresses: ReadonlySet<UnderlayAddress>, numbers: OuterNumbers): Uint32Array {
  const [first] = addresses
  return typeof first === 'bigint' ? encodeWide(addresses, numbers) : encodeNarrow(addresses)
}

function encodeNarrow(addresses: ReadonlySet<UnderlayAddress>): Uint32Array {
  const words = new Uint32Array(HEADER_WORDS + addresses.size)
  words.set([0, addresses.size])
  let at = HEADER_WORDS
  for (const address of addresses) {
    if (typeof address === 'bigint') throw bothFamilies()
    words[at++] = address
  }
  words.subarray(HEADER_WORDS).sort()
  return words
}

function bothFamilies(): Error {
  return new Error('underlay addresses of both families')
}

function encodeWide(addresses: ReadonlySet<UnderlayAddress>, numbers: OuterNumbers): Uint32Array {
  const peers = [...addresses].map((address) => ({ address, number: numbers.of(address) }))
  peers.sort((a, b) => a.number - b.number)
  const wide = peers.flatMap(({ address }) => (typeof address === 'bigint' ? wideWords(address) : []))
  if (wide.length !== peers.length * WIDE) throw bothFamilies()
  const slots = slotsFor(peers.length)
  const words = new Uint32Array(HEADER_WORDS + peers.length + wide.length + slots)
  words.set([slots, peers.length])
  for (const [index, { number }] of peers.entries()) words[HEADER_WORDS + index] = number
  words.set(wide, HEADER_WORDS + peers.length)
  fillSlots(words.subarray(words.length - slots), wide)
  return words
}

/** A power of two. */
function slotsFor(peers: number): number {
  let slots = LEAST_SLOTS
  while (slots < peers * SLOTS_PER_PEER) slots *= 2
  return slots
}

function fillSlots(slots: Uint32Array, wide: readonly number[]): void {
  for (let index = 0; index * WIDE < wide.length; index++) {
    let mixed = 0
    for (let word = 0; word < WIDE; word++) mixed = mix(mixed, wide[index * WIDE + word]!)
    let slot = slotOf(mixed, slots.length)
    while (slots[slot] !== 0) slot = (slot + 1) & (slots.length - 1)
    slots[slot] = index + 1
  }
}

function mix(mixed: number, word: number): number {
  return Math.imul(mixed ^ word, GOLDEN)
}

/** The upper bits of a product depend on all bits of its factors. */
function slotOf(mixed: number, slots: number): number {
  return (mixed ^ (mixed >>> 15)) & (slots - 1)
}

/** A view on the section that these words begin with. Reads only; safe on any thread. */
export class TablePeers {
  readonly count: number
  readonly #numbers: Uint32Array
  readonly #addresses: Uint32Array
  readonly #slots: Uint32Array

  constructor(words: Uint32Array) {
    const slots = words[0]!
    const count = words[1]!
    const addressesAt = HEADER_WORDS + count
    const slotsAt = addressesAt + (slots > 0 ? count * WIDE : 0)
    this.count = count
    this.#numbers = words.subarray(HEADER_WORDS, addressesAt)
    this.#addresses = words.subarray(addressesAt, slotsAt)
    this.#slots = words.subarray(slotsAt, slotsAt + slots)
  }

  /** Place of the peer with that number, signed or unsigned, among all of them; {@link NOBODY} for none. */
  indexOf(number: number): number {
    const wanted = number >>> 0
    const index = lastAtMost(this.#numbers, wanted)
    return index >= 0 && this.#numbers[index] === wanted ? index : NOBODY
  }

  /** Place of the peer whose IPv6 address stands at `at`; {@link NOBODY} for none. */
  indexOfIpv6(view: DataView, at: number): number {
    const slots = this.#slots
    if (slots.length === 0) return NOBODY
    let mixed = 0
    for (let word = 0; word < WIDE; word++) mixed = mix(mixed, view.getInt32(at + word * 4))
    for (let slot = slotOf(mixed, slots.length); ; slot = (slot + 1) & (slots.length - 1)) {
      const index = slots[slot]! - 1
      if (index < 0) return NOBODY
      if (this.#isAt(index * WIDE, view, at)) return index
    }
  }

  #isAt(words: number, view: DataView, at: number): boolean {
    for (let word = 0; word < WIDE; word++) {
      if ((this.#addresses[words + word]! | 0) !== view.getInt32(at + word * 4)) return false
    }
    return true
  }

  /** Writes the IPv6 address of the peer at that place to the 16 bytes at `at`. */
  writeIpv6(index: number, view: DataView, at: number): void {
    for (let word = 0; word < WIDE; word++) view.setUint32(at + word * 4, this.#addresses[index * WIDE + word]!)
  }

  /** Number of the peer at that place, signed. */
  number(index: number): number {
    return this.#numbers[index]! | 0
  }

  /** Address of the peer at that place: for people, not for packets. */
  address(index: number): UnderlayAddress {
    return this.#slots.length > 0 ? wideAddress(this.#addresses, index * WIDE) : this.#numbers[index]!
  }

  /** Addresses of all peers, in the order of their places. */
  addresses(): UnderlayAddress[] {
    return Array.from({ length: this.count }, (_, index) => this.address(index))
  }
}
