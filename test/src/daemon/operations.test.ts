// What a scrape is told of the forwarding table.
import { expect, test } from 'vitest'
import { entriesInForce } from '../../../src/daemon/operations.ts'

test('each half of a peer counts as an entry, unless it is not programmed yet', () => {
  const peers = [
    { subnet: '10.244.2.0/24', ipv6Subnet: 'fd00:1:2::/64' },
    { subnet: '10.244.3.0/24', ipv6Subnet: null },
  ]
  expect(entriesInForce(peers, new Set())).toBe(3)
  expect(entriesInForce(peers, new Set(['fd00:1:2::/64']))).toBe(2)
  expect(entriesInForce(peers, new Set(['10.244.2.0/24', 'fd00:1:2::/64', '10.244.3.0/24']))).toBe(0)
})
