// Daemons on a real etcd: they find each other and a plain kernel VTEP, and what they write is what flannel would write.
import { expect, test } from 'vitest'
import {
  flannelValue,
  leaseOf,
  makeKernelVtep,
  overlayAddressOf,
  PREFIX,
  SteadyPing,
  startOnEtcd,
  tellKernel,
  Underlay,
} from '../support/etcd-network.ts'
import { ip } from '../support/own-namespace.ts'

function ping(namespace: string, address: string): string {
  return ip('netns', 'exec', namespace, 'ping', '-n', '-c', '3', '-i', '0.05', '-W', '2', address)
}

test('two daemons and a kernel VTEP with a lease written by hand reach each other; leases are flannel’s to the byte', async () => {
  const underlay = new Underlay()
  const [first, second, third] = [underlay.host(1), underlay.host(2), underlay.place(3)]
  const etcd = await underlay.etcd()
  const kernel = makeKernelVtep(third, 77, '02:00:00:00:00:77')
  etcd.ctl('put', ...kernel.lease)
  const [one, two] = [startOnEtcd(first, [etcd]), startOnEtcd(second, [etcd])]
  await Promise.all([one.ready(2), two.ready(2)])
  for (const daemon of [one, two]) {
    const { key, value } = leaseOf(daemon)
    expect(etcd.ctl('get', '--print-value-only', `${PREFIX}/subnets/${key}`)).toBe(`${value}\n`)
    tellKernel(third, daemon)
  }
  expect(leaseOf(one).value).toBe(flannelValue('192.0.2.1', one.status!.node!.mac))
  expect(ping(first.namespace, overlayAddressOf(two))).toContain(' 0% packet loss')
  expect(ping(first.namespace, '10.244.77.0')).toContain(' 0% packet loss')
  expect(ping(third.namespace, overlayAddressOf(two))).toContain(' 0% packet loss')
  expect(one.complaints).toEqual([])
})

test('etcd stopped and started: the daemon is degraded, then ready again, and no packet of its peers is lost', async () => {
  const underlay = new Underlay()
  const [first, second] = [underlay.host(1), underlay.host(2)]
  const etcd = await underlay.etcd()
  const [one, two] = [startOnEtcd(first, [etcd]), startOnEtcd(second, [etcd])]
  await Promise.all([one.ready(1), two.ready(1)])
  const steady = new SteadyPing(first, overlayAddressOf(two))
  await etcd.end('SIGTERM')
  await expect.poll(() => one.status?.state, { timeout: 5000 }).toBe('degraded')
  etcd.run()
  await etcd.ready()
  await expect.poll(() => one.status?.state, { timeout: 10_000 }).toBe('ready')
  expect(one.status?.peers).toHaveLength(1)
  const { sent, lost } = await steady.end()
  expect(sent).toBeGreaterThan(50)
  expect(lost).toBe(0)
})
