// The choice of a subnet: own lease, remembered one, random free one; and what is said when there is none.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import {
  formatPrefix,
  type Ipv4Prefix,
  overlaps,
  parseIpv6Prefix,
  parsePrefix,
  prefixAround,
} from '../../../dataplane/wire/prefix.ts'
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
  return `${choice.action} ${formatPrefix(subnet!)}`
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
    const range = rangeOf('10.244.0.0/20', { SubnetLen: 26 }).ipv4!
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
    const last = allocate(RANGE.ipv4!, [], () => 0.9999999)
    expect(formatPrefix(last!)).toBe('10.244.100.0/24')
  })
})

test('a subnet fits a range by its bounds and its length', () => {
  const range = rangeOf('10.244.0.0/16', { SubnetMin: '10.244.2.0', SubnetMax: '10.244.4.0' }).ipv4!
  const fits = (text: string) => fitsRange(range, parsePrefix(text)!)
  expect(['10.244.2.0/24', '10.244.4.0/24'].map(fits)).toEqual([true, true])
  expect(['10.244.1.0/24', '10.244.5.0/24', '10.244.2.0/25', '10.244.2.0/23'].map(fits)).toEqual([
    false,
    false,
    false,
    false,
  ])
})

describe('with an IPv6 half', () => {
  const DUAL = rangeOf('10.244.0.0/16', { EnableIPv6: true, IPv6Network: 'fd00:10:244::/48' })
  const lease = (host: number, publicIp: string, half: string | null = `fd00:10:244:${host}::/64`) =>
    peerLease(`10.244.${host}.0/24`, publicIp, MAC, half)

  function chooseDual(leases: readonly Lease[], previous: readonly [string, string] | null = null, range = DUAL) {
    const wish = {
      range,
      publicIp: A,
      previousSubnet: previous === null ? null : parsePrefix(previous[0]),
      previousIpv6Subnet: previous === null ? null : parseIpv6Prefix(previous[1]),
    }
    return chooseSubnet(wish, leases, [], () => 0)
  }

  function halves(choice: ReturnType<typeof chooseDual>): string {
    if (choice.action === 'adopt') return `adopt ${formatPrefix(choice.lease.subnet!)} ${choice.lease.ipv6Subnet}`
    const { subnet, ipv6Subnet } = choice
    return `create ${formatPrefix(subnet!)} ${ipv6Subnet === null ? null : formatPrefix(ipv6Subnet)}`
  }

  test('a free subnet of each family is taken', () => {
    expect(halves(chooseDual([]))).toBe('create 10.244.1.0/24 fd00:10:244:1::/64')
  })

  test('own lease with both halves is taken over, whatever is remembered', () => {
    const own = lease(7, '192.0.2.1')
    expect(halves(chooseDual([own], ['10.244.9.0/24', 'fd00:10:244:9::/64']))).toBe(
      'adopt 10.244.7.0/24 fd00:10:244:7::/64',
    )
  })

  test('leases of nodes without an IPv6 half take nothing of IPv6', () => {
    expect(halves(chooseDual([lease(1, '192.0.2.2', null)]))).toBe('create 10.244.2.0/24 fd00:10:244:1::/64')
  })

  test('each half is remembered for itself: one that somebody else holds is replaced, the other stays', () => {
    const theirs = lease(3, '192.0.2.2', 'fd00:10:244:6::/64')
    const choice = chooseDual([theirs], ['10.244.6.0/24', 'fd00:10:244:6::/64'])
    expect(halves(choice)).toBe('create 10.244.6.0/24 fd00:10:244:1::/64')
    expect(choice).toMatchObject({ note: expect.stringMatching(/fd00:10:244:6::\/64 now belongs to 192\.0\.2\.2/) })
  })

  test('own IPv4-only lease keeps its subnet when the network gains IPv6', () => {
    const old = lease(7, '192.0.2.1', null)
    const choice = chooseDual([old])
    expect(halves(choice)).toBe('create 10.244.7.0/24 fd00:10:244:1::/64')
    expect(choice.discard).toEqual([old])
  })

  test('own dual-stack lease keeps its IPv4 subnet when the network loses IPv6', () => {
    const old = lease(7, '192.0.2.1')
    const choice = chooseDual([old], null, RANGE)
    expect(halves(choice)).toBe('create 10.244.7.0/24 null')
    expect(choice.discard).toEqual([old])
  })

  test.each(['fd00:10:245::/64', 'fd00:10:244::/64', 'fd00:10:244:7::/65'])(
    'own lease with %s, which the range does not give out, gets another half',
    (half) => {
      expect(halves(chooseDual([lease(7, '192.0.2.1', half)]))).toMatch(/^create 10\.244\.7\.0\/24 fd00:10:244:[18]::/)
    },
  )

  test('own lease whose IPv4 half does not fit any more keeps its IPv6 half', () => {
    const old = peerLease('10.99.7.0/24', '192.0.2.1', MAC, 'fd00:10:244:7::/64')
    const choice = chooseDual([old], ['10.99.7.0/24', 'fd00:10:244:7::/64'])
    expect(halves(choice)).toBe('create 10.244.1.0/24 fd00:10:244:7::/64')
  })

  test('a lease that holds half of a huge network is stepped over', () => {
    const range = rangeOf('10.244.0.0/16', { EnableIPv6: true, IPv6Network: 'fd00::/8' })
    expect(halves(chooseDual([lease(2, '192.0.2.2', 'fd00::/9')], null, range))).toBe('create 10.244.1.0/24 fd80::/64')
  })

  test.each(['::/0', 'f000::/4'])('a lease that holds %s, up to the last address there is, ends the search', (half) => {
    const range = rangeOf('10.244.0.0/16', { EnableIPv6: true, IPv6Network: 'fd00::/8' })
    expect(() => chooseDual([lease(2, '192.0.2.2', half)], null, range)).toThrow(/out of subnets/)
    expect(allocate(RANGE.ipv4!, [parsePrefix('0.0.0.0/0')!], () => 0)).toBeNull()
  })

  test('a full IPv6 network is named as such', () => {
    const range = rangeOf('10.244.0.0/16', { EnableIPv6: true, IPv6Network: 'fd00::/62' })
    const taken = ['fd00:0:0:1::/64', 'fd00:0:0:2::/64', 'fd00:0:0:3::/64']
    const leases = taken.map((half, index) => lease(index + 2, `192.0.2.${index + 2}`, half))
    expect(() => chooseDual(leases, null, range)).toThrow(
      expect.objectContaining({
        code: 'out-of-subnets',
        message: expect.stringContaining('fd00:0:0:1::-fd00:0:0:3::'),
      }),
    )
  })

  test('what is given out is in the range, free, and one of the first hundred', () => {
    const half = fc
      .tuple(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 52, max: 80 }))
      .map(([number, length]) => {
        return prefixAround(DUAL.ipv6!.network.address + (BigInt(number) << 64n), length)
      })
    const draws = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
    fc.assert(
      fc.property(fc.array(half, { maxLength: 40 }), draws, (taken, draw) => {
        const free = []
        for (let at = DUAL.ipv6!.subnetMin; at <= DUAL.ipv6!.subnetMin + 600n * (1n << 64n); at += 1n << 64n) {
          const subnet = { address: at, length: 64 }
          if (!taken.some((prefix) => overlaps(prefix, subnet))) free.push(subnet)
        }
        const candidates = free.slice(0, MAX_CANDIDATES)
        // Where larger prefixes take all of the first six hundred, there are more behind them.
        if (candidates.length < MAX_CANDIDATES) return
        const ipv4: Ipv4Prefix[] = [{ address: 0x0af40000, length: 16 }]
        const chosen = allocate(DUAL.ipv6!, [...taken, ...ipv4], () => draw)
        expect(chosen).toEqual(candidates[Math.floor(draw * candidates.length)])
      }),
    )
  })
})
