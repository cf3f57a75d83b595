// The userspace dataplane with its parts played: no device, no socket, no worker is real. What these do together on a real
// host is in test/netns.
import { beforeEach, expect, test, vi } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { UserspaceDataplane, type UserspaceOptions } from '../../../src/daemon/userspace-dataplane.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { FakeRouteTable } from '../../support/fake-route-table.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

/** What happens to sockets and workers, in order, and what is refused. */
const host = vi.hoisted(() => ({
  ...{ said: [] as string[], startsWorkers: true, takesTable: true, underlay: 0 },
  unseen: null as string | null,
}))

vi.mock('../../../dataplane/index.ts', async (original) => {
  const start = async ({ underlayAddress }: { underlayAddress: number }) => {
    host.underlay = underlayAddress
    await new Promise((resolve) => setImmediate(resolve))
    if (!host.startsWorkers) throw new Error('no worker can be started')
    host.said.push('workers')
    return {
      stop: async () => void host.said.push('no workers'),
      replaceTable: async () => {
        if (!host.takesTable) throw new Error('the worker died')
        return 7
      },
    }
  }
  return { ...(await original<object>()), WorkerGroup: { start } }
})
vi.mock('../../../src/host/capability.ts', () => ({ requireNetworkAdmin: () => {} }))
vi.mock('../../../src/host/network-overlap.ts', async (original) => {
  return { ...(await original<object>()), refuseNetworkOverlap: async () => {} }
})
vi.mock('../../../src/daemon/changeover.ts', () => ({ findOwnVtep: async () => false }))
vi.mock('../../../src/daemon/driver-features.ts', () => ({
  findFeatures: async () => ({ maxSegments: 1, features: [] }),
}))
vi.mock('../../../src/daemon/overlay-device.ts', () => ({
  dress: async () => {},
  refuseGroupPolicy: () => {},
  transmitDropped: () => 0,
}))
vi.mock('../../../src/daemon/underlay-sockets.ts', () => ({
  openSockets: async () => {
    host.said.push('sockets')
    return { receiving: [{}], sendingFds: [], rawPorts: null }
  },
  closeSockets: async () => void host.said.push('no sockets'),
  socketsOfWorker: () => ({}),
  entropyOf: () => 'none',
}))
vi.mock('../../../src/daemon/tended-device.ts', () => ({
  TendedDevice: class {
    queues = [{ fd: -1, offloads: [] }]
    open = async () => {}
    keep = async () => {}
    close = async () => {}
    mend = async () => host.unseen === null
    get unseen() {
      return host.unseen
    }
    impairment = () => null
  },
}))
vi.mock('../../../src/daemon/worker-books.ts', () => ({
  WorkerBooks: class {
    begin() {}
    open() {}
    close() {}
    counters = () => ({})
  },
}))
vi.mock('../../../src/host/carried-address.ts', () => ({ carriesAddress: () => true }))

const LOCAL = {
  ...{ deviceName: 'flannel.1', vni: 1, port: 8472, mtuBytes: 1450, mac: 1, encapsulation: 'vxlan' },
  ...{ underlayInterface: 'eth0', underlayAddress: parseIpv4('192.0.2.1')!, overlayAddress: parseIpv4('10.244.1.0')! },
  ...{
    network: parsePrefix('10.244.0.0/16')!,
    subnet: parsePrefix('10.244.1.0/24'),
    ipv6Network: null,
    ipv6Subnet: null,
  },
} as unknown as LocalVtep
const MOVED = { ...LOCAL, underlayAddress: parseIpv4('192.0.2.99')! }
const PEERS = [peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')]

beforeEach(() => {
  Object.assign(host, { said: [], startsWorkers: true, takesTable: true, unseen: null })
})

async function forwarding() {
  const [clock, log] = [new VirtualClock(), new RecordingLog()]
  const tools = { log, clock, table: new FakeRouteTable(), doorbell: () => ({ stop: () => {} }) }
  const dataplane = new UserspaceDataplane({ tools, driver: 'offload', workers: 1 } as unknown as UserspaceOptions)
  await dataplane.prepare(LOCAL)
  await dataplane.start(LOCAL)
  await dataplane.replacePeers(PEERS, 'test')
  host.said.length = 0
  const pending = () => Object.fromEntries(dataplane.pendingSubnets())
  return { dataplane, clock, pending }
}

test('a move stops the old workers before their sockets go, and begins on new ones', async () => {
  const { dataplane, pending } = await forwarding()
  await dataplane.moveUnderlay(MOVED)
  expect(host.said).toEqual(['sockets', 'no workers', 'no sockets', 'workers'])
  expect([pending(), dataplane.impairment()]).toEqual([{}, null])
})

test('peers that change during a move are taken once it is over', async () => {
  const { dataplane, pending } = await forwarding()
  const moved = dataplane.moveUnderlay(MOVED)
  await expect.poll(() => host.said).toContain('no workers')
  expect(await dataplane.replacePeers([], 'a peer left')).toBe(7)
  await moved
  expect([host.said, pending()]).toEqual([['sockets', 'no workers', 'no sockets', 'workers'], {}])
})

test('after a move that failed half-way nothing is sent: every peer is pending, until one succeeds', async () => {
  const { dataplane, clock, pending } = await forwarding()
  host.startsWorkers = false
  await expect(dataplane.moveUnderlay(MOVED)).rejects.toThrow('no worker can be started')
  await clock.advance(3000)
  const why = 'the engine stands still: it could not go on with another underlay address'
  expect([dataplane.impairment(), pending()]).toEqual([why, { '10.244.2.0/24': why }])
  host.startsWorkers = true
  await dataplane.moveUnderlay(MOVED)
  expect([dataplane.impairment(), pending()]).toEqual([null, {}])
})

test('it goes on by itself where it was, should that be possible before the next move', async () => {
  const { dataplane, clock, pending } = await forwarding()
  host.startsWorkers = false
  await expect(dataplane.moveUnderlay(MOVED)).rejects.toThrow()
  await clock.advance(2000)
  host.startsWorkers = true
  host.said.length = 0
  await clock.advance(1000)
  expect([host.said, dataplane.impairment(), pending()]).toEqual([['sockets', 'workers'], null, {}])
  expect(host.underlay).toBe(LOCAL.underlayAddress)
})

test('workers that do not take the table of a move end before their sockets are closed', async () => {
  const { dataplane } = await forwarding()
  host.takesTable = false
  await expect(dataplane.moveUnderlay(MOVED)).rejects.toThrow('the worker died')
  expect(host.said.slice(3)).toEqual(['workers', 'no workers', 'no sockets'])
  expect(dataplane.impairment()).not.toBeNull()
})

test('looks end with a stop, and a second stop does no harm', async () => {
  const { dataplane, clock } = await forwarding()
  await dataplane.stop('keep')
  await dataplane.stop('keep')
  await clock.advance(120_000)
  expect(host.said).toEqual(['no workers', 'no sockets'])
})

test('a device that cannot be looked at is told with the reason, and looked at again by itself', async () => {
  const { dataplane, clock } = await forwarding()
  expect(dataplane.unseen()).toBeNull()
  host.unseen = 'EMFILE: too many open files'
  await dataplane.replacePeers(PEERS, 'test')
  await clock.advance(1000)
  expect(dataplane.unseen()).toBe('EMFILE: too many open files')
  host.unseen = null
  await clock.advance(10_000)
  expect(dataplane.unseen()).toBeNull()
})
