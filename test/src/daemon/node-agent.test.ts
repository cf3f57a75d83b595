// A node's whole life with a store in memory and a dataplane that moves nothing.
import { describe, expect, test } from 'vitest'
import { formatIpv4, parseIpv4 } from '../../../dataplane/wire/address.ts'
import { formatPrefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { StateDirectory } from '../../../src/daemon/state-directory.ts'
import { statusOf } from '../../../src/daemon/status-file.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import { vtepMacOf } from '../../../src/store/flannel-json.ts'
import type { LeaseNews, LeaseStore } from '../../../src/store/lease-store.ts'
import { CONFIG, ETH0, type Host, makeHost, started } from '../../support/agent-host.ts'
import { FakeHostWork } from '../../support/fake-host-work.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { settle } from '../../support/virtual-clock.ts'

const B = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')

describe('a start', () => {
  test('goes from lease over device and peers to subnet.env and ready', async () => {
    const host = makeHost()
    host.shared.edit(() => [B])
    const { agent, dataplane } = await started(host)
    const subnet = agent.local!.subnet
    expect(agent.state).toBe('ready')
    expect(dataplane.local).toMatchObject({
      deviceName: 'flannel.1',
      vni: 1,
      port: 8472,
      underlayInterface: 'eth0',
      underlayAddress: ETH0.address,
      overlayAddress: subnet!.address,
      network: parsePrefix('10.244.0.0/16'),
      mtuBytes: 1450,
    })
    expect(dataplane.subnets).toEqual(['10.244.2.0/24'])
    expect(host.env()).toContain(`FLANNEL_SUBNET=${formatIpv4(subnet!.address + 1)}/24\nFLANNEL_MTU=1450\n`)
    expect(host.log.lines.map((line) => line.event)).toEqual([
      'underlay-chosen',
      'mtu-chosen',
      'lease-acquired',
      'store-connected',
      'peers-replaced',
      'ready',
    ])
  })

  test('writes no subnet.env before the dataplane has its peers', async () => {
    const host = makeHost()
    const { agent, dataplane } = host.boot()
    let open = () => {}
    dataplane.gate = new Promise((resolve) => {
      open = resolve
    })
    const starting = agent.start()
    await settle()
    expect([dataplane.local !== null, host.env(), agent.state]).toEqual([true, null, 'starting'])
    open()
    await starting
    expect(host.env()).not.toBeNull()
  })

  test('writes no subnet.env before rules and routes of the host are there, in the mode of the network', async () => {
    const host = makeHost('{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan"}}')
    const hostWork = new FakeHostWork()
    let open = () => {}
    hostWork.gate = new Promise((resolve) => {
      open = resolve
    })
    const { agent } = host.boot({ hostWork, ipMasq: true })
    const starting = agent.start()
    await settle()
    expect([hostWork.calls, host.env()]).toEqual([['start flannel.1 nftables'], null])
    open()
    await starting
    expect(host.env()).toContain('\nFLANNEL_IPMASQ=true\n')
    await agent.stop('remove')
    expect(hostWork.calls).toEqual(['start flannel.1 nftables', 'stop remove'])
  })

  test('whose host lacks something is degraded until it has it', async () => {
    const hostWork = new FakeHostWork()
    hostWork.lacking = 'pods are not masqueraded'
    const host = makeHost()
    const { agent, dataplane } = await started(host, { hostWork })
    expect(statusOf(agent, dataplane, host.clock)).toMatchObject({
      state: 'degraded',
      hostProblem: 'pods are not masqueraded',
    })
    hostWork.lacking = null
    expect(agent.state).toBe('ready')
  })

  test('whose dataplane refuses leaves no subnet.env', async () => {
    const host = makeHost()
    const { agent, dataplane } = host.boot()
    dataplane.startFailures.push(new FlanneletteError('port-busy', 'port 8472 is busy', { remedy: 'free it' }))
    await expect(agent.start()).rejects.toMatchObject({ code: 'port-busy' })
    expect([host.env(), dataplane.stops, host.clock.timers]).toEqual([null, ['keep'], 0])
  })

  test('whose dataplane cannot start writes nothing to the store, which others watch', async () => {
    const host = makeHost()
    const mine = peerLease('10.244.7.0/24', '192.0.2.1', '0a:00:00:00:00:07')
    host.shared.edit(() => [mine])
    const { agent, dataplane } = host.boot()
    dataplane.prepareFailures.push(new FlanneletteError('port-busy', 'port 8472 is busy', { remedy: 'free it' }))
    await expect(agent.start()).rejects.toMatchObject({ code: 'port-busy' })
    expect([host.shared.book().leases(), dataplane.local]).toEqual([[mine], null])
  })

  test('that fails after all gives back a lease that was new, and remembers none', async () => {
    const host = makeHost()
    const { agent, dataplane } = host.boot()
    dataplane.startFailures.push(new FlanneletteError('host-command', 'no'))
    await expect(agent.start()).rejects.toMatchObject({ code: 'host-command' })
    expect(host.shared.book().leases()).toEqual([])
    expect(new StateDirectory(`${host.directory}/state`, host.log).readLease()).toBeNull()
  })

  test('that fails after all keeps a lease that was ours before', async () => {
    const host = makeHost()
    const first = await started(host)
    await first.agent.stop('keep')
    const { agent, dataplane } = host.boot()
    dataplane.startFailures.push(new FlanneletteError('host-command', 'no'))
    await expect(agent.start()).rejects.toMatchObject({ code: 'host-command' })
    expect(host.shared.book().leases()).toMatchObject([{ subnet: first.agent.local!.subnet }])
  })

  test('leaves a node degraded while its dataplane cannot move packets, also without peers', async () => {
    const { agent, dataplane } = await started(makeHost())
    dataplane.trouble = 'the underlay address is gone'
    expect(agent.state).toBe('degraded')
    dataplane.trouble = null
    expect(agent.state).toBe('ready')
  })

  test('that is stopped while it waits ends without a device', async () => {
    const host = makeHost(null)
    const { agent, dataplane } = host.boot()
    const starting = agent.start().catch((error: unknown) => error)
    await host.clock.advance(2000)
    await agent.stop('keep')
    expect(await starting).toBeInstanceOf(FlanneletteError)
    expect([dataplane.local, host.clock.timers]).toEqual([null, 0])
  })
})

describe('a start while the store is away', () => {
  async function restartedWithoutStore(host: Host) {
    host.shared.edit(() => [B])
    const first = await started(host)
    await host.clock.advance(5000)
    await first.agent.stop('keep')
    const env = host.env()
    host.shared.setOutage('switched off')
    const second = await started(host)
    return { first, second, env }
  }

  test('forwards from the kept lease and peers, degraded, with the same subnet.env', async () => {
    const host = makeHost()
    const { first, second, env } = await restartedWithoutStore(host)
    expect(second.agent.state).toBe('degraded')
    expect(second.agent.local).toEqual(first.agent.local)
    expect(second.dataplane.subnets).toEqual(['10.244.2.0/24'])
    expect(host.env()).toBe(env)
    expect(statusOf(second.agent, second.dataplane, host.clock).store).toMatchObject({
      reachable: false,
      why: expect.stringMatching(/switched off/),
    })
  })

  test('is confirmed when the store is back, and takes the news from there', async () => {
    const host = makeHost()
    const { second } = await restartedWithoutStore(host)
    host.shared.setOutage(null)
    host.shared.edit((leases) => [...leases, peerLease('10.244.3.0/24', '192.0.2.3', '0a:00:00:00:00:03')])
    await host.clock.advance(5000)
    expect([second.agent.state, second.dataplane.subnets]).toEqual(['ready', ['10.244.2.0/24', '10.244.3.0/24']])
  })

  test('ends when the store is back and our subnet belongs to another node', async () => {
    const host = makeHost()
    const { second } = await restartedWithoutStore(host)
    const subnet = formatPrefix(second.agent.local!.subnet!)
    host.shared.edit(() => [{ ...peerLease(subnet, '192.0.2.9', '0a:00:00:00:00:09'), revision: 90 }])
    host.shared.setOutage(null)
    await host.clock.advance(5000)
    expect(await second.agent.lost).toMatchObject({ code: 'lease-conflict' })
  })

  test('is refused when the kept lease was for another address', async () => {
    const host = makeHost()
    const first = await started(host)
    await first.agent.stop('keep')
    host.shared.setOutage('switched off')
    const moved = { ...ETH0, address: parseIpv4('192.0.2.77')! }
    await expect(started(host, { selectUnderlay: async () => moved })).rejects.toMatchObject({
      code: 'store-unreadable',
    })
  })
})

describe('a running node', () => {
  test('follows peers that come, change only their MAC, and go', async () => {
    const host = makeHost()
    const { dataplane } = await started(host)
    host.shared.edit((leases) => [...leases, B])
    await host.clock.advance(1000)
    expect(dataplane.subnets).toEqual(['10.244.2.0/24'])
    const rebooted = { ...peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:99'), revision: 50 }
    host.shared.edit((leases) =>
      leases.map((lease) => (formatPrefix(lease.subnet!) === '10.244.2.0/24' ? rebooted : lease)),
    )
    await host.clock.advance(1000)
    expect(vtepMacOf(dataplane.tables.at(-1)!.peers[0]!.attributes)).toBe(0x0a_00_00_00_00_99)
    host.shared.edit((leases) => leases.filter((lease) => formatPrefix(lease.subnet!) !== '10.244.2.0/24'))
    await host.clock.advance(1000)
    expect(dataplane.subnets).toEqual([])
  })

  test('keeps its peers while the store is away, degraded, and says so once', async () => {
    const host = makeHost()
    host.shared.edit(() => [B])
    const { agent, dataplane } = await started(host)
    host.shared.setOutage('switched off')
    await host.clock.advance(3600_000)
    expect([agent.state, dataplane.subnets]).toEqual(['degraded', ['10.244.2.0/24']])
    expect(host.log.of('store-disconnected')).toHaveLength(1)
    host.shared.setOutage(null)
    await host.clock.advance(1000)
    expect(agent.state).toBe('ready')
  })

  test('through 1,000 failures of its watch is degraded and hands no table over; ready within 2 s of the last', async () => {
    const host = makeHost()
    host.shared.edit(() => [B])
    const store = host.shared.open(() => 0)
    let failures = -1 // not yet
    async function* watch(signal: AbortSignal): AsyncGenerator<LeaseNews> {
      if (failures < 0) for await (const news of store.watch(AbortSignal.any([signal, broken.signal]))) yield news
      else if (failures >= 1000) yield* store.watch(signal)
      failures += 1
      yield { type: 'disconnected', why: 'connection reset' }
    }
    const broken = new AbortController()
    const { agent, dataplane } = await started(host, { store: withWatch(store, watch) })
    const { length } = dataplane.tables
    broken.abort()
    await host.clock.advance(2000)
    for (; failures < 1000; await host.clock.advance(1000)) {
      expect([agent.state, agent.peers.peers.length]).toEqual(['degraded', 1])
    }
    await host.clock.advance(2000)
    expect([agent.state, dataplane.subnets, dataplane.tables.length]).toEqual(['ready', ['10.244.2.0/24'], length])
    expect(host.log.of('store-disconnected')).toHaveLength(1)
  })

  test('says of a store that is away what keeps it away now', async () => {
    const host = makeHost()
    const { agent } = await started(host)
    for (const why of ['switched off', 'wrong password', 'wrong password']) {
      host.shared.setOutage(why)
      await settle()
    }
    expect(agent.store).toMatchObject({ reachable: false, why: expect.stringContaining('wrong password') })
    expect(host.log.of('store-disconnected')).toHaveLength(2)
    host.shared.setOutage(null)
    await host.clock.advance(1000)
    expect(agent.store).toMatchObject({ reachable: true, why: '' })
  })

  test('says once what changed in the config in the store, and that it takes a restart', async () => {
    const host = makeHost()
    const { dataplane } = await started(host)
    const tables = dataplane.tables.length
    host.shared.config = '{"Network":"10.99.0.0/16","Backend":{"Type":"vxlan"}}'
    await host.clock.advance(900_000)
    expect(host.log.of('config-changed').map(({ message }) => message)).toEqual([
      'the network config in the store has changed (Network): restart this node to use it',
    ])
    host.shared.setOutage('switched off')
    await host.clock.advance(900_000)
    host.shared.setOutage(null)
    host.shared.config = CONFIG
    await host.clock.advance(300_000)
    expect(host.log.of('config-back')).toHaveLength(1)
    expect(dataplane.tables).toHaveLength(tables)
  })

  test('that is told to look now looks at rules and config at once, and in its turn after that', async () => {
    const host = makeHost()
    const hostWork = new FakeHostWork()
    const { agent } = await started(host, { hostWork })
    host.shared.config = '{"Network":"10.99.0.0/16","Backend":{"Type":"vxlan"}}'
    agent.lookNow()
    await settle()
    expect(host.log.of('config-changed')).toHaveLength(1)
    expect(hostWork.calls.filter((call) => call === 'look')).toHaveLength(1)
    host.shared.config = CONFIG
    await host.clock.advance(299_000)
    expect(host.log.of('config-back')).toHaveLength(0)
    await host.clock.advance(1000)
    expect(host.log.of('config-back')).toHaveLength(1)
  })

  test('three renewals change neither subnet.env nor the table', async () => {
    const host = makeHost()
    host.shared.edit(() => [B])
    const { agent, dataplane } = await started(host)
    const before = [host.env(), agent.local]
    const { revision } = agent.manager!.lease
    await host.clock.advance(3 * 23 * 3600_000 + 1000)
    expect(agent.manager!.lease.revision).toBe(revision + 3)
    expect([host.env(), agent.local]).toEqual(before)
    expect(dataplane.tables).toHaveLength(1)
  })

  test('whose lease went to another node stops forwarding and removes subnet.env', async () => {
    const host = makeHost()
    const { agent, dataplane } = await started(host)
    const subnet = formatPrefix(agent.local!.subnet!)
    host.shared.edit(() => [{ ...peerLease(subnet, '192.0.2.9', '0a:00:00:00:00:09'), revision: 90 }])
    await host.clock.advance(1000)
    expect(await agent.lost).toMatchObject({ code: 'lease-conflict', exitCode: 1 })
    expect([agent.state, dataplane.stops, host.env()]).toEqual(['lost', ['keep'], null])
    expect(host.log.of('lease-lost')).toHaveLength(1)
  })

  test('with leases in conflict is degraded and names them', async () => {
    const host = makeHost()
    const { agent, dataplane } = await started(host)
    host.shared.edit((leases) => [...leases, B, peerLease('10.244.2.128/25', '192.0.2.3', '0a:00:00:00:00:03')])
    await host.clock.advance(1000)
    expect(agent.state).toBe('degraded')
    expect(statusOf(agent, dataplane, host.clock).conflicts).toEqual([
      expect.stringMatching(/192\.0\.2\.2.*192\.0\.2\.3/),
    ])
  })
})

function withWatch(store: LeaseStore, watch: LeaseStore['watch']): LeaseStore {
  const get = (target: LeaseStore, name: keyof LeaseStore) => {
    const member = name === 'watch' ? watch : target[name]
    return typeof member === 'function' ? member.bind(target) : member
  }
  return new Proxy(store, { get: (target, name) => get(target, name as keyof LeaseStore) })
}

describe('a stop', () => {
  test('keeps device and subnet.env', async () => {
    const host = makeHost()
    const { agent, dataplane } = await started(host)
    await agent.stop('keep')
    expect([dataplane.stops, host.env() !== null, host.clock.timers]).toEqual([['keep'], true, 0])
    expect(host.shared.book().leases()).toHaveLength(1)
  })

  test('with removal takes both away', async () => {
    const host = makeHost()
    const { agent, dataplane } = await started(host)
    await agent.stop('remove')
    expect([dataplane.stops, host.env()]).toEqual([['remove'], null])
  })
})

test('an underlay whose MTU leaves no room is refused before there is a lease or a device', async () => {
  const host = makeHost()
  const { agent, dataplane } = host.boot({ selectUnderlay: async () => ({ ...ETH0, mtuBytes: 600 }) })
  await expect(agent.start()).rejects.toMatchObject({
    code: 'interface-unsuitable',
    message: expect.stringContaining('underlay 600 − overhead 50 = 550'),
  })
  expect([dataplane.outline, host.env(), host.shared.book().leases()]).toEqual([null, null, []])
})

test('the MTU of the config is the underlay MTU, the same on device, file and log', async () => {
  const host = makeHost('{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":1420}}')
  const { dataplane } = await started(host)
  expect(dataplane.local?.mtuBytes).toBe(1370)
  expect(host.env()).toContain('FLANNEL_MTU=1370\n')
  expect(host.log.of('mtu-chosen')[0]?.message).toContain('underlay 1420 − overhead 50 = 1370')
})
