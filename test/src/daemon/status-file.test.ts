// status.json: complete, stable in shape, rewritten only when something changed.
import { existsSync, readFileSync, statSync } from 'node:fs'
import { expect, test } from 'vitest'
import { NodeAgent } from '../../../src/daemon/node-agent.ts'
import { StateDirectory } from '../../../src/daemon/state-directory.ts'
import { type DaemonStatus, StatusFile, statusOf } from '../../../src/daemon/status-file.ts'
import { silentLog } from '../../../src/log.ts'
import { MemoryLeases } from '../../../src/store/memory.ts'
import { ETH0 } from '../../support/agent-host.ts'
import { FakeDataplane } from '../../support/fake-dataplane.ts'
import { FakeHostWork } from '../../support/fake-host-work.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

function make() {
  const directory = temporaryDirectory()
  const clock = new VirtualClock()
  const shared = new MemoryLeases(clock, '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}')
  const dataplane = new FakeDataplane()
  const agent = new NodeAgent({
    store: shared.open(seededRandom(1)),
    dataplane,
    state: new StateDirectory(directory, silentLog),
    clock,
    log: silentLog,
    random: seededRandom(2),
    selectUnderlay: async () => ETH0,
    claimIdentity: async () => {},
    hostWork: new FakeHostWork(),
    ipMasq: false,
    subnetFile: `${directory}/subnet.env`,
    renewMarginMs: 3600_000,
  })
  const file = new StatusFile(directory, clock, () => statusOf(agent, dataplane, clock))
  const read = () => JSON.parse(readFileSync(`${directory}/status.json`, 'utf8')) as DaemonStatus
  return { directory, clock, shared, dataplane, agent, file, read }
}

test('before the start is through it says so, with everything else empty', async () => {
  const { file, read } = make()
  file.write()
  expect(read()).toMatchObject({
    version: 1,
    pid: process.pid,
    state: 'starting',
    node: null,
    lease: null,
    peers: [],
    offenders: [],
    counters: {},
  })
})

test('of a running node it has node, lease, peers with their generation, those left out, and counters', async () => {
  const { shared, agent, file, read } = make()
  const foreign = peerLease('10.244.3.0/24', '192.0.2.3', '0a:00:00:00:00:03')
  shared.edit(() => [
    peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02'),
    { ...foreign, attributes: { ...foreign.attributes, backendType: 'host-gw' } },
  ])
  await agent.start()
  file.write()
  const status = read()
  expect(status).toMatchObject({
    state: 'ready',
    dataplane: 'userspace',
    store: { name: 'memory', reachable: true, why: '' },
    node: {
      device: 'flannel.1',
      vni: 1,
      port: 8472,
      underlayInterface: 'eth0',
      underlayAddress: '192.0.2.1',
      network: '10.244.0.0/16',
      mtu: 1450,
    },
    lease: {
      publicIp: '192.0.2.1',
      backendType: 'vxlan',
      expiresAt: '2026-01-02T00:00:00.000Z',
      state: 'held',
      renewedAt: null,
    },
    generation: 1,
    peers: [{ subnet: '10.244.2.0/24', publicIp: '192.0.2.2', vtepMac: '0a:00:00:00:00:02', expiresAt: null }],
    pendingPeers: 0,
    leftOut: [
      {
        subnet: '10.244.3.0/24',
        publicIp: '192.0.2.3',
        reason: 'incompatible-backend',
        detail: 'incompatible: host-gw',
      },
    ],
    conflicts: [],
    counters: { 'outbound.packets.read': 7 },
  })
  expect(status.lease?.vtepMac).toBe(status.node?.mac)
  await agent.stop('keep')
})

test('a subnet that is pending has no way, with the reason, and its peer is counted', async () => {
  const { agent, dataplane, shared, file, read } = make()
  shared.edit(() => [
    peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02'),
    peerLease('10.244.3.0/24', '192.0.2.3', '0a:00:00:00:00:03'),
  ])
  await agent.start()
  dataplane.waiting = new Map([['10.244.3.0/24', 'No buffer space available']])
  file.write()
  const { peers, pendingPeers, state } = read()
  expect(peers.map(({ ways }) => ways)).toEqual([
    null,
    [{ subnet: '10.244.3.0/24', way: 'none', why: 'No buffer space available' }],
  ])
  expect([pendingPeers, state]).toEqual([1, 'degraded'])
  await agent.stop('keep')
})

test('those whom the source check refused are named', () => {
  const { dataplane, file, read } = make()
  const [reason, packets] = ['unknown-peer', 5] as const
  dataplane.refused = [
    { outerSource: 0xc0000263, innerSource: 0x0af40909, reason, packets, lastSeenMs: 1000 },
    { outerSource: 0xc0000263, innerSource: 0xfd00n << 112n, reason, packets, lastSeenMs: 0 },
  ]
  file.write()
  expect(read().offenders).toEqual([
    { outerSource: '192.0.2.99', innerSource: '10.244.9.9', reason, packets, lastSeen: '1970-01-01T00:00:01.000Z' },
    { outerSource: '192.0.2.99', innerSource: 'fd00::', reason, packets, lastSeen: '1970-01-01T00:00:00.000Z' },
  ])
})

test('a peer has the limit of its way beside it, others have none', async () => {
  const { shared, agent, dataplane, file, read } = make()
  shared.edit(() => [
    peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02'),
    peerLease('10.244.3.0/24', '192.0.2.3', '0a:00:00:00:00:03'),
  ])
  await agent.start()
  dataplane.limits.set(0xc0000203, 1350)
  file.write()
  expect(read().peers.map(({ pathMtu }) => pathMtu)).toEqual([null, 1350])
  expect(read().outerDf).toBe('clear')
  await agent.stop('keep')
})

test('is looked at once a second, and rewritten only when something but the time changed', async () => {
  const { directory, clock, shared, agent, file, read } = make()
  await agent.start()
  file.start()
  const { ino } = statSync(`${directory}/status.json`)
  await clock.advance(5000)
  expect(statSync(`${directory}/status.json`).ino).toBe(ino)
  shared.edit((leases) => [...leases, peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')])
  await clock.advance(2000)
  expect(read().peers).toHaveLength(1)
  await agent.stop('keep')
  file.stop()
  expect([read().state, clock.timers]).toEqual(['stopping', 0])
})

test('is looked at less often where a look takes long', async () => {
  const { directory, clock, agent, dataplane } = make()
  let [looks, lookMs, spentMs] = [0, 200, 0]
  const busy = {
    wallMs: () => clock.wallMs(),
    bootMs: () => clock.bootMs() + spentMs,
    after: (ms: number, fire: () => void) => clock.after(ms, fire),
  }
  const file = new StatusFile(directory, busy, () => {
    looks += 1
    spentMs += lookMs
    return statusOf(agent, dataplane, clock)
  })
  file.start()
  await clock.advance(3900)
  expect(looks).toBe(1)
  lookMs = 0
  await clock.advance(200)
  expect(looks).toBe(2)
  await clock.advance(3000)
  expect(looks).toBe(5)
  file.stop()
})

test('a moment in which it cannot be made costs no more than a second', async () => {
  const { directory, clock, agent, dataplane } = make()
  let failing = true
  const file = new StatusFile(directory, clock, () => {
    if (failing) throw new Error('counters are not there')
    return statusOf(agent, dataplane, clock)
  })
  file.start()
  expect(existsSync(`${directory}/status.json`)).toBe(false)
  failing = false
  await clock.advance(1000)
  expect(existsSync(`${directory}/status.json`)).toBe(true)
  file.stop()
})
