// The choice of a subnet: own lease, remembered one, random free one; and what is said when there is none.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { formatPrefix, type Ipv4Prefix, overlaps, parsePrefix, prefixAround } from '../../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import type { SubnetRange } from '../../../src/config/subnet-range.ts'
import { allocate, chooseSubnet, type DualRange, fitsRange, MAX_CANDIDATES } from '../../../src/lease/allocate.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { peerLease } from '../../support/peer-lease.ts'

const MAC = '0a:00:00:00:00:01'
const A = parseIpv4('192.0.2.1')!
const RANGE = rangeOf('10.244.0.0/16')

function rangeOf(network: string, more: object = {}): DualRange {
  return parseNetworkConfig(JSON.stringify({ Network: network, ...more }))
}

function choose(leases: readonly Lease[], previous: string | null = null, range = RANGE, blocked: Ipv4Prefix[] = []) {
  const previousSubnet = previous === null ? null : parsePrefix(previous)
  return chooseSubnet({ range, publicIp: A, previousSubnet, previousIpv6Subnet: null }, leases, blocked, () => 0)
}

/** The subnet chosen, and how. */
function outcome(choice: ReturnType<typeof choose>): string {
  const subnet = choice.action === 'adopt' ? choice.lease.subnet : choice.subnet
  return `${choice.action} ${formatPrefix(subnet)}`
}

describe('chooseSubnet', () => {
  test('the lease that carries our public address is taken over, whatever is remembered', () => {
    const leases = [peerLease('10.244.7.0/24', '192.0.2.1', MAC), peerLease('10.244.8.0/24', '192.0.2.2', MAC)]
    expect(outcome(choose(leases, '10.244.9.0/24'))).toBe('adopt 10.244.7.0/24')
  })

  test('own leases that no longer fit the config are discarded, their subnets stay taken this time', () => {
    const small = rangeOf('10.244.0.0/16', { SubnetMin: '10.244.1.0', SubnetMax: '10.244.2.0' })
    const old = [peerLease('10.244.9.0/24', '192.0.2.1', MAC), peerLease('10.244.1.0/25', '192.0.2.1', MAC)]
    const choice = choose(old, null, small)
    expect(outcome(choice)).toBe('create 10.244.2.0/24')
    expect(choice.discard).toEqual(old)
  })

  test('a remembered subnet that is free is taken again', () => {
    expect(outcome(choose([peerLease('10.244.2.0/24', '192.0.2.2', MAC)], '10.244.1.0/24'))).toBe(
      'create 10.244.1.0/24',
    )
  })

  test('a remembered subnet of somebody else is left alone, and the note names both addresses', () => {
    const choice = choose([peerLease('10.244.6.0/24', '192.0.2.9', MAC)], '10.244.6.0/24')
    expect(outcome(choice)).toBe('create 10.244.1.0/24')
    expect(choice).toMatchObject({ note: expect.stringMatching(/10\.244\.6\.0\/24.*192\.0\.2\.9.*192\.0\.2\.1\b/) })
  })

  test.each([
    ['a lease that overlaps it', [peerLease('10.244.6.128/25', '192.0.2.9', MAC)], []],
    ['a lease that cannot be read', [], [parsePrefix('10.244.6.0/24')!]],
  ])('a remembered subnet under %s is not taken', (_, leases, blocked) => {
    expect(outcome(choose(leases, '10.244.6.0/24', RANGE, blocked))).toBe('create 10.244.1.0/24')
  })

  test.each(['10.4.6.0/24', '10.244.0.0/24', '10.244.6.0/25'])(
    'remembered %s outside the range is not taken',
    (previous) => {
      const choice = choose([], previous)
      expect(outcome(choice)).toBe('create 10.244.1.0/24')
      expect(choice).toMatchObject({ note: expect.stringContaining(previous) })
    },
  )

  test('a full network is an error with range, number of leases and soonest expiry', () => {
    const range = rangeOf('10.0.0.0/26')
    const soon = Date.UTC(2026, 0, 2)
    const leases = ['10.0.0.16/28', '10.0.0.32/28', '10.0.0.48/28'].map((subnet, index) => {
      return { ...peerLease(subnet, `192.0.2.${index + 2}`, MAC), expiresAtMs: index === 0 ? null : soon + index }
    })
    expect(() => choose(leases, null, range)).toThrow(
      expect.objectContaining({
        code: 'out-of-subnets',
        retryable: true,
        message: expect.stringMatching(/\/28.*10\.0\.0\.16-10\.0\.0\.48.*3 leases.*2026-01-02T00:00:00\.001Z/),
      }),
    )
  })
})

describe('allocate', () => {
  /** The obvious way: look at every subnet, compare with every taken prefix. */
  function naive(range: SubnetRange, taken: readonly Ipv4Prefix[]): Ipv4Prefix[] {
    const free: Ipv4Prefix[] = []
    for (let at = range.subnetMin; at <= range.subnetMax; at += 2 ** (32 - range.subnetLength)) {
      const subnet = { address: at, length: range.subnetLength }
      if (!taken.some((prefix) => overlaps(prefix, subnet))) free.push(subnet)
    }
    return free.slice(0, MAX_CANDIDATES)
  }

  test('draws from what the obvious search finds', () => {
    const range = rangeOf('10.244.0.0/20', { SubnetLen: 26 })
    const taken = fc
      .tuple(fc.integer({ min: 0, max: 4095 }), fc.integer({ min: 20, max: 32 }))
      .map(([offset, length]) => {
        return prefixAround(range.network.address + offset, length)
      })
    fc.assert(
      fc.property(
        fc.array(taken, { maxLength: 60 }),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (set, draw) => {
          const free = naive(range, set)
          const expected = free[Math.floor(draw * free.length)] ?? null
          expect(allocate(range, set, () => draw)).toEqual(expected)
        },
      ),
    )
  })

  test('every draw lands among the first hundred free subnets', () => {
    const last = allocate(RANGE, [], () => 0.9999999)
    expect(formatPrefix(last!)).toBe('10.244.100.0/24')
  })
})

test('a subnet fits a range by its bounds and its length', () => {
  const range = rangeOf('10.244.0.0/16', { SubnetMin: '10.244.2.0', SubnetMax: '10.244.4.0' })
  const fits = (text: string) => fitsRange(range, parsePrefix(text)!)
  expect(['10.244.2.0/24', '10.244.4.0/24'].map(fits)).toEqual([true, true])
  expect(['10.244.1.0/24', '10.244.5.0/24', '10.244.2.0/25', '10.244.2.0/23'].map(fits)).toEqual([
    false,
    false,
    false,
    false,
  ])
})
