// What happens to etcd, to keys and to processes while daemons run: each fault has its state within its deadline, and
// costs no peer. Meanwhile a ping every 10 ms between a daemon and a VTEP that it does not concern loses nothing.
import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { answered } from '../support/answered.ts'
import type { Host, RunningDaemon } from '../support/daemon-under-test.ts'
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
  startOnEtcd,
  stateOf,
  tellKernel,
  Underlay,
} from '../support/etcd-network.ts'
import type { EtcdServer } from '../support/etcd-server.ts'
import { SteadyPing } from '../support/steady-ping.ts'

/** Peers that nobody talks to, to be changed: behind the first hundred subnets, of which daemons take theirs. */
const keyOf = (third: number) => `${PREFIX}/subnets/10.244.${third}.0-24`

const valueIn = (etcd: EtcdServer, key: string) => etcd.ctl('get', '--print-value-only', key).trimEnd()

function subnetsOf(daemon: RunningDaemon): string[] {
  return (daemon.status?.peers ?? []).map(({ subnet, publicIp, vtepMac }) => `${subnet} ${publicIp} ${vtepMac}`)
}

/** Stopped: `degraded` within 5 s, with all peers. Started: `ready` within 10 s. */
async function serverStoppedAndStarted(etcd: EtcdServer, daemons: readonly RunningDaemon[]) {
  const peers = daemons.map(subnetsOf)
  await etcd.end('SIGTERM')
  await Promise.all(daemons.map((daemon) => stateOf(daemon, 'degraded', 5000)))
  expect(daemons.map(subnetsOf)).toEqual(peers)
  etcd.run()
  await etcd.ready()
  await Promise.all(daemons.map((daemon) => stateOf(daemon, 'ready', 10_000)))
  expect(daemons.map(subnetsOf)).toEqual(peers)
}

/** Peers that nobody talks to: what their keys hold, `null` for none. */
type Peers = Readonly<Record<number, readonly [publicIp: string, mac: string] | null>>

const BEFORE: Peers = {
  201: ['192.0.2.201', '02:00:00:00:00:81'],
  202: ['192.0.2.202', '02:00:00:00:00:81'],
  203: ['192.0.2.203', '02:00:00:00:00:81'],
  204: null,
}
/** Another MAC, another address, another subnet. */
const AFTER: Peers = {
  201: ['192.0.2.201', '02:00:00:00:00:99'],
  202: ['192.0.2.212', '02:00:00:00:00:81'],
  203: null,
  204: ['192.0.2.203', '02:00:00:00:00:81'],
}

function write(etcd: EtcdServer, peers: Peers): void {
  for (const [third, peer] of Object.entries(peers)) {
    if (peer === null) etcd.ctl('del', keyOf(Number(third)))
    else etcd.ctl('put', keyOf(Number(third)), flannelValue(...peer))
  }
}

/** Known within 5 s, in place of all others of them. */
async function known(daemon: RunningDaemon, peers: Peers): Promise<void> {
  const wanted = Object.entries(peers).flatMap(([third, peer]) =>
    peer === null ? [] : `10.244.${third}.0/24 ${peer.join(' ')}`,
  )
  const seen = () => subnetsOf(daemon).filter((line) => line.startsWith('10.244.20'))
  await expect.poll(seen, { timeout: 3 * 5000, interval: 20 }).toEqual(wanted)
}

/** Cut off, while MAC, address and subnet of peers change: all of it is there within 10 s, and nobody else is lost. */
async function peersChanged(etcd: EtcdServer, place: Place, daemon: RunningDaemon, compacted: boolean) {
  write(etcd, BEFORE)
  await known(daemon, BEFORE)
  const others = subnetsOf(daemon).slice(0, 2)
  const heal = rejectEtcd(place)
  etcd.ctl('put', keyOf(201), valueIn(etcd, keyOf(201))) // a connection at rest notices nothing
  await stateOf(daemon, 'degraded', 5000)
  write(etcd, AFTER)
  if (compacted) etcd.ctl('compact', String(etcd.revision))
  await known(daemon, BEFORE)
  heal()
  await stateOf(daemon, 'ready', 10_000)
  await known(daemon, AFTER)
  expect(subnetsOf(daemon).slice(0, 2)).toEqual(others)
}

