// The underlay's interface itself goes away, as a driver that is loaded anew takes it, and comes back under its name. With
// it the kernel takes its VTEP away; both dataplanes are back by themselves.
import { expect, test } from 'vitest'
import { attempt } from '../../src/host/command.ts'
import { type RunningDaemon, startDaemon, twoHosts } from '../support/daemon-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const BACK_WITHIN_MS = 5000
const LIMIT_MS = 3 * BACK_WITHIN_MS

test('an underlay interface that is made anew brings the overlay back, by the kernel and by our engine', async () => {
  const [first, second] = twoHosts()
  const [one, two] = [startDaemon(first, ['--dataplane', 'kernel']), startDaemon(second)]
  await Promise.all([one.ready(1), two.ready(1)])
  ip('-n', first.namespace, 'link', 'delete', 'eth0')
  const stands = ({ status }: RunningDaemon) => [status?.state, status?.peers.length, status?.pendingPeers]
  await expect.poll(() => stands(one), { timeout: LIMIT_MS, interval: 50 }).toEqual(['degraded', 1, 1])
  ip('-n', first.namespace, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', second.namespace)
  for (const { namespace, address } of [first, second]) {
    ip('-n', namespace, 'address', 'add', `${address}/24`, 'dev', 'eth0')
    ip('-n', namespace, 'link', 'set', 'eth0', 'up')
  }
  const start = performance.now()
  const ping = ['ping', '-n', '-c', '1', '-W', '0.3', two.status!.node!.overlayAddress]
  const reached = async () => (await attempt(ping, { namespace: first.namespace })).exitCode
  await expect.poll(reached, { timeout: LIMIT_MS, interval: 50 }).toBe(0)
  console.log(`back after ${((performance.now() - start) / 1000).toFixed(1)} s`)
  const back = ['ready', 1, 0]
  await expect.poll(() => [stands(one), stands(two)], { timeout: LIMIT_MS }).toEqual([back, back])
  expect(one.complaints.filter((line) => line.includes('"device-lost"')).length).toBeLessThanOrEqual(1)
})
