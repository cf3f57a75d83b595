// Pending peers for those who look at a node: counted by peer, told by reason.
import { expect, test } from 'vitest'
import { countPending, pendingGroups, pendingSentences } from '../../../src/daemon/pending-peers.ts'
import { dualLease, peerLease } from '../../support/peer-lease.ts'

test('a peer is counted once, whichever of its subnets are pending, and one that has left not at all', () => {
  const peers = [dualLease(2), dualLease(3), peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:04')]
  const pending = (...subnets: string[]) => countPending(peers, new Map(subnets.map((one) => [one, 'gone'])))
  expect([pending(), pending('10.244.2.0/24', 'fd00:10:244:2::/64')]).toEqual([0, 1])
  expect(pending('10.244.2.0/24', 'fd00:10:244:3::/64', '10.244.99.0/24')).toBe(2)
})

const peer = (host: number, why: string | null) => {
  const subnet = `10.244.${host}.0/24`
  return { publicIp: `192.0.2.${host}`, ways: why === null ? null : [{ subnet, way: 'none' as const, why }] }
}

test('each is named with its reason', () => {
  const direct = { publicIp: '192.0.2.9', ways: [{ subnet: '10.244.9.0/24', way: 'direct' as const, why: '' }] }
  const groups = pendingGroups([peer(2, 'no space'), peer(3, null), peer(4, 'in the way'), peer(5, 'no space'), direct])
  expect(groups.flatMap(pendingSentences)).toEqual([
    '10.244.2.0/24 (192.0.2.2) is pending: no space',
    '10.244.5.0/24 (192.0.2.5) is pending: no space',
    '10.244.4.0/24 (192.0.2.4) is pending: in the way',
  ])
})

test('what keeps many from being reached is said once', () => {
  const many = Array.from({ length: 9 }, (_, host) => peer(host, 'the underlay address is gone'))
  expect(pendingGroups([...many, peer(20, 'no space')]).flatMap(pendingSentences)).toEqual([
    '9 subnets of peers are pending: the underlay address is gone',
    '10.244.20.0/24 (192.0.2.20) is pending: no space',
  ])
})
