// What became of the own key: behind a compaction, while the machine slept, and when somebody overwrote it with what is
// no lease. A manager on the store for etcd, and an etcd in memory.
import { describe, expect, onTestFinished, test } from 'vitest'
import { formatPrefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { FlanneletteError } from '../../../src/errors.ts'
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

describe('something that is no lease on the own key', () => {
  const writes = (etcd: StubEtcd) => etcd.asked.filter((call) => call === 'commit').length

  test.each(['', 'rubbish', '{"PublicIP":', '{"PublicIP":"999.1.1.1"}', '[]', '\u0000\u00ff'])(
    'is told once and overwritten within a second: %j',
    async (rubbish) => {
      const { clock, etcd, log, manager, losses, snapshots, stored } = await holding()
      etcd.put(KEY, rubbish, null)
      await clock.advance(1000)
      expect(log.of('lease-overwritten').map(({ level }) => level)).toEqual(['warn'])
      const pair = await stored()
      expect([pair?.value, pair?.leaseId]).toEqual([formatLeaseValue(OWN), expect.stringMatching(/^1\d+$/)])
      expect([manager.state, losses, manager.lease.revision]).toEqual(['held', [], pair?.modRevision])
      const { length } = etcd.asked
      await clock.advance(60_000)
      expect(etcd.asked.slice(length).filter((call) => call === 'commit')).toEqual([])
      expect(snapshots.at(-1)?.map(({ subnet }) => formatPrefix(subnet!))).toEqual([SUBNET])
    },
  )

  test('that comes again each second is answered at most twice in half a minute, and in the end overwritten', async () => {
    const { clock, etcd, losses, stored } = await holding()
    const before = writes(etcd)
    for (let second = 0; second < 120; second++) {
      etcd.put(KEY, `rubbish ${second}`)
      await clock.advance(1000)
    }
    expect(writes(etcd) - before).toBeLessThanOrEqual(2 * 2 * (120 / 30 + 1)) // each renewal is tried as such first
    await clock.advance(30_000)
    expect([losses, (await stored())?.value]).toEqual([[], formatLeaseValue(OWN)])
  })

  test('behind a compaction is overwritten as well', async () => {
    const { log, stored, behindCompaction, etcd } = await holding()
    await behindCompaction(() => etcd.put(KEY, 'rubbish'))
    expect([log.of('lease-overwritten').length, log.of('lease-gone')]).toEqual([1, []])
    expect((await stored())?.value).toBe(formatLeaseValue(OWN))
  })

  test('over another node’s claim does not give the subnet back to us', async () => {
    const { clock, etcd, manager, losses, stored } = await holding()
    etcd.breakStreams()
    etcd.put(KEY, THEIRS, '7')
    etcd.put(KEY, 'rubbish')
    await clock.advance(10_000)
    expect([manager.state, losses.length, (await stored())?.value]).toEqual(['lost', 1, 'rubbish'])
  })

  test('while the subnet went to another under a key of its own is a loss', async () => {
    const { clock, etcd, manager, losses, stored } = await holding()
    etcd.breakStreams()
    etcd.put(KEY, 'rubbish')
    etcd.put(`${KEY}&fd00:1::-64`, THEIRS, '7')
    await clock.advance(10_000)
    expect([manager.state, losses.length, (await stored())?.value]).toEqual(['lost', 1, 'rubbish'])
  })

  test('that cannot be overwritten now is, once the store works again; peers are told of all the same', async () => {
    const { clock, etcd, log, snapshots, stored } = await holding()
    const commit = etcd.commit.bind(etcd)
    etcd.commit = async () => {
      throw new FlanneletteError('store-unreadable', 'no leader', { retryable: true })
    }
    etcd.put(KEY, 'rubbish')
    etcd.put('/net/subnets/10.244.2.0-24', THEIRS, '7')
    await clock.advance(5000)
    expect(snapshots.at(-1)?.map(({ subnet }) => formatPrefix(subnet!))).toEqual([SUBNET, '10.244.2.0/24'])
    expect(log.of('store-call-failed').length).toBeGreaterThan(0)
    etcd.commit = commit
    await clock.advance(60_000)
    expect((await stored())?.value).toBe(formatLeaseValue(OWN))
  })

  test('leaves a reservation one', async () => {
    const { clock, etcd, manager, stored } = await holding()
    etcd.put(KEY, formatLeaseValue(OWN), null)
    await clock.advance(1000)
    expect(manager.lease.expiresAtMs).toBeNull()
    etcd.put(KEY, 'rubbish', null)
    await clock.advance(1000)
    expect([manager.lease.expiresAtMs, await stored()]).toMatchObject([
      null,
      { value: formatLeaseValue(OWN), leaseId: null },
    ])
  })

  test('on a key that only looks like ours is left alone', async () => {
    const { clock, etcd, log, stored } = await holding()
    etcd.put(`${KEY}&fd00:1::-64`, 'rubbish')
    await clock.advance(60_000)
    expect([log.of('lease-overwritten'), (await stored())?.value]).toEqual([[], formatLeaseValue(OWN)])
    expect((await etcd.range({ from: `${KEY}&fd00:1::-64`, to: null })).pairs[0]?.value).toBe('rubbish')
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
