// Alive and ready: what makes a node either, and above all what does not.
import { expect, test } from 'vitest'
import { formatPrefix } from '../../../dataplane/wire/prefix.ts'
import { HealthWatch, LONGEST_LAG_MS, LoopLag } from '../../../src/daemon/health.ts'
import { type Host, makeHost, started } from '../../support/agent-host.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { settle } from '../../support/virtual-clock.ts'

const watchOf = ({ agent, dataplane }: Awaited<ReturnType<typeof started>>, lagMs = 0) =>
  new HealthWatch(agent, dataplane, () => lagMs)

const failing = (health: HealthWatch) =>
  health
    .look()
    .checks.filter(({ ok }) => !ok)
    .map(({ name }) => name)

const withPeer = (host: Host) => host.shared.edit(() => [peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')])

test('a node that waits for its network config is alive and not ready', async () => {
  const node = makeHost(null).boot()
  node.agent.start().catch(() => {})
  await settle()
  const health = watchOf(node)
  expect(health.look()).toMatchObject({ live: true, ready: false })
  expect(failing(health)).toEqual(['start', 'lease', 'device', 'peers'])
  expect(health.look().notes).toEqual([expect.stringContaining('no network config')])
})

test('a node that forwards is ready', async () => {
  const host = makeHost()
  withPeer(host)
  expect(watchOf(await started(host)).look()).toMatchObject({ live: true, ready: true, notes: [] })
})

test('a node is not ready before all peers were programmed, and stays ready when a later one is not', async () => {
  const host = makeHost()
  withPeer(host)
  const node = await started(host)
  const health = watchOf(node)
  node.dataplane.waiting = new Map([['10.244.2.0/24', 'no buffer space']])
  expect(failing(health)).toEqual(['peers'])
  expect(health.look().notes).toEqual(['1 peer is pending'])
  expect(node.agent.state).toBe('degraded')
  node.dataplane.waiting = new Map()
  expect(failing(health)).toEqual([])
  node.dataplane.waiting = new Map([['10.244.2.0/24', 'no buffer space']])
  expect(failing(health)).toEqual([])
})

test('a device that is gone ends being ready, not being alive', async () => {
  const node = await started(makeHost())
  const health = watchOf(node)
  node.dataplane.trouble = 'the overlay device is gone'
  expect(health.look()).toMatchObject({ live: true, ready: false })
  expect(failing(health)).toEqual(['device'])
})

test('a store that is away is a note: alive and ready until the lease has expired, and alive after that', async () => {
  const host = makeHost()
  const node = await started(host)
  const health = watchOf(node)
  host.shared.setOutage('gone')
  await settle()
  expect(health.look()).toMatchObject({ live: true, ready: true })
  expect(health.look().notes.join()).toContain('the store is away')
  await host.clock.advance(25 * 3_600_000)
  expect(health.look()).toMatchObject({ live: true, ready: false })
  expect(failing(health)).toEqual(['lease'])
})

test('a node whose subnet is another node’s by now is neither alive nor ready', async () => {
  const host = makeHost()
  const node = await started(host)
  const health = watchOf(node)
  const subnet = formatPrefix(node.agent.local!.subnet!)
  host.shared.edit(() => [{ ...peerLease(subnet, '192.0.2.9', '0a:00:00:00:00:09'), revision: 90 }])
  await node.agent.lost
  expect(health.look()).toMatchObject({ live: false, ready: false })
  expect(failing(health)).toContain('lease')
  expect(health.look().checks.find(({ name }) => name === 'lease')?.about).toBe(`${subnet} is somebody else's now`)
})

test('checks tell the last renewal and the last change of peers', async () => {
  const host = makeHost()
  const node = await started(host)
  const health = watchOf(node)
  const about = (name: string) => health.look().checks.find((check) => check.name === name)?.about
  const startedAt = new Date(host.clock.wallMs()).toISOString()
  expect(about('lease')).toMatch(/^10\.244\.\d+\.0\/24 is held$/)
  expect(about('peers')).toBe(`0 known, 0 pending, last change ${startedAt}`)
  await host.clock.advance(23 * 3_600_000)
  const renewedAt = new Date(host.clock.wallMs()).toISOString()
  expect(about('lease')).toMatch(new RegExp(`is held, renewed ${renewedAt}$`))
  expect(about('peers')).toBe(`0 known, 0 pending, last change ${startedAt}`)
  host.shared.edit((all) => [...all, peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')])
  await settle()
  expect(about('peers')).toBe(`1 known, 0 pending, last change ${renewedAt}`)
})

test('a main thread that is late by five seconds is not alive', async () => {
  const node = await started(makeHost())
  expect(watchOf(node, LONGEST_LAG_MS - 1).look()).toMatchObject({ live: true, ready: true })
  expect(watchOf(node, LONGEST_LAG_MS).look()).toMatchObject({ live: false, ready: false })
})

test('lag is that of the last ten seconds', () => {
  let nowMs = 0
  const lag = new LoopLag(() => nowMs)
  const tickAfter = (ms: number) => {
    nowMs += ms
    lag.tick()
  }
  tickAfter(500)
  tickAfter(6500)
  expect(lag.lagMs).toBe(6000)
  for (let n = 0; n < 20; n++) tickAfter(500)
  expect(lag.lagMs).toBe(6000)
  tickAfter(500)
  expect(lag.lagMs).toBe(0)
})
