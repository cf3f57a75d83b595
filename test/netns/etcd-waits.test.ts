// No wait for etcd is without end: an endpoint that swallows everything costs seconds, and a signal ends a start at
// once, whatever it waits for, with the host as `--on-exit` says.
import { expect, test } from 'vitest'
import { type Host, type RunningDaemon, traceOf } from '../support/daemon-under-test.ts'
import { CONFIG, dropEtcd, flannelValue, PREFIX, startOnEtcd, stateOf, Underlay } from '../support/etcd-network.ts'
import type { EtcdServer } from '../support/etcd-server.ts'
import { ip } from '../support/own-namespace.ts'

/** From the start of the process to forwarding, milliseconds. */
const START_MS = 10_000
/** From a signal to the end, milliseconds. */
const STOP_MS = 2000

/** An endpoint from which nothing comes, no refusal either. */
function blackHole(underlay: Underlay): Pick<EtcdServer, 'url'> {
  const place = underlay.place(102)
  dropEtcd(place)
  return { url: `http://${place.address}:2379` }
}

test('a first endpoint that swallows everything costs a start less than 10 s', async () => {
  const underlay = new Underlay()
  const hole = blackHole(underlay)
  const etcd = await underlay.etcd()
  const begun = performance.now()
  const daemon = startOnEtcd(underlay.host(1), [hole, etcd])
  await expect.poll(() => daemon.status?.state, { timeout: 3 * START_MS, interval: 20 }).toBe('ready')
  console.log(`ready after ${((performance.now() - begun) / 1000).toFixed(1)} s`)
})

/** Devices, addresses, routes, subnet.env and rules. */
function lookAt(host: Host) {
  const lists = ['filter', 'nat'].map((table) => ip('netns', 'exec', host.namespace, 'iptables', '-t', table, '-S'))
  return { ...traceOf(host), rules: lists.join('').replace(/^-P.*\n/gm, '') }
}

const WAITS = ['a server that says nothing', 'a config that is gone', 'a subnet, all of which are taken', 'an answer']

test('a signal ends a start at once, whatever it waits for, and takes away what a former run left', async () => {
  const underlay = new Underlay()
  const hosts = [1, 2, 3, 4].map((last) => underlay.host(last)) as [Host, Host, Host, Host]
  const before = hosts.map(lookAt)
  const hole = blackHole(underlay)
  const etcd = await underlay.etcd()
  const remove = ['--on-exit', 'remove']

  const former = startOnEtcd(hosts[1], [etcd], ['--etcd-prefix', '/gone', '--on-exit', 'keep'])
  etcd.ctl('put', '/gone/config', CONFIG)
  await former.ready(0)
  await former.end('SIGTERM')
  const left = lookAt(hosts[1])
  expect([left.links.includes('flannel.1'), left.rules.includes('FLANNEL'), left.subnetFile]).toEqual([
    true,
    true,
    expect.any(String),
  ])
  etcd.ctl('del', '/gone/config')
  etcd.ctl('put', '/full/config', '{"Network":"10.244.0.0/28","Backend":{"Type":"vxlan"}}')
  for (const last of [4, 8, 12]) {
    etcd.ctl('put', `/full/subnets/10.244.0.${last}-30`, flannelValue(`192.0.2.${100 + last}`, '02:00:00:00:00:81'))
  }

  const daemons = [
    startOnEtcd(hosts[0], [hole], remove),
    startOnEtcd(hosts[1], [etcd], ['--etcd-prefix', '/gone', ...remove]),
    startOnEtcd(hosts[2], [etcd], ['--etcd-prefix', '/full', ...remove]),
  ]
  const heard = (daemon: RunningDaemon | undefined, event: string) =>
    expect.poll(() => daemon?.output, { timeout: 20_000, interval: 10 }).toContain(`"event":"${event}"`)
  await stateOf(daemons[0]!, 'starting', 20_000)
  await Promise.all([heard(daemons[1], 'config-missing'), heard(daemons[2], 'lease-unavailable')])
  daemons.push(startOnEtcd(hosts[3], [etcd], ['--etcd-prefix', PREFIX, ...remove]))
  await heard(daemons[3], 'underlay-chosen')
  etcd.freeze()

  const ends = await Promise.all(daemons.map((daemon) => daemon.end('SIGTERM')))
  for (const [index, wait] of WAITS.entries()) {
    const { exitCode, milliseconds } = ends[index]!
    console.log(`waiting for ${wait}: ended after ${milliseconds.toFixed(0)} ms`)
    expect([wait, exitCode, daemons[index]!.told, lookAt(hosts[index]!)]).toEqual([wait, 0, [], before[index]])
    expect(milliseconds).toBeLessThan(3 * STOP_MS)
  }
})
