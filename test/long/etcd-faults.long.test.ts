// What happens to etcd, to keys and to processes while daemons run: each fault has its state within its deadline, and
// costs no peer. Meanwhile a ping every 10 ms between a daemon and a VTEP that it does not concern loses nothing.
import { expect, test } from 'vitest'
import type { RunningDaemon } from '../support/daemon-under-test.ts'
import {
  cutPeers,
  dropEtcd,
  etcdPeersOf,
  flannelValue,
  KERNEL_OVERLAY,
  leaseOf,
  makeKernelVtep,
  networkOnEtcd,
  type Place,
  PREFIX,
  rejectEtcd,
  SteadyPing,
  startOnEtcd,
  stateOf,
  tellKernel,
  Underlay,
} from '../support/etcd-network.ts'
import type { EtcdServer } from '../support/etcd-server.ts'

/** Peers that nobody talks to, to be changed: behind the first hundred subnets, of which daemons take theirs. */
const keyOf = (third: number) => `${PREFIX}/subnets/10.244.${third}.0-24`

const valueIn = (etcd: EtcdServer, key: string) => etcd.ctl('get', '--print-value-only', key).trimEnd()

function subnetsOf(daemon: RunningDaemon): string[] {
  return (daemon.status?.peers ?? []).map(({ subnet, publicIp, vtepMac }) => `${subnet} ${publicIp} ${vtepMac}`)
}

/** Stopped: `degraded` within 5 s. Started: `ready` within 10 s. */
async function serverStoppedAndStarted(etcd: EtcdServer, daemons: readonly RunningDaemon[]) {
  await etcd.end('SIGTERM')
  await Promise.all(daemons.map((daemon) => stateOf(daemon, 'degraded', 5000)))
  etcd.run()
  await etcd.ready()
  await Promise.all(daemons.map((daemon) => stateOf(daemon, 'ready', 10_000)))
}

/**
 * Cut off, while MAC, address and subnet of peers change and the history is compacted: all of it is there within 10 s.
 */
async function peersChangedBehindCompaction(etcd: EtcdServer, place: Place, daemon: RunningDaemon) {
  for (const third of [201, 202, 203])
    etcd.ctl('put', keyOf(third), flannelValue(`192.0.2.${third}`, '02:00:00:00:00:81'))
  await expect.poll(() => subnetsOf(daemon).length, { timeout: 5000, interval: 20 }).toBe(5)
  const heal = rejectEtcd(place)
  etcd.ctl('put', keyOf(201), valueIn(etcd, keyOf(201))) // a connection at rest notices nothing
  await stateOf(daemon, 'degraded', 5000)
  etcd.ctl('put', keyOf(201), flannelValue('192.0.2.201', '02:00:00:00:00:99'))
  etcd.ctl('put', keyOf(202), flannelValue('192.0.2.212', '02:00:00:00:00:81'))
  etcd.ctl('del', keyOf(203))
  etcd.ctl('put', keyOf(204), flannelValue('192.0.2.203', '02:00:00:00:00:81'))
  etcd.ctl('compact', String(etcd.revision))
  heal()
  await stateOf(daemon, 'ready', 10_000)
  await expect
    .poll(() => subnetsOf(daemon).slice(-3), { timeout: 5000, interval: 20 })
    .toEqual([
      '10.244.201.0/24 192.0.2.201 02:00:00:00:00:99',
      '10.244.202.0/24 192.0.2.212 02:00:00:00:00:81',
      '10.244.204.0/24 192.0.2.203 02:00:00:00:00:81',
    ])
}

/** Said once, with the cause, and back within 5 s. */
async function ownKeyDeleted(etcd: EtcdServer, daemon: RunningDaemon) {
  const { key, value } = leaseOf(daemon)
  expect(etcd.ctl('del', `${PREFIX}/subnets/${key}`)).toBe('1\n')
  await expect.poll(() => valueIn(etcd, `${PREFIX}/subnets/${key}`), { timeout: 5000 }).toBe(value)
  await stateOf(daemon, 'ready', 5000)
  const said = () => daemon.complaints.filter((line) => line.includes('lease-gone')).length
  await expect.poll(said, { timeout: 5000, interval: 20 }).toBe(1)
}

