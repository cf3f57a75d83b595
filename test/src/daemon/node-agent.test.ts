// A node's whole life with a store in memory and a dataplane that moves nothing.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { describe, expect, onTestFinished, test } from 'vitest'
import { formatIpv4, formatMac, parseIpv4 } from '../../../dataplane/wire/address.ts'
import { formatPrefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { writeSubnetFile } from '../../../src/config/subnet-file.ts'
import type { AgentOptions, Underlay } from '../../../src/daemon/agent-options.ts'
import { randomMac } from '../../../src/daemon/join-network.ts'
import { NodeAgent } from '../../../src/daemon/node-agent.ts'
import { StateDirectory } from '../../../src/daemon/state-directory.ts'
import { statusOf } from '../../../src/daemon/status-file.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import { vtepMacOf } from '../../../src/store/flannel-json.ts'
import { MemoryLeases } from '../../../src/store/memory.ts'
import { FakeDataplane } from '../../support/fake-dataplane.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'
import { settle, VirtualClock } from '../../support/virtual-clock.ts'

const CONFIG = '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'
const A = parseIpv4('192.0.2.1')!
const B = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')
const ETH0: Underlay = { name: 'eth0', index: 2, address: A, mtuBytes: 1500, how: 'default route' }
const ENV = (subnet: string, mtu = 1450) =>
  `FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=${subnet}\nFLANNEL_MTU=${mtu}\nFLANNEL_IPMASQ=false\n`

/** A machine on which one daemon after another can run. */
function makeHost(config: string | null = CONFIG) {
  const directory = temporaryDirectory()
  const clock = new VirtualClock()
  const shared = new MemoryLeases(clock, config)
  const log = new RecordingLog()
  const subnetFile = `${directory}/run/subnet.env`
  const random = seededRandom(3)
  const env = () => (existsSync(subnetFile) ? readFileSync(subnetFile, 'utf8') : null)
  function boot(changes: Partial<AgentOptions> = {}) {
    const dataplane = new FakeDataplane()
    const store = shared.open(random, (sentence) => log.warn('previous-subnet-unavailable', sentence))
    const options: AgentOptions = {
      store,
      dataplane,
      state: new StateDirectory(`${directory}/state`, log),
      clock,
      log,
      random,
      selectUnderlay: async () => ETH0,
      subnetFile,
      renewMarginMs: 3600_000,
      ...changes,
    }
    const agent = new NodeAgent(options)
    onTestFinished(() => agent.stop('keep'))
    return { agent, dataplane }
  }
  return { directory, clock, shared, log, subnetFile, env, boot }
}

type Host = ReturnType<typeof makeHost>

async function started(host: Host, changes: Partial<AgentOptions> = {}) {
  const node = host.boot(changes)
  await node.agent.start()
  return node
}

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
      underlayAddress: A,
      overlayAddress: subnet.address,
      network: parsePrefix('10.244.0.0/16'),
      mtuBytes: 1450,
    })
    expect(dataplane.subnets).toEqual(['10.244.2.0/24'])
    expect(host.env()).toBe(ENV(`${formatIpv4(subnet.address + 1)}/24`))
    expect(host.log.lines.map((line) => line.event)).toEqual([
      'underlay-chosen',
      'lease-acquired',
      'mtu-chosen',
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

  test('publishes the MAC that the device gets, locally administered and unicast', async () => {
    const host = makeHost()
    const { agent, dataplane } = await started(host)
    const lease = host.shared.book().leases()[0]!
    expect(vtepMacOf(lease.attributes)).toBe(dataplane.local!.mac)
    expect(formatMac(agent.local!.mac)).toMatch(/^.[26ae]:/)
    for (const draw of [0, 0.5, 0.999999]) expect(formatMac(randomMac(() => draw))).toMatch(/^.[26ae]:/)
  })

  test('waits for a config that is not there yet, ever less often, and goes on when it comes', async () => {
    const host = makeHost(null)
    const { agent } = host.boot()
    const starting = agent.start()
    await host.clock.advance(40_000)
    // At 0, 1, 3, 7, 15 and 31 s.
    expect(host.log.of('config-missing')).toHaveLength(6)
    expect(host.env()).toBeNull()
    host.shared.config = CONFIG
    await host.clock.advance(30_000)
    await starting
    expect(agent.state).toBe('ready')
  })

  test.each([
    ['an invalid network', '{"Network":"10.0.0.0/29"}', 'config-invalid', /Network/],
    ['text that is no JSON', '{\n"Network"', 'config-invalid', /line 2/],
    ['a backend that is not supported', '{"Network":"10.0.0.0/16"}', 'config-invalid', /"udp".*"vxlan" only/],
    ['IPv6', '{"Network":"10.0.0.0/16","EnableIPv6":true}', 'config-invalid', /EnableIPv6/],
  ])('with %s fails in one line, without a lease, a device or a file', async (_, config, code, words) => {
    const host = makeHost(config)
    const { agent, dataplane } = host.boot()
    const error = (await agent.start().catch((thrown: unknown) => thrown)) as FlanneletteError
    expect([error.code, error.exitCode]).toEqual([code, 2])
    expect(error.oneLine).toMatch(words)
    expect(error.oneLine).not.toContain('\n')
    expect([host.shared.book().leases(), dataplane.local, host.env()]).toEqual([[], null, null])
  })

  test('with a store that cannot be read and nothing kept fails with exit code 1', async () => {
    const host = makeHost()
    host.shared.setOutage('switched off')
    await expect(host.boot().agent.start()).rejects.toMatchObject({ code: 'store-unreadable', exitCode: 1 })
  })

  test('whose dataplane refuses leaves no subnet.env', async () => {
    const host = makeHost()
    const { agent, dataplane } = host.boot()
    dataplane.startFailures.push(new FlanneletteError('port-busy', 'port 8472 is busy', { remedy: 'free it' }))
    await expect(agent.start()).rejects.toMatchObject({ code: 'port-busy' })
    expect([host.env(), dataplane.stops, host.clock.timers]).toEqual([null, [], 0])
  })

  test('waits for a subnet when all are taken, without a subnet.env, and takes the first that comes free', async () => {
    const host = makeHost('{"Network":"10.0.0.0/28","Backend":{"Type":"vxlan"}}')
    const others = ['10.0.0.4/30', '10.0.0.8/30', '10.0.0.12/30'].map((subnet, index) => {
      return peerLease(subnet, `192.0.2.${index + 2}`, '0a:00:00:00:00:02')
    })
    host.shared.edit(() => others)
    const { agent } = host.boot()
    const starting = agent.start()
    await host.clock.advance(10_000)
    expect([agent.state, host.env()]).toEqual(['starting', null])
    const attempts = host.log.of('lease-unavailable')
    expect(attempts[0]?.message).toMatch(/10\.0\.0\.4-10\.0\.0\.12.*3 leases/)
    expect(attempts.length).toBeLessThanOrEqual(4)
    host.shared.edit(() => others.slice(1))
    await host.clock.advance(30_000)
    await starting
    expect(formatPrefix(agent.local!.subnet)).toBe('10.0.0.4/30')
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

describe('identity', () => {
  test('the given public address is published, while the socket keeps the interface address', async () => {
    const host = makeHost()
    const asked: unknown[] = []
    const publicIp = parseIpv4('203.0.113.5')!
    const selectUnderlay = async (wanted: unknown) => {
      asked.push(wanted)
      return ETH0
    }
    const { agent } = await started(host, { publicIp, iface: 'eth0', selectUnderlay })
    expect(agent.local?.underlayAddress).toBe(A)
    expect(host.shared.book().leases()[0]?.attributes.publicIp).toBe(publicIp)
    expect(asked).toEqual([{ publicIp, iface: 'eth0' }])
  })

  test('the log always says which interface and address, and how they were chosen', async () => {
    const host = makeHost()
    await started(host)
    expect(host.log.of('underlay-chosen')).toEqual([
      expect.objectContaining({
        message: expect.stringMatching(/eth0.*192\.0\.2\.1/),
        fields: { how: 'default route', publicIp: '192.0.2.1' },
      }),
    ])
  })

  test('a lease with our address is taken over with its subnet and MAC when nothing else is known', async () => {
    const host = makeHost()
    host.shared.edit(() => [peerLease('10.244.9.0/24', '192.0.2.1', '0e:00:00:00:00:77')])
    const { agent } = await started(host)
    expect([formatPrefix(agent.local!.subnet), formatMac(agent.local!.mac)]).toEqual([
      '10.244.9.0/24',
      '0e:00:00:00:00:77',
    ])
  })

  test('the MAC of the state directory wins over that of the lease', async () => {
    const host = makeHost()
    host.shared.edit(() => [peerLease('10.244.9.0/24', '192.0.2.1', '0e:00:00:00:00:77')])
    const state = new StateDirectory(`${host.directory}/state`, host.log)
    state.prepare()
    state.writeMac(0x0a_00_00_00_00_01)
    const { agent } = await started(host)
    expect(formatMac(agent.local!.mac)).toBe('0a:00:00:00:00:01')
    expect(vtepMacOf(host.shared.book().leases()[0]!.attributes)).toBe(0x0a_00_00_00_00_01)
  })

  test('a subnet file whose subnet now belongs to another host gives us another one; theirs is untouched', async () => {
    const host = makeHost()
    const theirs = peerLease('10.244.1.0/24', '192.0.2.9', '0a:00:00:00:00:09')
    host.shared.edit(() => [theirs])
    const file = { network: parsePrefix('10.244.0.0/16')!, subnet: theirs.subnet, mtuBytes: 1450, ipMasq: false }
    writeSubnetFile(host.subnetFile, file)
    const { agent } = await started(host)
    expect(formatPrefix(agent.local!.subnet)).not.toBe('10.244.1.0/24')
    expect(host.shared.book().leases()).toContainEqual(theirs)
    expect(host.log.of('previous-subnet-unavailable').map((line) => line.message)).toEqual([
      expect.stringMatching(/192\.0\.2\.9.*192\.0\.2\.1\b/),
    ])
    expect(host.env()).toContain(formatIpv4(agent.local!.subnet.address + 1))
  })
})

describe('a restart', () => {
  test('gives the same subnet and MAC and the same bytes in subnet.env', async () => {
    const host = makeHost()
    const first = await started(host)
    const before = host.env()
    await first.agent.stop('keep')
    expect(host.env()).toBe(before)
    const second = await started(host)
    expect(host.env()).toBe(before)
    expect(second.agent.local).toEqual(first.agent.local)
  })

  test('after the lease expired gives the same subnet again when it is free', async () => {
    const host = makeHost()
    const first = await started(host)
    await first.agent.stop('keep')
    host.clock.suspend(48 * 3600_000)
    expect(host.shared.book().leases()).toEqual([])
    const second = await started(host)
    expect(second.agent.local).toEqual(first.agent.local)
  })

  test('removes a subnet.env of another network before anything else', async () => {
    const host = makeHost()
    const file = {
      network: parsePrefix('10.0.0.0/8')!,
      subnet: parsePrefix('10.9.1.0/24')!,
      mtuBytes: 1450,
      ipMasq: false,
    }
    writeSubnetFile(host.subnetFile, file)
    const { agent, dataplane } = host.boot()
    dataplane.startFailures.push(new FlanneletteError('tun-unavailable', 'no /dev/net/tun'))
    await expect(agent.start()).rejects.toMatchObject({ code: 'tun-unavailable' })
    expect(host.env()).toBeNull()
    expect(host.log.of('subnet-file-stale')).toHaveLength(1)
  })

  test('removes a subnet.env that contradicts the kept lease even while the store is still awaited', async () => {
    const host = makeHost()
    const first = await started(host)
    await first.agent.stop('keep')
    writeFileSync(host.subnetFile, ENV('10.244.77.1/24'))
    host.shared.config = null
    const { agent } = host.boot()
    const starting = agent.start().catch(() => {})
    await host.clock.advance(2000)
    expect(host.env()).toBeNull()
    await agent.stop('keep')
    await starting
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
    const subnet = formatPrefix(second.agent.local!.subnet)
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
      leases.map((lease) => (formatPrefix(lease.subnet) === '10.244.2.0/24' ? rebooted : lease)),
    )
    await host.clock.advance(1000)
    expect(vtepMacOf(dataplane.tables.at(-1)!.peers[0]!.attributes)).toBe(0x0a_00_00_00_00_99)
    host.shared.edit((leases) => leases.filter((lease) => formatPrefix(lease.subnet) !== '10.244.2.0/24'))
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
    const subnet = formatPrefix(agent.local!.subnet)
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

test('the MTU of the config is the underlay MTU, the same on device, file and log', async () => {
  const host = makeHost('{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":1420}}')
  const { dataplane } = await started(host)
  expect(dataplane.local?.mtuBytes).toBe(1370)
  expect(host.env()).toContain('FLANNEL_MTU=1370\n')
  expect(host.log.of('mtu-chosen')[0]?.message).toContain('underlay 1420 − overhead 50 = 1370')
})
