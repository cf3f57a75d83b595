// A node whose machine slept, whose store went to and fro, or whose dataplane did not take its peers: what it says of
// itself, and that nothing of it goes on by a lease that is somebody else's.
import { describe, expect, test } from 'vitest'
import { formatPrefix } from '../../../dataplane/wire/prefix.ts'
import { HealthWatch } from '../../../src/daemon/health.ts'
import { createLog } from '../../../src/log.ts'
import { EtcdStore } from '../../../src/store/etcd/etcd-store.ts'
import { formatLeaseValue } from '../../../src/store/flannel-json.ts'
import { LEASE_TTL_MS } from '../../../src/store/lease-book.ts'
import type { LeaseStore } from '../../../src/store/lease-store.ts'
import { CONFIG, type Host, makeHost, remote, started } from '../../support/agent-host.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { StubEtcd } from '../../support/stub-etcd.ts'
import { settle } from '../../support/virtual-clock.ts'

const TICK_MS = 30_000
const HOUR_MS = 3_600_000
const B = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')
const REBOOTED = { ...peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:99'), revision: 50 }

/** Our subnet becomes another node's. */
function giveAway(host: Host, subnet: string): void {
  host.shared.edit(() => [{ ...peerLease(subnet, '192.0.2.9', '0a:00:00:00:00:09'), revision: 90 }])
}

describe('a renewal that is not answered', () => {
  /** A node whose store goes on to tell of leases, and to write none while it is deaf. */
  async function unanswered() {
    const host = makeHost()
    const store = host.shared.open(() => 0)
    const deaf = { now: true }
    const renew: LeaseStore['renew'] = (lease) => (deaf.now ? new Promise(() => {}) : store.renew(lease))
    const node = await started(host, { store: { ...remote(store), remote: false, renew } })
    return { ...host, ...node, deaf, manager: node.agent.manager! }
  }

  test('makes the lease suspect and the node degraded within seconds, an hour before the end, until one works', async () => {
    const { clock, agent, dataplane, manager, deaf } = await unanswered()
    const health = new HealthWatch(agent, dataplane, () => 0)
    await clock.advance(LEASE_TTL_MS - HOUR_MS)
    expect([manager.state, agent.state]).toEqual(['held', 'ready'])
    await clock.advance(20_000)
    expect([manager.state, manager.isExpired, agent.state]).toEqual(['suspect', false, 'degraded'])
    await clock.advance(600_000) // what the watch tells of the key meanwhile is no renewal
    expect([manager.state, health.look()]).toMatchObject([
      'suspect',
      { ready: true, notes: ['the lease is not confirmed by the store'] },
    ])
    deaf.now = false
    await clock.advance(60_000)
    expect([manager.state, agent.state]).toEqual(['held', 'ready'])
  })

  test('leaves the lease held not a moment longer than it lives', async () => {
    const { clock, manager } = await unanswered()
    clock.suspend(LEASE_TTL_MS - 1)
    expect(manager.state).toBe('held')
    clock.suspend(1)
    expect(manager.state).toBe('suspect')
  })
})

describe('a machine that slept for longer than its lease lives', () => {
  test('has the same subnet and the same subnet.env within a tick, when nobody took it', async () => {
    const host = makeHost()
    const { agent } = await started(host)
    const before = [agent.local, host.env()]
    await host.clock.advance(TICK_MS)
    host.clock.suspend(2 * LEASE_TTL_MS)
    await host.clock.advance(TICK_MS)
    expect([agent.local, host.env()]).toEqual(before)
    expect(agent.state).toBe('ready')
    expect(host.shared.book().leases()).toEqual([agent.manager!.lease])
  })

  test('stops forwarding and takes subnet.env away within a tick, when somebody did', async () => {
    const host = makeHost()
    const { agent, dataplane } = await started(host)
    const subnet = formatPrefix(agent.local!.subnet!)
    await host.clock.advance(TICK_MS)
    host.clock.suspend(2 * LEASE_TTL_MS)
    giveAway(host, subnet)
    const theirs = host.shared.book().leases()
    await host.clock.advance(TICK_MS)
    expect([agent.state, dataplane.stops, host.env()]).toEqual(['lost', ['keep'], null])
    expect(host.shared.book().leases()).toEqual(theirs)
  })
})

test('a store that was away for two days and gave our subnet away ends forwarding; nothing is written to it', async () => {
  const host = makeHost()
  const node = await started(host)
  const subnet = formatPrefix(node.agent.local!.subnet!)
  host.shared.setOutage('switched off')
  await host.clock.advance(2 * LEASE_TTL_MS)
  expect([node.agent.state, node.dataplane.stops]).toEqual(['degraded', []])
  giveAway(host, subnet)
  host.shared.setOutage(null)
  const theirs = host.shared.book().leases()
  await host.clock.advance(5000)
  expect([node.agent.state, node.dataplane.stops, host.env()]).toEqual(['lost', ['keep'], null])
  expect(host.shared.book().leases()).toEqual(theirs)
  expect(new HealthWatch(node.agent, node.dataplane, () => 0).look()).toMatchObject({ live: false, ready: false })
})

test('a change of peers that the dataplane does not take leaves the node degraded until it does', async () => {
  const host = makeHost()
  host.shared.edit(() => [B])
  const { agent, dataplane } = await started(host)
  const health = new HealthWatch(agent, dataplane, () => 0)
  for (let attempt = 0; attempt < 3; attempt++) dataplane.replaceFailures.push(new Error('no buffer space'))
  host.shared.edit((leases) => leases.map((lease) => (lease.subnet?.address === B.subnet!.address ? REBOOTED : lease)))
  await settle()
  for (let attempt = 0; attempt < 3; attempt++) {
    expect([agent.state, health.look().ready]).toEqual(['degraded', true])
    expect(health.look().notes).toEqual([expect.stringContaining('has not taken the latest peers')])
    await host.clock.advance(5000)
  }
  expect([agent.state, health.look().notes]).toEqual(['ready', []])
  expect(dataplane.tables.at(-1)?.peers).toEqual([REBOOTED])
})

test('a watch that breaks a thousand times, its revision compacted each time, costs a line of the log in ten seconds', async () => {
  const host = makeHost()
  const etcd = new StubEtcd(host.clock)
  etcd.put('/net/config', CONFIG)
  etcd.put('/net/subnets/10.244.2.0-24', formatLeaseValue(B.attributes), '7')
  const lines: string[] = []
  const log = createLog({
    ...{ format: 'json', level: 'info', clock: host.clock, reader: 'other' },
    sink: { write: (line) => lines.push(line) },
  })
  const store = new EtcdStore('etcd', '/net', etcd, { clock: host.clock, log, random: seededRandom(7) })
  const { agent, dataplane } = await started(host, { store, log })
  const begun = [lines.length, host.clock.bootMs(), dataplane.tables.length]
  const opened = () => etcd.asked.filter((call) => call.startsWith('watch')).length
  const after = opened() + 1000
  while (opened() < after) {
    etcd.breakStreams()
    etcd.put('/elsewhere', 'x')
    etcd.put('/elsewhere', 'y')
    etcd.compact()
    await host.clock.advance(1000)
  }
  const tenSeconds = (host.clock.bootMs() - begun[1]!) / 10_000
  expect(lines.length - begun[0]!).toBeLessThanOrEqual(tenSeconds)
  await host.clock.advance(60_000)
  expect([agent.state, dataplane.tables.length]).toEqual(['ready', begun[2]])
  await agent.stop('keep')
  log.close()
})