/** Stopped until its etcd lease ended, then continued: the same subnet again within 10 s, since it is free. */
async function stoppedPastItsLifetime(etcd: EtcdServer, daemon: RunningDaemon) {
  const key = `${PREFIX}/subnets/${leaseOf(daemon).key}`
  const { kvs } = JSON.parse(etcd.ctl('get', key, '-w', 'json')) as { kvs: { lease: number | string }[] }
  const id = /"lease":(\d+)/.exec(etcd.ctl('get', key, '-w', 'json'))?.[1] ?? String(kvs[0]?.lease)
  process.kill(daemon.pid, 'SIGSTOP')
  etcd.ctl('lease', 'revoke', BigInt(id).toString(16))
  expect(valueIn(etcd, key)).toBe('')
  process.kill(daemon.pid, 'SIGCONT')
  await expect.poll(() => valueIn(etcd, key), { timeout: 10_000 }).toBe(leaseOf(daemon).value)
}

/** Lost: exit code 1, subnet.env gone, and the other node's key is as it was. */
async function ownKeyOverwritten(etcd: EtcdServer, daemon: RunningDaemon) {
  const key = `${PREFIX}/subnets/${leaseOf(daemon).key}`
  const theirs = flannelValue('192.0.2.66', '02:00:00:00:00:66')
  etcd.ctl('put', key, theirs)
  expect(await daemon.exited()).toBe(1)
  expect(daemon.complaints.join()).toContain('192.0.2.66')
  expect(valueIn(etcd, key)).toBe(theirs)
}

test('faults of server, keys and processes: each has its state in time, and no peer is lost', async () => {
  const { first, second, etcd, one, two } = await networkOnEtcd(new Underlay())
  const steady = new SteadyPing(second, KERNEL_OVERLAY)
  await serverStoppedAndStarted(etcd, [one, two])
  await peersChangedBehindCompaction(etcd, first, one)
  await ownKeyDeleted(etcd, one)
  await stoppedPastItsLifetime(etcd, one)
  await ownKeyOverwritten(etcd, one)
  const { sent, lost } = await steady.end()
  expect(sent).toBeGreaterThan(200)
  expect(lost).toBe(0)
  expect(two.status?.state).toBe('ready')
})

/** How long until a lease that was written to the others is a peer, and the daemon ready. */
async function untilNews(daemon: RunningDaemon, others: readonly EtcdServer[], third: number): Promise<number> {
  const start = performance.now()
  const write = () => {
    try {
      others[0]!.ctl('put', keyOf(third), flannelValue(`192.0.2.${third}`, '02:00:00:00:00:81'))
      return true
    } catch {
      return false // an election takes its time
    }
  }
  await expect.poll(write, { timeout: 20_000, interval: 100 }).toBe(true)
  const seen = () => subnetsOf(daemon).some((line) => line.startsWith(`10.244.${third}.0/24`))
  await expect.poll(seen, { timeout: 3 * FAILOVER_MS, interval: 20 }).toBe(true)
  await stateOf(daemon, 'ready', 5000)
  return performance.now() - start
}

const FAILOVER_MS = 45_000

test.each([
  ['killed', (member: EtcdServer) => member.end()],
  ['frozen', (member: EtcdServer) => member.freeze()],
  ['cut off from its cluster', (_: EtcdServer, place: Place) => cutPeers(place)],
  ['unreachable without a word', (_: EtcdServer, place: Place) => dropEtcd(place)],
] as const)('the member that daemons use is %s: news come by another within 45 s', async (name, strike) => {
  const underlay = new Underlay()
  const [host, kernel] = [underlay.host(1), underlay.place(3)]
  const { servers, places } = await underlay.cluster()
  servers[0]!.ctl('put', ...makeKernelVtep(kernel, 77, '02:00:00:00:00:4d').lease)
  const daemon = startOnEtcd(host, servers)
  await daemon.ready(1)
  tellKernel(kernel, daemon)
  const steady = new SteadyPing(host, KERNEL_OVERLAY)
  const used = places.findIndex(({ address }) => etcdPeersOf(host).includes(address))
  expect(used).toBeGreaterThanOrEqual(0)
  await strike(servers[used]!, places[used]!)
  const others = servers.filter((_, index) => index !== used)
  const ms = await untilNews(daemon, others, 201)
  console.log(`member ${name}: news after ${(ms / 1000).toFixed(1)} s`)
  expect(ms).toBeLessThan(3 * FAILOVER_MS)
  expect(subnetsOf(daemon)).toHaveLength(2)
  await new Promise((resolve) => setTimeout(resolve, 1000))
  const { sent, lost } = await steady.end()
  expect(sent).toBeGreaterThan(50)
  expect(lost).toBe(0)
})
