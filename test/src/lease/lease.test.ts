// The subnets of a lease as text.
import { expect, test } from 'vitest'
import { halvesInWords, subnetsInWords } from '../../../src/lease/lease.ts'
import { dualLease, peerLease } from '../../support/peer-lease.ts'

test('are those of both families, the IPv4 one first', () => {
  expect(halvesInWords(peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02'))).toEqual(['10.244.2.0/24'])
  expect(subnetsInWords(dualLease(2))).toBe('10.244.2.0/24 and fd00:10:244:2::/64')
  expect(halvesInWords({ ...dualLease(2), subnet: null })).toEqual(['fd00:10:244:2::/64'])
})

test('are made once for each lease: whoever looks at ten thousand peers looks often', () => {
  const lease = dualLease(2)
  expect(halvesInWords(lease)).toBe(halvesInWords(lease))
  expect(halvesInWords({ ...lease, ipv6Subnet: null })).toEqual(['10.244.2.0/24'])
})
