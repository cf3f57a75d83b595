// What became of the own key while nobody looked: behind a compaction, and while the machine slept. A manager on the
// store for etcd, and an etcd in memory.
import { describe, expect, onTestFinished, test } from 'vitest'
import { formatPrefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import type { FlanneletteError } from '../../../src/errors.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { LeaseManager } from '../../../src/lease/lease-manager.ts'
import { EtcdStore } from '../../../src/store/etcd/etcd-store.ts'
import { formatLeaseValue } from '../../../src/store/flannel-json.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { StubEtcd } from '../../support/stub-etcd.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const SUBNET = '10.244.1.0/24'
const KEY = '/net/subnets/10.244.1.0-24'
const OWN = peerLease(SUBNET, '192.0.2.1', '0a:00:00:00:00:01').attributes
const THEIRS = formatLeaseValue(peerLease(SUBNET, '192.0.2.9', '0a:00:00:00:00:09').attributes)

/** A node that holds its lease and watches. */
async function holding() {
  const clock = new VirtualClock()
  const etcd = new StubEtcd(clock)
  const log = new RecordingLog()
  const store = new EtcdStore('etcd', '/net', etcd, { clock, log, random: () => 0 })
  const lease = await store.acquire({
    network: parseNetworkConfig('{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'),
    publicIp: OWN.publicIp,
    previousSubnet: parsePrefix(SUBNET),
    previousIpv6Subnet: null,
    attributes: () => OWN,
  })
  const snapshots: (readonly Lease[])[] = []
  const losses: FlanneletteError[] = []
  const manager = new LeaseManager(lease, true, {
    store,
    clock,
    log,
    renewMarginMs: 3600_000,
    onLeases: (leases) => snapshots.push(leases),
    onOwnLease: () => {},
    onStore: () => {},
    onLost: (error) => losses.push(error),
  })
  manager.start()
  onTestFinished(() => manager.stop())
  await clock.advance(1000)
  expect(snapshots).toHaveLength(1)
  const stored = async () => (await etcd.range({ from: KEY, to: null })).pairs[0]
  /** The watch breaks; what happens then is compacted before it is back. */
  const behindCompaction = async (what: () => void) => {
    etcd.breakStreams()
    what()
    etcd.put('/elsewhere', 'x')
    etcd.compact()
    await clock.advance(10_000)
  }
  return { clock, etcd, log, manager, losses, snapshots, stored, behindCompaction }
}

describe('behind a compaction', () => {
  test('a deletion is told once, and the lease put back; the watch goes on', async () => {
    const { clock, etcd, log, manager, losses, snapshots, stored, behindCompaction } = await holding()
    await behindCompaction(() => etcd.delete(KEY))
    expect(log.of('lease-gone')).toMatchObject([
      { level: 'error', message: expect.stringContaining('deleted by someone') },
    ])
    expect([manager.state, losses, (await stored())?.value]).toEqual(['held', [], formatLeaseValue(OWN)])
    etcd.put('/net/subnets/10.244.2.0-24', THEIRS, '7')
    await clock.advance(1000)
    expect(snapshots.at(-1)?.map(({ subnet }) => formatPrefix(subnet!))).toEqual([SUBNET, '10.244.2.0/24'])
    await clock.advance(60_000)
    expect(log.of('lease-gone')).toHaveLength(1)
  })

  test('another owner is a loss, told once, and his key is not written', async () => {
    const { etcd, manager, losses, stored, behindCompaction } = await holding()
    await behindCompaction(() => {
      etcd.delete(KEY)
      etcd.put(KEY, THEIRS, '7')
    })
    expect([manager.state, losses.map(({ message }) => message)]).toEqual([
      'lost',
      [expect.stringContaining('192.0.2.9')],
    ])
    expect(await stored()).toMatchObject({ value: THEIRS, leaseId: '7' })
  })
})

describe('somebody noticed that the machine slept', () => {
  const reads = (etcd: StubEtcd) => etcd.asked.filter((call) => call.startsWith('range')).length

  test('the own key is read at once; as it was it is still ours', async () => {
    const { etcd, manager } = await holding()
    const before = reads(etcd)
    expect([await manager.wake(), reads(etcd)]).toEqual([true, before + 1])
  })

  test('another owner is a loss before anything else is done', async () => {
    const { etcd, manager, losses, stored } = await holding()
    etcd.breakStreams() // a suspended machine has heard nothing
    etcd.put(KEY, THEIRS, '7')
    expect([await manager.wake(), manager.state, losses.length]).toEqual([false, 'lost', 1])
    expect(await stored()).toMatchObject({ value: THEIRS })
  })

  test('a store that is away takes nothing away', async () => {
    const { etcd, manager } = await holding()
    etcd.away = true
    expect([await manager.wake(), manager.state]).toEqual([true, 'held'])
  })
})