/** Said once, with the cause, and back within 5 s. */
async function ownKeyDeleted(etcd: EtcdServer, daemon: RunningDaemon) {
  const { key, value } = leaseOf(daemon)
  const peers = subnetsOf(daemon)
  expect(etcd.ctl('del', `${PREFIX}/subnets/${key}`)).toBe('1\n')
  await expect.poll(() => valueIn(etcd, `${PREFIX}/subnets/${key}`), { timeout: 3 * 5000 }).toBe(value)
  await stateOf(daemon, 'ready', 5000)
  expect(subnetsOf(daemon)).toEqual(peers)
  const said = () => daemon.complaints.filter((line) => line.includes('lease-gone')).length
  await expect.poll(said, { timeout: 3 * 5000, interval: 20 }).toBe(1)
}

/** Stopped until its etcd lease ended, then continued: the same subnet again within 10 s, since it is free. */
async function stoppedPastItsLifetime(etcd: EtcdServer, daemon: RunningDaemon) {
  const key = `${PREFIX}/subnets/${leaseOf(daemon).key}`
  const { kvs } = JSON.parse(etcd.ctl('get', key, '-w', 'json')) as { kvs: { lease: number | string }[] }
  const id = /"lease":(\d+)/.exec(etcd.ctl('get', key, '-w', 'json'))?.[1] ?? String(kvs[0]?.lease)
  const peers = subnetsOf(daemon)
  process.kill(daemon.pid, 'SIGSTOP')
  etcd.ctl('lease', 'revoke', BigInt(id).toString(16))
  expect(valueIn(etcd, key)).toBe('')
  process.kill(daemon.pid, 'SIGCONT')
  await expect.poll(() => valueIn(etcd, key), { timeout: 3 * 10_000 }).toBe(leaseOf(daemon).value)
  await stateOf(daemon, 'ready', 5000)
  expect(subnetsOf(daemon)).toEqual(peers)
}

/** Killed right after a change, started without its server: `degraded` within 5 s, with all peers but at most the last. */
async function killedAndStartedWithoutServer(etcd: EtcdServer, host: Host, daemon: RunningDaemon) {
  const peers = subnetsOf(daemon)
  const last = { 205: ['192.0.2.205', '02:00:00:00:00:81'] } as const
  write(etcd, last)
  await expect.poll(() => subnetsOf(daemon).length, { timeout: 3 * 5000, interval: 5 }).toBe(peers.length + 1)
  await daemon.end('SIGKILL')
  await etcd.end('SIGTERM')
  const again = startOnEtcd(host, [etcd])
  await stateOf(again, 'degraded', 5000)
  expect(subnetsOf(again)).toEqual(expect.arrayContaining(peers))
  expect(await answered(host.namespace, KERNEL_OVERLAY)).toBe(3)
  etcd.run()
  await etcd.ready()
  await stateOf(again, 'ready', 10_000)
  await known(again, { ...AFTER, ...last })
  return again
}

/** Lost: exit code 1 within 5 s, subnet.env gone, and the other node's key is as it was. */
async function ownKeyOverwritten(etcd: EtcdServer, host: Host, daemon: RunningDaemon) {
  const key = `${PREFIX}/subnets/${leaseOf(daemon).key}`
  const theirs = flannelValue('192.0.2.66', '02:00:00:00:00:66')
  etcd.ctl('put', key, theirs)
  const late = new Promise((resolve) => setTimeout(resolve, 3 * 5000, 'still there').unref())
  expect(await Promise.race([daemon.exited(), late])).toBe(1)
  expect(existsSync(host.subnetFile)).toBe(false)
  expect(daemon.complaints.join()).toContain('192.0.2.66')
  expect(valueIn(etcd, key)).toBe(theirs)
}

test('faults of server, keys and processes: each has its state in time, and no peer is lost', async () => {
  const { first, second, etcd, one, two } = await networkOnEtcd(new Underlay())
  const steady = new SteadyPing(second.namespace, KERNEL_OVERLAY)
  await serverStoppedAndStarted(etcd, [one, two])
  await peersChanged(etcd, first, one, false)
  await peersChanged(etcd, first, one, true)
  await ownKeyDeleted(etcd, one)
  await stoppedPastItsLifetime(etcd, one)
  await ownKeyOverwritten(etcd, first, await killedAndStartedWithoutServer(etcd, first, one))
  const { sent, lost } = await steady.end()
  expect(sent).toBeGreaterThan(200)
  expect(lost).toEqual([])
  await stateOf(two, 'ready', 10_000) // the server was away once more
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
  const steady = new SteadyPing(host.namespace, KERNEL_OVERLAY)
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
  expect(lost).toEqual([])
})
