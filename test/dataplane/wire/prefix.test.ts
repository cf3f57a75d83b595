// IPv4 prefixes, compared with arithmetic on whole ranges: the plain twin of masks and shifts.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  containsAddress,
  containsPrefix,
  formatPrefix,
  type Ipv4Prefix,
  lastAddress,
  maskOf,
  overlaps,
  parsePrefix,
  prefixAround,
  samePrefix,
  sizeOf,
} from '../../../dataplane/wire/prefix.ts'

const addresses = fc.integer({ min: 0, max: 0xffff_ffff })
const lengths = fc.integer({ min: 0, max: 32 })
const prefixes = fc.tuple(addresses, lengths).map(([address, length]) => prefixAround(address, length))
/** Two prefixes that often share their beginning. */
const pairs = fc.oneof(
  fc.tuple(prefixes, prefixes),
  fc
    .tuple(addresses, lengths, lengths)
    .map(([address, a, b]) => [prefixAround(address, a), prefixAround(address, b)] as const),
)

/** First and last address, without a bit operation. */
function rangeOf({ address, length }: Ipv4Prefix): [number, number] {
  return [address, address + 2 ** (32 - length) - 1]
}

describe('an IPv4 prefix', () => {
  it.each([
    [0, 0],
    [1, 0x8000_0000],
    [16, 0xffff_0000],
    [24, 0xffff_ff00],
    [31, 0xffff_fffe],
    [32, 0xffff_ffff],
  ])('of length %i has mask %i', (length, mask) => {
    expect(maskOf(length)).toBe(mask)
    expect(sizeOf(length) + mask).toBe(2 ** 32)
  })

  it('around an address begins at a multiple of its size and contains the address', () => {
    fc.assert(
      fc.property(addresses, lengths, (address, length) => {
        const prefix = prefixAround(address, length)
        const [first, last] = rangeOf(prefix)
        expect(prefix.address).toBe(address - (address % sizeOf(length)))
        expect(first <= address && address <= last).toBe(true)
        expect(lastAddress(prefix)).toBe(last)
      }),
    )
  })

  it('contains exactly the addresses between its first and its last', () => {
    const near = fc.tuple(prefixes, fc.constantFrom(-1, 0, 1), fc.boolean(), addresses)
    fc.assert(
      fc.property(near, ([prefix, step, atLast, far]) => {
        const [first, last] = rangeOf(prefix)
        const edge = (atLast ? last : first) + step
        for (const address of [edge, far].filter((candidate) => candidate >= 0 && candidate < 2 ** 32)) {
          expect(containsAddress(prefix, address)).toBe(first <= address && address <= last)
        }
      }),
    )
  })

  it('contains, overlaps and equals another as their ranges do', () => {
    fc.assert(
      fc.property(pairs, ([a, b]) => {
        const [firstA, lastA] = rangeOf(a)
        const [firstB, lastB] = rangeOf(b)
        expect(containsPrefix(a, b)).toBe(firstA <= firstB && lastB <= lastA)
        expect(overlaps(a, b)).toBe(firstA <= lastB && firstB <= lastA)
        expect(samePrefix(a, b)).toBe(firstA === firstB && lastA === lastB)
      }),
    )
  })

  it('is read back from what was written, host bits cleared', () => {
    fc.assert(
      fc.property(prefixes, (prefix) => {
        expect(parsePrefix(formatPrefix(prefix))).toEqual(prefix)
      }),
    )
    expect(parsePrefix('10.244.1.7/24')).toEqual({ address: 0x0af40100, length: 24 })
  })

  it.each([
    '',
    '10.244.1.0',
    '10.244.1.0/',
    '10.244.1.0/33',
    '10.244.1.0/-1',
    '10.244.1/24',
    '10.244.1.0/24/1',
    'fc00::/7',
  ])('%j is refused', (text) => {
    expect(parsePrefix(text)).toBeNull()
  })
})
