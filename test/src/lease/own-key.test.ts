// What a lease at the own key means, by what is known of our own.
import { describe, expect, test } from 'vitest'
import { FlanneletteError } from '../../../src/errors.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { judgeOwnKey, type OwnClaim } from '../../../src/lease/own-key.ts'
import { peerLease } from '../../support/peer-lease.ts'

const OWN: Lease = { ...peerLease('10.244.1.0/24', '192.0.2.1', '02:00:00:00:00:01'), expiresAtMs: 1000, revision: 5 }
const MOVED = { ...OWN.attributes, publicIp: 0xc0000209 }
const OTHER = peerLease('10.244.1.0/24', '192.0.2.7', '02:00:00:00:00:07').attributes
const otherMac = { ...OWN.attributes, backendData: { VNI: 1, VtepMAC: '02:00:00:00:00:99' } }

const verdict = (seen: Partial<Lease>, claim: Partial<OwnClaim> = {}) => {
  const found = judgeOwnKey({ ...OWN, ...seen }, { own: OWN, isHeld: true, isUnsure: false, attempted: null, ...claim })
  return found instanceof FlanneletteError ? found.message : found
}

describe('a lease at the own key', () => {
  test.each<[string, 'same' | 'ours' | RegExp, Partial<Lease>, Partial<OwnClaim>]>([
    ['as it was written', 'same', {}, {}],
    ['as it was written, not confirmed yet', 'ours', {}, { isHeld: false }],
    ['of an earlier revision, from a copy of the store', 'ours', { revision: 3 }, {}],
    ['of a later one, after a write without an answer', 'ours', { revision: 9 }, { isUnsure: true }],
    ['with what a move has tried to write', 'ours', { revision: 9, attributes: MOVED }, { attempted: MOVED }],
    ['made a reservation', 'ours', { revision: 9, expiresAtMs: null }, {}],
    ['of a later revision that nobody here wrote', /second daemon here, uses our public address/, { revision: 9 }, {}],
    [
      'with our address and another MAC',
      /uses our public address 192\.0\.2\.1/,
      { revision: 9, attributes: otherMac },
      { isUnsure: true },
    ],
    ['with another IPv6 half', /uses our public address/, { revision: 9, ipv6Subnet: 'fd00::/64' }, { isUnsure: true }],
    [
      'of another node',
      /owner changed\): it belongs to 192\.0\.2\.7 \(revision 9\)/,
      { revision: 9, attributes: OTHER },
      { isUnsure: true },
    ],
  ])('%s', (_, expected, seen, claim) => {
    const found = verdict(seen, claim)
    if (typeof expected === 'string') expect(found).toBe(expected)
    else expect(found).toMatch(expected)
  })
})
