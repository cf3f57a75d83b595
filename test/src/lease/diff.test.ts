// Differences and conflicts between sets of leases.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatPrefix, overlaps, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { describeConflict, diffLeases, findConflicts, MOST_CONFLICTS, sameAttributes } from '../../../src/lease/diff.ts'
import type { Lease, LeaseAttributes } from '../../../src/lease/lease.ts'
import { cpuMsOf } from '../../support/cpu-time.ts'
import { peerLease } from '../../support/peer-lease.ts'

const OWN = { subnet: parsePrefix('10.244.1.0/24'), ipv6Subnet: null }
const B = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')
const C = peerLease('10.244.3.0/24', '192.0.2.3', '0a:00:00:00:00:03')
const SELF = peerLease('10.244.1.0/24', '192.0.2.1', '0a:00:00:00:00:01')

function withAttributes(lease: Lease, changes: Partial<LeaseAttributes>): Lease {
  return { ...lease, attributes: { ...lease.attributes, ...changes } }
}

const lease = fc
  .record({
    third: fc.integer({ min: 0, max: 7 }),
    length: fc.constantFrom(22, 24, 25),
    host: fc.integer({ min: 1, max: 4 }),
    mac: fc.integer({ min: 1, max: 3 }),
    revision: fc.integer({ min: 1, max: 1000 }),
  })
  .map(({ third, length, host, mac, revision }) => {
    return { ...peerLease(`10.244.${third}.0/${length}`, `192.0.2.${host}`, `0a:00:00:00:00:0${mac}`), revision }
  })
const leases = fc.uniqueArray(lease, { selector: (one) => formatPrefix(one.subnet!), maxLength: 12 })

describe('diffLeases', () => {
  test('a changed MAC alone is an update', () => {
    const rebooted = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:99')
    expect(diffLeases([B, C], [rebooted, C], null)).toEqual({ added: [], updated: [rebooted], removed: [] })
  })

  test.each<[string, Partial<LeaseAttributes>]>([
    ['public address', { publicIp: 1 }],
    ['public IPv6 address', { publicIpv6: 'fd00::2' }],
    ['backend type', { backendType: 'host-gw' }],
    ['backend data', { backendData: { VNI: 2, VtepMAC: '0a:00:00:00:00:02' } }],
    ['IPv6 backend data', { backendV6Data: { VNI: 1 } }],
  ])('a changed %s is an update', (_, change) => {
    expect(diffLeases([B], [withAttributes(B, change)], null).updated).toHaveLength(1)
  })

  test('a renewal is no change, and neither is the order of JSON keys', () => {
    const renewed = { ...B, revision: 99, expiresAtMs: 1 }
    const reordered = withAttributes(B, { backendData: { VtepMAC: '0a:00:00:00:00:02', VNI: 1 } })
    expect(diffLeases([B], [renewed], null)).toEqual({ added: [], updated: [], removed: [] })
    expect(sameAttributes(B.attributes, reordered.attributes)).toBe(true)
  })

  test('the own lease is never told, neither coming nor changing nor going', () => {
    const changed = withAttributes(SELF, { publicIp: 1 })
    for (const [before, after] of [
      [[B], [B, SELF]],
      [
        [B, SELF],
        [B, changed],
      ],
      [[B, SELF], [B]],
    ] as const) {
      expect(diffLeases(before, after, OWN)).toEqual({ added: [], updated: [], removed: [] })
    }
  })

  test('the same sets give the same answer whatever their order, and repeating changes nothing', () => {
    fc.assert(
      fc.property(leases, leases, (before, after) => {
        const answer = diffLeases(before, after, OWN)
        expect(diffLeases([...before].reverse(), [...after].reverse(), OWN)).toEqual(answer)
        expect(diffLeases(after, after, OWN)).toEqual({ added: [], updated: [], removed: [] })
      }),
    )
  })

  test('applied to the set before, the answer gives the set after', () => {
    fc.assert(
      fc.property(leases, leases, (before, after) => {
        const table = new Map(before.map((one) => [formatPrefix(one.subnet!), one.attributes]))
        const { added, updated, removed } = diffLeases(before, after, null)
        for (const gone of removed) table.delete(formatPrefix(gone.subnet!))
        for (const one of [...added, ...updated]) table.set(formatPrefix(one.subnet!), one.attributes)
        expect(table).toEqual(new Map(after.map((one) => [formatPrefix(one.subnet!), one.attributes])))
      }),
    )
  })
})

