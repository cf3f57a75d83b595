// Daemons on a real etcd: they find each other and a plain kernel VTEP, what they write is what flannel would write, and
// what happens to server, keys and processes costs no peer. While it happens a ping every 10 ms between a daemon and a
// VTEP that it does not concern loses nothing.
import { expect, test } from 'vitest'
import type { RunningDaemon } from '../support/daemon-under-test.ts'
import {
  flannelValue,
  leaseOf,
  makeKernelVtep,
  overlayAddressOf,
  type Place,
  PREFIX,
  pingLosses,
  rejectEtcd,
  SteadyPing,
  startOnEtcd,
  tellKernel,
  Underlay,
} from '../support/etcd-network.ts'
import type { EtcdServer } from '../support/etcd-server.ts'

const KERNEL_MAC = '02:00:00:00:00:4d'
const KERNEL_OVERLAY = '10.244.77.0'
/** A peer that nobody talks to, to be changed, and what it becomes. */
const keyOf = (third: number) => `${PREFIX}/subnets/10.244.${third}.0-24`

/** Two daemons and a kernel VTEP, ready. */
async function network(underlay: Underlay) {
  const [first, second, third] = [underlay.host(1), underlay.host(2), underlay.place(3)]
  const etcd = await underlay.etcd()
  etcd.ctl('put', ...makeKernelVtep(third, 77, KERNEL_MAC).lease)
  const [one, two] = [startOnEtcd(first, [etcd]), startOnEtcd(second, [etcd])]
  await Promise.all([one.ready(2), two.ready(2)])
  for (const daemon of [one, two]) tellKernel(third, daemon)
  return { first, second, third, etcd, one, two }
}

const stateOf = (daemon: RunningDaemon, state: string, limitMs: number) =>
  expect.poll(() => daemon.status?.state, { timeout: limitMs, interval: 20 }).toBe(state)

const valueIn = (etcd: EtcdServer, key: string) => etcd.ctl('get', '--print-value-only', key).trimEnd()

function subnetsOf(daemon: RunningDaemon): string[] {
  return (daemon.status?.peers ?? []).map(({ subnet, publicIp, vtepMac }) => `${subnet} ${publicIp} ${vtepMac}`)
}

test('what is written is flannel’s to the byte, and a kernel VTEP with a lease written by hand is reached', async () => {
  const { first, second, third, etcd, one, two } = await network(new Underlay())
  for (const daemon of [one, two]) {
    const { key, value } = leaseOf(daemon)
    expect(etcd.ctl('get', '--print-value-only', `${PREFIX}/subnets/${key}`)).toBe(`${value}\n`)
  }
  expect(leaseOf(one).value).toBe(flannelValue('192.0.2.1', one.status!.node!.mac))
  expect(pingLosses(first, overlayAddressOf(two))).toBe('0%')
  expect(pingLosses(second, KERNEL_OVERLAY)).toBe('0%')
  expect(pingLosses(third, overlayAddressOf(one))).toBe('0%')
  expect(one.complaints).toEqual([])
})

/** Stopped: `degraded` within 5 s. Started: `ready` within 10 s. */
async function serverStoppedAndStarted(etcd: EtcdServer, daemons: readonly RunningDaemon[]) {
  await etcd.end('SIGTERM')
  await Promise.all(daemons.map((daemon) => stateOf(daemon, 'degraded', 5000)))
  etcd.run()
  await etcd.ready()
  await Promise.all(daemons.map((daemon) => stateOf(daemon, 'ready', 10_000)))
}

/** Cut off, while MAC, address and subnet of peers change and the history is compacted: all of it is there within 10 s. */
async function peersChangedBehindCompaction(etcd: EtcdServer, place: Place, daemon: RunningDaemon) {
  for (const third of [81, 82, 83]) etcd.ctl('put', keyOf(third), flannelValue(`192.0.2.${third}`, '02:00:00:00:00:81'))
  await expect.poll(() => subnetsOf(daemon).length, { timeout: 5000, interval: 20 }).toBe(5)
  const heal = rejectEtcd(place)
  etcd.ctl('put', keyOf(81), valueIn(etcd, keyOf(81))) // a connection at rest notices nothing
  await stateOf(daemon, 'degraded', 5000)
  etcd.ctl('put', keyOf(81), flannelValue('192.0.2.81', '02:00:00:00:00:99'))
  etcd.ctl('put', keyOf(82), flannelValue('192.0.2.92', '02:00:00:00:00:81'))
  etcd.ctl('del', keyOf(83))
  etcd.ctl('put', keyOf(84), flannelValue('192.0.2.83', '02:00:00:00:00:81'))
  etcd.ctl('compact', String(etcd.revision))
  heal()
  await stateOf(daemon, 'ready', 10_000)
  await expect
    .poll(() => subnetsOf(daemon).slice(-3), { timeout: 5000, interval: 20 })
    .toEqual([
      '10.244.81.0/24 192.0.2.81 02:00:00:00:00:99',
      '10.244.82.0/24 192.0.2.92 02:00:00:00:00:81',
      '10.244.84.0/24 192.0.2.83 02:00:00:00:00:81',
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
  const { first, second, etcd, one, two } = await network(new Underlay())
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

test('restarted while the store is away: forwards from what it kept, degraded, and is ready when the store is back', async () => {
  const { first, second, etcd, one, two } = await network(new Underlay())
  const before = one.status!
  await etcd.end('SIGTERM')
  await one.end('SIGTERM')
  const again = startOnEtcd(first, [etcd])
  await stateOf(again, 'degraded', 10_000)
  expect(again.status?.node).toEqual(before.node)
  expect(pingLosses(first, overlayAddressOf(two))).toBe('0%')
  expect(pingLosses(first, KERNEL_OVERLAY)).toBe('0%')
  etcd.run()
  await etcd.ready()
  await stateOf(again, 'ready', 10_000)
  expect(again.status?.lease?.subnet).toBe(before.lease?.subnet)
  expect(pingLosses(second, overlayAddressOf(again))).toBe('0%')
})
