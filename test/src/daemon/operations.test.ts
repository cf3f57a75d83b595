// What a scrape is told of the forwarding table.
import { expect, test } from 'vitest'
import { countEntries } from '../../../src/daemon/operations.ts'
import { allPending } from '../../../src/host/pending.ts'

const PEERS = [
  { subnet: '10.244.2.0/24', ipv6Subnet: 'fd00:1:2::/64' },
  { subnet: '10.244.3.0/24', ipv6Subnet: null },
  { subnet: 'fd00:1:4::/64', ipv6Subnet: 'fd00:1:4::/64' },
]

test.each([
  ['all are programmed', [], { inForce: 4, pending: 0 }],
  ['an IPv6 half is not', ['fd00:1:2::/64'], { inForce: 3, pending: 1 }],
  [
    'nor are the others',
    PEERS.flatMap(({ subnet, ipv6Subnet }) => [subnet, ipv6Subnet ?? '']),
    { inForce: 0, pending: 4 },
  ],
  ['who is pending is no peer any more', ['10.244.99.0/24'], { inForce: 4, pending: 0 }],
])('each half of a peer is an entry, in force or pending: %s', (_, pending, expected) => {
  expect(countEntries(PEERS, allPending(pending, 'no way'))).toEqual(expected)
})
