// Prefixes of both families, compared with arithmetic on whole ranges: the plain twin of masks and shifts.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  containsAddress,
  containsPrefix,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  lastAddress,
  maskOf,
  maskOfIpv6,
  overlaps,
  parseIpv6Prefix,
  parsePrefix,
  prefixAround,
  samePrefix,
  sizeOf,
  sizeOfIpv6,
} from '../../../dataplane/wire/prefix.ts'
import { ipv6Addresses } from '../../support/wire-properties.ts'

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

const lengths6 = fc.integer({ min: 0, max: 128 })
const prefixes6 = fc.tuple(ipv6Addresses, lengths6).map(([address, length]) => prefixAround(address, length))
/** Two prefixes that often share their beginning. */
const pairs6 = fc.oneof(
  fc.tuple(prefixes6, prefixes6),
  fc
    .tuple(ipv6Addresses, lengths6, lengths6)
    .map(([address, a, b]) => [prefixAround(address, a), prefixAround(address, b)] as const),
)

/** First and last address, without a bit operation. */
function rangeOf6({ address, length }: Ipv6Prefix): [bigint, bigint] {
  return [address, address + 2n ** BigInt(128 - length) - 1n]
}

describe('an IPv6 prefix', () => {
  it.each([
    [0, 0n],
    [1, 1n << 127n],
    [64, 0xffff_ffff_ffff_ffffn << 64n],
    [127, (1n << 128n) - 2n],
    [128, (1n << 128n) - 1n],
  ])('of length %i has mask %i', (length, mask) => {
    expect(maskOfIpv6(length)).toBe(mask)
    expect(sizeOfIpv6(length) + mask).toBe(1n << 128n)
  })

  it('around an address begins at a multiple of its size, and contains exactly the addresses up to its last', () => {
    fc.assert(
      fc.property(ipv6Addresses, lengths6, ipv6Addresses, (address, length, far) => {
        const prefix = prefixAround(address, length)
        const [first, last] = rangeOf6(prefix)
        expect(prefix.address).toBe(address - (address % sizeOfIpv6(length)))
        expect(lastAddress(prefix)).toBe(last)
        const inside = (candidate: bigint) => first <= candidate && candidate <= last
        const candidates = [address, first, last, first - 1n, last + 1n, far]
        for (const candidate of candidates.filter((one) => one >= 0n && one < 1n << 128n)) {
          expect(containsAddress(prefix, candidate)).toBe(inside(candidate))
        }
      }),
    )
  })

  it('contains, overlaps and equals another as their ranges do', () => {
    fc.assert(
      fc.property(pairs6, ([a, b]) => {
        const [firstA, lastA] = rangeOf6(a)
        const [firstB, lastB] = rangeOf6(b)
        expect(containsPrefix(a, b)).toBe(firstA <= firstB && lastB <= lastA)
        expect(overlaps(a, b)).toBe(firstA <= lastB && firstB <= lastA)
        expect(samePrefix(a, b)).toBe(firstA === firstB && lastA === lastB)
      }),
    )
  })

  it('has nothing in common with an IPv4 prefix, not even where the numbers are the same', () => {
    fc.assert(
      fc.property(fc.oneof(prefixes, fc.constant(prefixAround(0, 0))), lengths, (four, length) => {
        const six = prefixAround(BigInt(four.address), length)
        expect([containsPrefix(four, six), containsPrefix(six, four), overlaps(four, six)]).toEqual([
          false,
          false,
          false,
        ])
        expect([samePrefix(four, six), containsAddress(six, four.address)]).toEqual([false, false])
      }),
    )
  })

  it('is read back from what was written, host bits cleared', () => {
    fc.assert(
      fc.property(prefixes6, (prefix) => {
        expect(parseIpv6Prefix(formatPrefix(prefix))).toEqual(prefix)
      }),
    )
    expect(parseIpv6Prefix('fd00:10:244:1::7/64')).toEqual({ address: 0xfd00_0010_0244_0001n << 64n, length: 64 })
    expect(formatPrefix(prefixAround(0n, 0))).toBe('::/0')
  })

  it.each(['', 'fd00::', 'fd00::/', 'fd00::/129', 'fd00::/-1', 'fd00::/64/1', 'fd00::%eth0/64', '10.244.1.0/24'])(
    '%j is refused',
    (text) => {
      expect(parseIpv6Prefix(text)).toBeNull()
    },
  )
})
