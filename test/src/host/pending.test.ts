// What every dataplane calls pending: the subnets that packets are not sent to, each with its reason. The userspace
// engine, which needs a device, is asked the same in test/netns/device-loss.test.ts.
import { describe, expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { DirectRouting } from '../../../src/daemon/direct-routing.ts'
import { FamilyDataplanes } from '../../../src/daemon/family-dataplanes.ts'
import { countPending } from '../../../src/daemon/pending-peers.ts'
import type { Dataplane, LocalVtep } from '../../../src/host/dataplane.ts'
import { HostGateway } from '../../../src/host/host-gateway.ts'
import { KernelVtep } from '../../../src/host/kernel-vtep.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { silentLog } from '../../../src/log.ts'
import { FakeRouteTable } from '../../support/fake-route-table.ts'
import { ip, ip6 } from '../../support/packets.ts'
import { dualLease, POD_NETWORKS, peerLease } from '../../support/peer-lease.ts'
import { RecordingTables } from '../../support/recording-tables.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const HOST2 = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02', 'fd00:10:244:2::/64')
const HOST3 = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')
const LOCAL: LocalVtep = {
  ...{ encapsulation: 'vxlan', deviceName: 'flannel.1', vni: 1, port: 8472, mac: 4, mtuBytes: 1450 },
  ...{ underlayInterface: 'eth0', underlayAddress: ip('192.0.2.1'), overlayAddress: ip('10.244.1.0') },
  ...POD_NETWORKS,
  ...{ subnet: parsePrefix('10.244.1.0/24'), ipv6Subnet: parseIpv6Prefix('fd00:10:244:1::/64') },
}
const IPV6_DEVICE = { deviceName: 'flannel-v6.1', underlayAddress: ip6('2001:db8::1'), mtuBytes: 1430, mac: 6 }
const UNDERLAY_GONE = 'the underlay address is gone'
const NO_SPACE = 'No buffer space available'
const NO_NEIGHBOUR = '192.0.2.2 is no neighbour on eth0 (Nexthop has invalid gateway.)'

interface Scene {
  readonly dataplane: Dataplane
  readonly peers: readonly Lease[]
  readonly local: LocalVtep
  /** HOST2's IPv4 subnet cannot be programmed. */
  readonly refuse: () => void
  readonly why: string
}

/** Addresses that the host has lost. */
type Lost = Set<number | bigint>

const carriesAllBut = (lost: Lost) => (_name: string, address: number | bigint) => !lost.has(address)
const refusing = (tables: RecordingTables) => () => {
  tables.refuses = (command) => command.startsWith('route') && command.includes('10.244.2.0')
}

function kernel(lost: Lost): Scene {
  const tables = new RecordingTables()
  const dataplane = new KernelVtep({
    log: silentLog,
    tables,
    clock: new VirtualClock(),
    carries: carriesAllBut(lost),
  })
  return { dataplane, peers: [HOST2, HOST3], local: LOCAL, refuse: refusing(tables), why: NO_SPACE }
}

function routeTools(lost: Lost) {
  const table = new FakeRouteTable()
  const doorbell = () => ({ stop: () => {} })
  return { table, log: silentLog, clock: new VirtualClock(), doorbell, carries: carriesAllBut(lost) }
}

function hostGateway(lost: Lost): Scene {
  const tools = routeTools(lost)
  const refuse = () => void tools.table.ways.set('192.0.2.2', { gateway: '192.0.2.254' })
  const local = { ...LOCAL, ipv6Network: null, ipv6Subnet: null }
  return { dataplane: new HostGateway(tools), peers: [HOST2, HOST3], local, refuse, why: NO_NEIGHBOUR }
}

/** HOST2 is behind a router and takes the tunnel. */
function directRouting(lost: Lost): Scene {
  const [tools, inner] = [routeTools(lost), kernel(lost)]
  tools.table.ways.set('192.0.2.2', { gateway: '192.0.2.254' })
  return { ...inner, dataplane: new DirectRouting(inner.dataplane, tools), local: { ...LOCAL, directRouting: true } }
}