describe('findConflicts', () => {
  test('one subnet of two nodes, and overlapping ones, are named with keys and addresses', () => {
    const twin = peerLease('10.244.2.0/24', '192.0.2.9', '0a:00:00:00:00:09')
    const half = peerLease('10.244.2.128/25', '192.0.2.3', '0a:00:00:00:00:03')
    const sentences = findConflicts([half, twin, B]).map(describeConflict)
    expect(sentences).toHaveLength(3)
    expect(sentences.join('\n')).toMatch(
      /10\.244\.2\.0\/24 of 192\.0\.2\.\d and 10\.244\.2\.0\/24 of 192\.0\.2\.\d are the same/,
    )
    expect(sentences.join('\n')).toMatch(
      /10\.244\.2\.0\/24 of 192\.0\.2\.9 and 10\.244\.2\.128\/25 of 192\.0\.2\.3 overlap/,
    )
  })

  test('two leases of one node are no conflict', () => {
    expect(findConflicts([B, peerLease('10.244.2.0/25', '192.0.2.2', '0a:00:00:00:00:02')])).toEqual([])
  })

  test('of thousands of leases for one subnet as many are named as anybody reads', () => {
    const crowd = Array.from({ length: 5000 }, (_, n) =>
      peerLease('10.244.2.0/24', `198.18.${n >> 8}.${n & 255}`, '0a:00:00:00:00:09'),
    )
    expect(findConflicts(crowd)).toHaveLength(MOST_CONFLICTS)
  })

  test('a hundred thousand keys of one node for one subnet take no longer than as many subnets', () => {
    const crowd = Array.from({ length: 100_000 }, (_, n) =>
      peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02', `fd00:${n >> 16}:${(n & 0xffff).toString(16)}::/64`),
    )
    expect(cpuMsOf(() => expect(findConflicts(crowd)).toEqual([]))).toBeLessThan(10_000)
  })

  test('each of several keys of one node for one subnet conflicts with what another node has of it', () => {
    const keys = ['fd00:1::/64', 'fd00:2::/64'].map((half) =>
      peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02', half),
    )
    expect(findConflicts([...keys, peerLease('10.244.2.128/25', '192.0.2.3', '0a:00:00:00:00:03')])).toHaveLength(2)
  })

  test('finds exactly the pairs that comparing each with each finds', () => {
    const key = (one: Lease) => `${formatPrefix(one.subnet!)} ${one.attributes.publicIp}`
    fc.assert(
      fc.property(leases, (set) => {
        const naive = set.flatMap((a, index) => {
          const later = set.slice(index + 1)
          const rivals = later.filter(
            (b) => a.attributes.publicIp !== b.attributes.publicIp && overlaps(a.subnet!, b.subnet!),
          )
          return rivals.map((b) => [key(a), key(b)].sort().join(' | '))
        })
        const found = findConflicts(set).map(({ a, b }) => [key(a), key(b)].sort().join(' | '))
        expect(found.sort()).toEqual(naive.sort())
      }),
    )
  })
})

describe('IPv6 halves', () => {
  const dual = (host: number, half: string | null) =>
    peerLease(`10.244.${host}.0/24`, `192.0.2.${host}`, `0a:00:00:00:00:0${host}`, half)

  test('one that changes is an update of its lease', () => {
    const [before, after] = [dual(3, 'fd00:10:244:3::/64'), dual(3, 'fd00:10:244:9::/64')]
    expect(diffLeases([before], [after], OWN)).toEqual({ added: [], updated: [after], removed: [] })
    expect(diffLeases([before], [before], OWN).updated).toEqual([])
  })

  test('of two nodes that overlap are a conflict, named with both keys, once', () => {
    const leases = [dual(3, 'fd00:10:244:3::/64'), dual(4, 'fd00:10:244:3::/64'), dual(5, 'fd00:10:244:3:8000::/65')]
    const sentences = findConflicts([...leases, dual(6, null)]).map(describeConflict)
    expect(sentences).toHaveLength(3)
    expect(sentences[0]).toMatch(
      /^fd00:10:244:3::\/64 of 192\.0\.2\.\d and fd00:10:244:3::\/64 of 192\.0\.2\.\d are the same subnet$/,
    )
    expect(sentences[2]).toMatch(/fd00:10:244:3:8000::\/65 of 192\.0\.2\.5 overlap$/)
  })

  test('of leases whose IPv4 halves overlap already add no second conflict', () => {
    const twin = { ...dual(4, 'fd00:10:244:3::/64'), subnet: parsePrefix('10.244.3.0/24')! }
    const found = findConflicts([dual(3, 'fd00:10:244:3::/64'), twin])
    expect(found.map(describeConflict)).toEqual([expect.stringContaining('10.244.3.0/24')])
  })
})
