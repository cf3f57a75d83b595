// Daemons on a real etcd: they find each other and a plain kernel VTEP, what they write is what flannel would write,
// and one that starts while etcd is away forwards all the same. Faults at more length:
// test/long/etcd-faults.long.test.ts.
import { expect, test } from 'vitest'
import { answered } from '../support/answered.ts'
import {
  flannelValue,
  KERNEL_OVERLAY,
  leaseOf,
  networkOnEtcd,
  overlayAddressOf,
  PREFIX,
  startOnEtcd,
  stateOf,
  Underlay,
} from '../support/etcd-network.ts'

/** From bytes that are no lease on the own key to the lease, milliseconds. */
const REWRITE_MS = 2000

test('leases are flannel’s to the byte, also after rubbish on their key; one written by hand is reached, also after a start without etcd', async () => {
  const { first, second, third, etcd, one, two } = await networkOnEtcd(new Underlay())
  for (const daemon of [one, two]) {
    const { key, value } = leaseOf(daemon)
    expect(etcd.ctl('get', '--print-value-only', `${PREFIX}/subnets/${key}`)).toBe(`${value}\n`)
  }
  expect(leaseOf(one).value).toBe(flannelValue('192.0.2.1', one.status!.node!.mac))
  expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)
  expect(await answered(second.namespace, KERNEL_OVERLAY)).toBe(3)
  expect(await answered(third.namespace, overlayAddressOf(one))).toBe(3)
  expect(one.complaints).toEqual([])

  const { key, value } = leaseOf(two)
  etcd.ctl('put', `${PREFIX}/subnets/${key}`, 'rubbish')
  const stored = () => etcd.ctl('get', '--print-value-only', `${PREFIX}/subnets/${key}`)
  await expect.poll(stored, { timeout: 3 * REWRITE_MS, interval: 50 }).toBe(`${value}\n`)
  const told = () => two.complaints.filter((line) => line.includes('"lease-overwritten"'))
  await expect.poll(told).toHaveLength(1)
  expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)

  const before = one.status!
  await etcd.end('SIGTERM')
  await one.end('SIGTERM')
  const again = startOnEtcd(first, [etcd])
  await stateOf(again, 'degraded', 10_000)
  expect(again.status?.node).toEqual(before.node)
  expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)
  expect(await answered(first.namespace, KERNEL_OVERLAY)).toBe(3)
  etcd.run()
  await etcd.ready()
  await stateOf(again, 'ready', 10_000)
  expect(again.status?.lease?.subnet).toBe(before.lease?.subnet)
})
