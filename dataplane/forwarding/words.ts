// Addresses and sorted lists as 32-bit words in shared memory: what the sections of a forwarding table have in common.

/** An IPv6 address in words. */
export const WIDE = 4

/** An unsigned 128-bit number as four words, the highest first. */
export function wideWords(address: bigint): number[] {
  return [96n, 64n, 32n, 0n].map((shift) => Number((address >> shift) & 0xffff_ffffn))
}

/** The four words from `at` on as one unsigned number. */
export function wideAddress(words: Uint32Array, at: number): bigint {
  let address = 0n
  for (let word = 0; word < WIDE; word++) address = (address << 32n) | BigInt(words[at + word]!)
  return address
}

/** Index of the last element that is ≤ `value` in an ascending array, -1 when there is none. */
export function lastAtMost(ascending: Uint32Array, value: number): number {
  let low = 0
  let high = ascending.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (ascending[middle]! <= value) low = middle + 1
    else high = middle
  }
  return low - 1
}
