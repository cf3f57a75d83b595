// A node that forwards by the kernel after a restart, or by our engine, or by whatever `auto` takes: it stays the same
// node to its peers and its pods, and nothing of the former way stays behind.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { attempt } from '../../src/host/command.ts'
import { numbersTo, pingsIn, pingWords } from '../support/answered.ts'
import {
  CONFIG,
  daemonWords,
  type Host,
  RunningDaemon,
  startDaemon,
  traceOf,
  twoHosts,
  writeConfig,
} from '../support/daemon-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const PINGS = 3

const kindOf = ({ namespace }: Host) =>
  (JSON.parse(ip('-n', namespace, '-json', '-details', 'link', 'show', 'flannel.1')) as [{ linkinfo: object }])[0]
    .linkinfo

const identityOf = (host: Host, daemon: RunningDaemon) => ({
  subnet: daemon.status?.lease?.subnet,
  mac: daemon.status?.node?.mac,
  file: readFileSync(host.subnetFile, 'utf8'),
})

async function expectReached(from: Host, daemon: RunningDaemon): Promise<void> {
  const words = ['ping', '-n', '-c', '1', '-W', '1', daemon.status!.node!.overlayAddress]
  await expect
    .poll(async () => (await attempt(words, { namespace: from.namespace })).exitCode, { timeout: 30_000 })
    .toBe(0)
}

test('a node changes its dataplane with a restart, and keeps lease, MAC and subnet.env', async () => {
  const [host, other] = twoHosts()
  const peer = startDaemon(other, ['--dataplane', 'kernel'])
  let daemon = startDaemon(host)
  await Promise.all([peer.ready(1), daemon.ready(1)])
  await expectReached(other, daemon)
  const before = identityOf(host, daemon)
  const steps = [
    ['auto', 'kernel', 'vxlan', ['flannel.1 did not fit and is made anew']],
    ['userspace', 'userspace', 'tun', ["flannel.1 was the kernel's VTEP and becomes a TUN"]],
  ] as const
  for (const [asked, kind, device, said] of steps) {
    expect((await daemon.end('SIGTERM')).exitCode).toBe(0)
    daemon = startDaemon(host, ['--dataplane', asked])
    await daemon.ready(1)
    expect(identityOf(host, daemon)).toEqual(before)
    expect(daemon.status).toMatchObject({
      dataplane: kind,
      dataplaneWhy: asked === 'auto' ? 'auto: this kernel has vxlan devices' : null,
    })
    expect(kindOf(host)).toMatchObject({ info_kind: device })
    expect(daemon.complaints).toEqual(said.map((words) => expect.stringContaining(words)))
    await expectReached(other, daemon)
  }
  expect(traceOf(host).routes).toEqual([
    expect.stringContaining('10.244.0.0/16 dev flannel.1 proto 142'),
    expect.stringContaining('192.0.2.0/24 dev eth0'),
  ])
})

test('a device of the other kind is left alone by a daemon that cannot start', async () => {
  const [host] = twoHosts()
  const former = startDaemon(host, ['--dataplane', 'kernel'])
  await former.ready(0)
  await former.end('SIGTERM')
  const before = traceOf(host)
  writeConfig(host.store, { ...CONFIG, Backend: { ...CONFIG.Backend, GBP: true } })
  const refused = startDaemon(host)
  expect(await refused.exited()).toBe(2)
  expect(refused.told.join()).toContain('Backend.GBP is true, and only the kernel sees the marks of packets')
  expect(traceOf(host)).toEqual(before)
})

test('a userspace daemon that runs is not robbed of its device, not even by one that cannot see it', async () => {
  const [host] = twoHosts()
  const running = startDaemon(host)
  await running.ready(0)
  const places = { stateDirectory: `${host.stateDirectory}2`, subnetFile: `${host.subnetFile}2` }
  const words = daemonWords({ ...host, ...places }, ['--dataplane', 'kernel'])
  const apart = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs tmpfs /run/flannelette && exec "$@"', 'apart']
  for (const [start, why] of [
    [words, 'flannel.1 is the device of another daemon of this host'],
    [[...apart, ...words], 'flannel.1 is held by another process'],
  ] as const) {
    const second = new RunningDaemon(host, start)
    expect(await second.exited()).toBe(1)
    expect(second.told.join()).toContain(why)
    expect(kindOf(host)).toMatchObject({ info_kind: 'tun' })
  }
})

test('marks of packets cross between nodes whose config has GBP, and learning is the kernel’s', async () => {
  const [host, other] = twoHosts()
  writeConfig(host.store, { ...CONFIG, Backend: { ...CONFIG.Backend, GBP: true, Learning: true } })
  const daemons = [startDaemon(host, ['--dataplane', 'kernel']), startDaemon(other, ['--dataplane', 'auto'])]
  await Promise.all(daemons.map((daemon) => daemon.ready(1)))
  expect(kindOf(other)).toMatchObject({ info_data: { gbp: true, learning: true, udp_csum: true } })
  const namespace = other.namespace
  const rule = (words: string) => attempt(['iptables', ...words.split(' ')], { namespace })
  await rule('-A INPUT -i flannel.1 -m mark --mark 0x234 -p icmp')
  const words = pingWords(daemons[1]!.status!.node!.overlayAddress, PINGS, ['-m', '564'])
  const { sent, answered } = pingsIn((await attempt(words, { namespace: host.namespace, timeoutMs: 60_000 })).stdout)
  expect(answered).toEqual(numbersTo(PINGS))
  const listed = async () => (await rule('-L INPUT -v -n -x')).stdout
  await expect.poll(listed).toMatch(new RegExp(`^ +${sent} .*mark match 0x234`, 'm'))
})

test('an MTU that the underlay has no room for is what the kernel makes of it, at every start', async () => {
  const [host] = twoHosts()
  writeConfig(host.store, { ...CONFIG, Backend: { ...CONFIG.Backend, MTU: 1600 } })
  for (let start = 0; start < 2; start++) {
    const daemon = startDaemon(host, ['--dataplane', 'kernel'])
    await daemon.ready(0)
    expect(ip('-n', host.namespace, 'link', 'show', 'flannel.1')).toContain(' mtu 1450 ')
    expect(daemon.complaints).toEqual([expect.stringContaining('Backend.MTU 1600 is larger than the interface')])
    await daemon.end('SIGTERM')
  }
})