/** The first is that of IPv4. */
function twoTunnels(lost: Lost): Scene {
  const parts: Scene[] = []
  const dataplane = new FamilyDataplanes(() => {
    parts.push(kernel(lost))
    return parts.at(-1)!.dataplane
  })
  const local = { ...LOCAL, ipv6Device: IPV6_DEVICE }
  return { dataplane, peers: [dualLease(2), dualLease(3)], local, refuse: () => parts[0]!.refuse(), why: NO_SPACE }
}

const IPV4 = ['10.244.2.0/24', '10.244.3.0/24']
const OVER_IPV4 = ['10.244.2.0/24', 'fd00:10:244:2::/64', '10.244.3.0/24']

async function started({ dataplane, local }: Scene) {
  await dataplane.prepare(local)
  await dataplane.start(local)
}

describe.each([
  ['the kernel’s VTEP', kernel, OVER_IPV4],
  ['host-gw', hostGateway, IPV4],
  ['direct routing', directRouting, OVER_IPV4],
  ['two tunnels', twoTunnels, IPV4],
] as const)('with %s', (_, make, carried) => {
  test('nothing is pending where all is well, nor before the start', async () => {
    const scene = make(new Set())
    expect(scene.dataplane.pendingSubnets().size).toBe(0)
    await started(scene)
    await scene.dataplane.replacePeers(scene.peers, 'test')
    expect([scene.dataplane.pendingSubnets().size, scene.dataplane.impairment()]).toEqual([0, null])
  })

  test('a subnet that the host refuses is, with the host’s own reason, and its peer counts', async () => {
    const scene = make(new Set())
    await started(scene)
    scene.refuse()
    await scene.dataplane.replacePeers(scene.peers, 'test')
    const pending = scene.dataplane.pendingSubnets()
    expect(Object.fromEntries(pending)).toEqual({ '10.244.2.0/24': scene.why })
    expect(countPending(scene.peers, pending)).toBe(1)
  })

  test('all that the underlay address leads to are while it is away', async () => {
    const lost: Lost = new Set()
    const scene = make(lost)
    await started(scene)
    await scene.dataplane.replacePeers(scene.peers, 'test')
    lost.add(ip('192.0.2.1'))
    const pending = scene.dataplane.pendingSubnets()
    expect([...pending]).toEqual(carried.map((subnet) => [subnet, UNDERLAY_GONE]))
    expect([countPending(scene.peers, pending), scene.dataplane.impairment()]).toEqual([2, UNDERLAY_GONE])
    lost.clear()
    expect(scene.dataplane.pendingSubnets().size).toBe(0)
  })
})

test('a peer that is reached past the tunnel does not need the device', async () => {
  const lost: Lost = new Set()
  const scene = directRouting(lost)
  await started(scene)
  await scene.dataplane.replacePeers(scene.peers, 'test')
  lost.add(ip('10.244.1.0'))
  expect([...scene.dataplane.pendingSubnets().keys()]).toEqual(['10.244.2.0/24', 'fd00:10:244:2::/64'])
})

test('peers that wait in one of two tunnels each are counted one by one, and one that waits in both once', async () => {
  const lost: Lost = new Set()
  const scene = twoTunnels(lost)
  await started(scene)
  scene.refuse()
  await scene.dataplane.replacePeers([dualLease(2), { ...dualLease(3), ipv6Subnet: null }], 'test')
  lost.add(ip6('2001:db8::1'))
  const count = () => countPending(scene.peers, scene.dataplane.pendingSubnets())
  expect([[...scene.dataplane.pendingSubnets().keys()], count()]).toEqual([['10.244.2.0/24', 'fd00:10:244:2::/64'], 1])
  await scene.dataplane.replacePeers(scene.peers, 'test')
  expect([scene.dataplane.pendingSubnets().size, count()]).toEqual([3, 2])
})
