// Whole sets of leases on their way to the dataplane: each lasting change arrives, however sets follow each other.
import { expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import type { Dataplane } from '../../../src/daemon/dataplane.ts'
import { PeerUpdates } from '../../../src/daemon/peer-updates.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { silentLog } from '../../../src/log.ts'
import { peerLease } from '../../support/peer-lease.ts'

const OWN = peerLease('10.244.1.0/24', '192.0.2.1', '02:00:00:00:00:01')
const HOST2 = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const HOST3 = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')

test('a set that changes nothing does not keep the next one from being applied', async () => {
  const applied: number[] = []
  const replacePeers = async (peers: readonly Lease[]) => applied.push(peers.length)
  const dataplane = { kind: 'kernel', replacePeers } as unknown as Dataplane
  const updates = new PeerUpdates({ dataplane, clock: systemClock(), log: silentLog, backendType: 'vxlan' })
  await updates.offer([OWN, HOST2], OWN, 'first')
  await updates.offer([OWN, { ...HOST2, revision: 9 }], OWN, 'renewed')
  await updates.offer([OWN, HOST2, HOST3], OWN, 'joined')
  expect(applied).toEqual([1, 2])
  expect(updates.generation).toBe(2)
})
