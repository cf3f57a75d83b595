// The overlay device is taken from a running daemon, set down, or robbed of its route: it comes back within seconds,
// pods go on, and a device that cannot come back costs neither CPU nor log.
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { run } from '../../src/host/command.ts'
import { countersOf, eventually, imbalanceOf, labUnderTest, logOf } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'

/** Longest time without the device, milliseconds; fails at three times as much. */
const BACK_WITHIN_MS = 5000
const LIMIT_MS = 3 * BACK_WITHIN_MS
/** USER_HZ (man 7 time). */
const TICKS_PER_SECOND = 100
const LARGEST_CPU_SHARE = 0.05
const BROKEN_MS = 4000

/** One ping to pod2.1 that does not wait long. */
const PING = ['ping', '-n', '-c', '1', '-W', '1', '10.244.2.2']

const lab = labUnderTest({ name: 'loss', hosts: 2, pods: 1 })
const onHost1 = (...words: string[]) => ip('-n', lab().namespace('host1'), ...words)
const shape = () => ({
  address: onHost1('-4', '-br', 'address', 'show', 'flannel.1').replace(/^(\S+) +\S+/, '$1'),
  routes: onHost1('-4', 'route', 'show').split('\n').sort(),
})

/** Waits until pods reach each other both ways, at most as long as a device may take. */
async function expectPodsBack(since: number): Promise<void> {
  await expect
    .poll(async () => (await lab().exec('pod1.1', PING)).exitCode, { timeout: LIMIT_MS, interval: 50 })
    .toBe(0)
  console.log(`back after ${((performance.now() - since) / 1000).toFixed(1)} s`)
  expect(performance.now() - since).toBeLessThan(LIMIT_MS)
  expect(await lab().ping('pod2.1', 'pod1.1', { count: 10 })).toMatchObject({ received: 10 })
}

test.each([
  ['deleted', () => onHost1('link', 'delete', 'flannel.1')],
  ['set down', () => onHost1('link', 'set', 'flannel.1', 'down')],
  [
    'set down and up',
    () => {
      onHost1('link', 'set', 'flannel.1', 'down')
      onHost1('link', 'set', 'flannel.1', 'up')
    },
  ],
  ['without its route', () => onHost1('route', 'delete', '10.244.0.0/16')],
  ['given another MTU', () => onHost1('link', 'set', 'flannel.1', 'mtu', '1200')],
  ['without its address', () => onHost1('address', 'flush', 'dev', 'flannel.1')],
])('a device that is %s is back within 5 s, with address, routes and MTU', async (_, harm) => {
  const { daemonPid } = lab().host('host1')
  const before = shape()
  const start = performance.now()
  harm()
  await expectPodsBack(start)
  await eventually(() => expect(onHost1('link', 'show', 'flannel.1')).toContain(' mtu 1450 '))
  await eventually(() => expect(shape()).toEqual(before))
  expect(lab().host('host1').daemonPid).toBe(daemonPid)
  await eventually(() => expect(lab().host('host1').status?.state).toBe('ready'))
  await eventually(() => expect(imbalanceOf(countersOf(lab(), 'host1'))).toEqual({ packets: 0, bytes: 0 }))
})

test('a route of somebody else’s to a part of a peer’s subnet is left alone and warned of while it is there', async () => {
  const ways = () =>
    lab()
      .host('host1')
      .status?.peers.map((peer) => peer.ways ?? null)
  expect(ways()).toEqual([null])
  onHost1('route', 'add', '10.244.2.128/25', 'dev', 'eth0', 'proto', 'static')
  const foreign = () => onHost1('route', 'show', '10.244.2.128/25')
  const before = foreign()
  const why = 'a route that is not ours takes a part of it: 10.244.2.128/25 dev eth0 proto static'
  await eventually(() => expect(ways()).toEqual([[{ subnet: '10.244.2.0/24', way: 'tunnel', why }]]))
  expect([foreign(), lab().host('host1').status?.state]).toEqual([before, 'ready'])
  onHost1('route', 'delete', '10.244.2.128/25', 'proto', 'static')
  await eventually(() => expect(ways()).toEqual([null]))
})

test('one to the whole subnet makes the peer pending until it is gone', async () => {
  const said = () => {
    const { pendingPeers, state, peers } = lab().host('host1').status!
    return [pendingPeers, state, peers.map(({ ways }) => ways?.[0]?.way ?? null)]
  }
  onHost1('route', 'add', '10.244.2.0/24', 'dev', 'eth0', 'proto', 'static')
  await eventually(() => expect(said()).toEqual([1, 'degraded', ['none']]))
  onHost1('route', 'delete', '10.244.2.0/24', 'proto', 'static')
  await eventually(() => expect(said()).toEqual([0, 'ready', [null]]))
})

test('an underlay address that is gone makes the node degraded, with one warning, until it is back', async () => {
  const told = () => logOf(lab(), 'host1').flatMap(({ event }) => (event.startsWith('underlay-') ? [event] : []))
  const address = /inet (\S+)/.exec(onHost1('-4', 'address', 'show', 'dev', 'eth0'))![1]!
  const before = told().length
  onHost1('address', 'delete', address, 'dev', 'eth0')
  await eventually(() => expect(lab().host('host1').status?.state).toBe('degraded'))
  await pause(2500)
  const { pendingPeers, peers } = lab().host('host1').status!
  const why = 'the underlay address is gone'
  expect([pendingPeers, peers[0]?.ways]).toEqual([1, [{ subnet: '10.244.2.0/24', way: 'none', why }]])
  onHost1('address', 'add', address, 'dev', 'eth0')
  await eventually(() => expect(lab().host('host1').status?.state).toBe('ready'))
  await eventually(() => expect(told().slice(before)).toEqual(['underlay-lost', 'underlay-back']))
})

test('an underlay link that goes away and comes back costs no more than the time it was away', async () => {
  onHost1('link', 'set', 'eth0', 'down')
  expect(await lab().ping('pod1.1', 'pod2.1', { waitMs: 2000 })).toMatchObject({ received: 0 })
  const start = performance.now()
  onHost1('link', 'set', 'eth0', 'up')
  await expectPodsBack(start)
})

test('a device that cannot come back makes the node degraded, and costs next to no CPU and log', async () => {
  const { daemonPid } = lab().host('host1')
  await eventually(() => expect(lab().host('host1').status?.state).toBe('ready')) // what was before has been told
  const lines = logOf(lab(), 'host1').length
  await run(['ip', '-batch', '-'], {
    namespace: lab().namespace('host1'),
    input: 'link delete flannel.1\nlink add flannel.1 type bridge\n',
  })
  await eventually(() => expect(lab().host('host1').status?.state).toBe('degraded'))
  const [before, since] = [cpuSeconds(daemonPid!), performance.now()]
  await pause(BROKEN_MS)
  const share = (cpuSeconds(daemonPid!) - before) / ((performance.now() - since) / 1000)
  const written = logOf(lab(), 'host1').slice(lines)
  console.log(`broken: ${(100 * share).toFixed(1)} % CPU, ${written.length} lines`)
  expect(share).toBeLessThan(LARGEST_CPU_SHARE)
  expect(written.length).toBeLessThanOrEqual(3)
  const start = performance.now()
  onHost1('link', 'delete', 'flannel.1')
  await expectPodsBack(start)
  expect(lab().host('host1').daemonPid).toBe(daemonPid)
})

/** User and system time of a process, proc_pid_stat(5). Its children count once they have ended. */
function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return [11, 12, 13, 14].reduce((sum, field) => sum + Number(fields[field]), 0) / TICKS_PER_SECOND
}
