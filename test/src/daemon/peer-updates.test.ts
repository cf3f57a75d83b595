// Hand-over of peers: one at a time, the latest set, only when it differs.
import { expect, test } from 'vitest'
import { PeerUpdates } from '../../../src/daemon/peer-updates.ts'
import { FakeDataplane } from '../../support/fake-dataplane.ts'
import { POD_NETWORKS, peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { settle, VirtualClock } from '../../support/virtual-clock.ts'

const OWN = peerLease('10.244.1.0/24', '192.0.2.1', '0a:00:00:00:00:01')
const B = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')
const C = peerLease('10.244.3.0/24', '192.0.2.3', '0a:00:00:00:00:03')

function make() {
  const clock = new VirtualClock()
  const dataplane = new FakeDataplane()
  const log = new RecordingLog()
  const updates = new PeerUpdates({ dataplane, clock, log })
  return { clock, dataplane, log, updates }
}

test('the first set is handed over even when it is empty', async () => {
  const { dataplane, updates } = make()
  await updates.offer([OWN], OWN, POD_NETWORKS, 'first leases')
  expect([dataplane.tables, updates.generation]).toEqual([[{ peers: [], cause: 'first leases:' }], 1])
})

test('a peer with an address in the pod network is one for a dataplane that routes each subnet for itself', async () => {
  const lease = peerLease('10.244.2.0/24', '10.244.9.7', '0a:00:00:00:00:02')
  for (const [kind, peers] of [
    ['userspace', []],
    ['kernel', [lease]],
  ] as const) {
    const { dataplane, updates } = make()
    Object.assign(dataplane, { kind })
    await updates.offer([OWN, lease], OWN, POD_NETWORKS, 'first leases')
    expect(updates.peers).toEqual(peers)
  }
})

test('the cause says what was added, changed and removed', async () => {
  const { dataplane, updates } = make()
  await updates.offer([OWN, B], OWN, POD_NETWORKS, 'first leases')
  const rebooted = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:99')
  await updates.offer([OWN, rebooted, C], OWN, POD_NETWORKS, 'lease change')
  await updates.offer([OWN, C], OWN, POD_NETWORKS, 'lease change')
  expect(dataplane.tables.map((table) => table.cause)).toEqual([
    'first leases: +10.244.2.0/24',
    'lease change: +10.244.3.0/24 ~10.244.2.0/24',
    'lease change: -10.244.2.0/24',
  ])
})

test('a lease outside the network is left out, and contradicts nobody', async () => {
  const { updates } = make()
  const stray = peerLease('0.0.0.0/1', '192.0.2.9', '0a:00:00:00:00:09')
  const halfStray = { ...C, ipv6Subnet: '::/1' }
  const dual = { ...B, ipv6Subnet: 'fd00:10:244:2::/64' }
  const twin = peerLease('10.244.2.0/24', '192.0.2.8', '0a:00:00:00:00:08')
  await updates.offer([stray, OWN, dual, halfStray], OWN, POD_NETWORKS, 'first leases')
  expect(updates.conflicts).toEqual([])
  expect(updates.leftOut.map(({ subnet, reason }) => [subnet, reason])).toContainEqual(['0.0.0.0/1', 'outside-network'])
  await updates.offer([stray, OWN, dual, twin], OWN, POD_NETWORKS, 'lease change')
  expect(updates.conflicts).toHaveLength(1)
})

test('a long cause is cut to a few names and a number', async () => {
  const { dataplane, updates } = make()
  const many = Array.from({ length: 40 }, (_, index) =>
    peerLease(`10.244.${index + 2}.0/24`, '192.0.2.2', '0a:00:00:00:00:02'),
  )
  await updates.offer(many, OWN, POD_NETWORKS, 'first leases')
  expect(dataplane.tables[0]?.cause).toMatch(/\+10\.244\.6\.0\/24 and 35 more$/)
})

test('a renewal hands nothing over, but is known', async () => {
  const { dataplane, updates } = make()
  await updates.offer([OWN, B], OWN, POD_NETWORKS, 'first leases')
  const renewed = { ...B, revision: 9, expiresAtMs: 5 }
  await updates.offer([OWN, renewed], OWN, POD_NETWORKS, 'lease change')
  expect([dataplane.tables.length, updates.peers]).toEqual([1, [renewed]])
})

test('sets that come during a hand-over are merged, and the latest one is what remains', async () => {
  const { dataplane, updates } = make()
  await updates.offer([OWN], OWN, POD_NETWORKS, 'first leases')
  let open = () => {}
  dataplane.gate = new Promise((resolve) => {
    open = resolve
  })
  const offers = [updates.offer([OWN, B], OWN, POD_NETWORKS, 'lease change')]
  await settle()
  for (const leases of [[OWN, B, C], [OWN]]) offers.push(updates.offer(leases, OWN, POD_NETWORKS, 'lease change'))
  await settle()
  expect(dataplane.tables).toHaveLength(1)
  open()
  await Promise.all(offers)
  // The one under way, then the latest: the middle one is never seen.
  expect(dataplane.tables.slice(1).map((table) => table.peers.length)).toEqual([1, 0])
  expect(updates.peers).toEqual([])
})

test('a hand-over that fails is tried again with the same set', async () => {
  const { clock, dataplane, updates, log } = make()
  dataplane.replaceFailures.push(new Error('no memory'))
  await updates.offer([OWN, B], OWN, POD_NETWORKS, 'first leases')
  expect([dataplane.tables.length, log.of('peers-not-replaced').length]).toEqual([0, 1])
  await clock.advance(5000)
  expect(dataplane.subnets).toEqual(['10.244.2.0/24'])
})

test('after a failure even the set that was in force before is handed over again', async () => {
  const { clock, dataplane, updates } = make()
  await updates.offer([OWN, B], OWN, POD_NETWORKS, 'first leases')
  dataplane.replaceFailures.push(new Error('half done'))
  await updates.offer([OWN, B, C], OWN, POD_NETWORKS, 'lease change')
  await updates.offer([OWN, B], OWN, POD_NETWORKS, 'lease change')
  expect([dataplane.tables.length, dataplane.subnets]).toEqual([2, ['10.244.2.0/24']])
  await clock.advance(60_000)
  expect(dataplane.subnets).toEqual(['10.244.2.0/24'])
})

test('conflicts and left-out peers are warned about once, not with every snapshot', async () => {
  const { updates, log } = make()
  const twin = peerLease('10.244.2.128/25', '192.0.2.9', '0a:00:00:00:00:09')
  const foreign = { ...C, attributes: { ...C.attributes, backendType: 'host-gw' } }
  for (let round = 0; round < 3; round++)
    await updates.offer([OWN, B, twin, foreign], OWN, POD_NETWORKS, 'lease change')
  expect(updates.conflicts).toHaveLength(1)
  expect(log.of('lease-conflict').map((line) => line.message)).toEqual([
    expect.stringMatching(/10\.244\.2\.0\/24.*192\.0\.2\.9/),
  ])
  expect(log.of('peer-left-out').map((line) => line.fields)).toEqual([{ reason: 'incompatible-backend' }])
})

test('of thousands of leases that cannot be used, and contradict each other, the first are told and the rest is counted', async () => {
  const { updates, log } = make()
  const leases = Array.from({ length: 3000 }, (_, index) => {
    const lease = peerLease('10.244.2.0/24', `198.51.${index >> 8}.${index & 255}`, '0a:00:00:00:00:09')
    return { ...lease, attributes: { ...lease.attributes, backendType: 'host-gw' } }
  })
  await updates.offer([OWN, B, ...leases], OWN, POD_NETWORKS, 'lease change')
  for (const [event, count] of [
    ['peer-left-out', updates.leftOut.length],
    ['lease-conflict', updates.conflicts.length],
  ] as const) {
    const lines = log.of(event).map(({ message }) => message)
    expect(lines).toHaveLength(21)
    expect(lines[20]).toMatch(new RegExp(`^and ${count - 20} more: `))
  }
})

test('after close nothing is handed over any more, not even a retry', async () => {
  const { clock, dataplane, updates } = make()
  dataplane.replaceFailures.push(new Error('no memory'))
  await updates.offer([OWN, B], OWN, POD_NETWORKS, 'first leases')
  updates.close()
  await updates.offer([OWN, C], OWN, POD_NETWORKS, 'lease change')
  await clock.advance(60_000)
  expect([dataplane.tables, clock.timers]).toEqual([[], 0])
})
