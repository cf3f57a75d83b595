// The own lease written again with another public address: by compare-and-swap, and still ours when the answer got
// lost.
import { expect, onTestFinished, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import { LeaseManager } from '../../../src/lease/lease-manager.ts'
import type { LeaseStore } from '../../../src/store/lease-store.ts'
import { MemoryLeases } from '../../../src/store/memory.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const OWN = peerLease('10.244.1.0/24', '192.0.2.1', '0a:00:00:00:00:01').attributes
const MOVED = { ...OWN, publicIp: parseIpv4('192.0.2.77')! }
const network = parseNetworkConfig('{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}')

async function makeManager(wrap: (store: LeaseStore) => LeaseStore = (store) => store) {
  const clock = new VirtualClock()
  const shared = new MemoryLeases(clock, null)
  const store = shared.open(() => 0)
  const wish = { network, publicIp: OWN.publicIp, previousSubnet: null, previousIpv6Subnet: null }
  const lease = await store.acquire({ ...wish, attributes: () => OWN })
  const losses: FlanneletteError[] = []
  const manager = new LeaseManager(lease, true, {
    store: wrap(store),
    clock,
    log: new RecordingLog(),
    renewMarginMs: 3600_000,
    onLeases: () => {},
    onOwnLease: () => {},
    onStore: () => {},
    onLost: (error) => losses.push(error),
  })
  manager.start()
  onTestFinished(() => manager.stop())
  await clock.advance(0)
  return { clock, shared, lease, manager, losses, stored: () => shared.book().leases() }
}

test('is the same lease with another address, and lives 24 hours from then on', async () => {
  const { clock, lease, manager, losses, stored } = await makeManager()
  await clock.advance(3600_000)
  await manager.rewrite(MOVED)
  const expiresAtMs = lease.expiresAtMs! + 3600_000
  expect(stored()).toEqual([{ ...lease, attributes: MOVED, revision: lease.revision + 1, expiresAtMs }])
  await manager.rewrite(MOVED)
  await clock.advance(60_000)
  expect([manager.state, losses, stored()[0]?.revision]).toEqual(['held', [], lease.revision + 1])
})

test('whose answer got lost is recognised as our own', async () => {
  let deaf = true
  const { clock, manager, losses, stored } = await makeManager((store) => ({
    ...store,
    name: store.name,
    renewal: store.renewal,
    read: (subnet) => store.read(subnet),
    watch: (signal) => store.watch(signal),
    renew: async (lease) => {
      const written = await store.renew(lease)
      if (deaf) throw new FlanneletteError('store-unreadable', 'no answer', { retryable: true })
      return written
    },
  }))
  await expect(manager.rewrite(MOVED)).rejects.toMatchObject({ code: 'store-unreadable' })
  deaf = false
  await clock.advance(60_000)
  await manager.rewrite(MOVED)
  expect([manager.state, losses, manager.lease]).toEqual(['held', [], stored()[0]])
  expect(manager.lease.attributes).toEqual(MOVED)
})

test('over a key that somebody else has written meanwhile is none, and the lease is lost', async () => {
  const { shared, lease, manager, losses, stored } = await makeManager((store) => ({
    ...store,
    name: store.name,
    renewal: store.renewal,
    read: (subnet) => store.read(subnet),
    renew: (own) => store.renew(own),
    watch: async function* () {
      await new Promise(() => {})
    },
  }))
  const theirs = { ...lease, attributes: { ...OWN, publicIp: 7 }, revision: lease.revision + 5 }
  shared.edit(() => [theirs])
  await manager.rewrite(MOVED)
  expect([stored(), manager.state, losses.length]).toEqual([[theirs], 'lost', 1])
})
