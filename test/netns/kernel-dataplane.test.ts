// A daemon whose dataplane is the kernel's: what it says of itself is true, also when its device is changed.
// test/support/peer-events.ts has the whole list of what may happen.
import { expect, test } from 'vitest'
import { countersOf, eventually, labUnderTest, logOf } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const BACK_WITHIN_MS = 5000
const LIMIT_MS = 3 * BACK_WITHIN_MS
const PINGS = 20

const lab = labUnderTest({ name: 'kerneldp', hosts: 2, pods: 1, kernel: ['host2'] })
const onHost2 = (...words: string[]) => ip('-n', lab().namespace('host2'), ...words)
const status = () => lab().host('host2').status
const shape = () => [
  onHost2('-4', 'route', 'show', 'dev', 'flannel.1'),
  onHost2('-4', '-br', 'address', 'show', 'dev', 'flannel.1').replace(/^(\S+) +\S+/, '$1'),
  / mtu \d+ .*/.exec(onHost2('link', 'show', 'flannel.1'))?.[0],
  onHost2('neighbor', 'show', 'dev', 'flannel.1'),
]

test('its counters are those of the device, and nobody claims what nobody has counted', async () => {
  const before = countersOf(lab(), 'host2')
  expect(await lab().ping('pod1.1', 'pod2.1', { count: PINGS })).toMatchObject({ received: PINGS })
  const grown = (name: string) => (countersOf(lab(), 'host2')[name] ?? Number.NaN) - (before[name] ?? Number.NaN)
  await eventually(() => {
    expect(grown('outbound.packets.passed')).toBeGreaterThanOrEqual(PINGS)
    expect(grown('inbound.packets.passed')).toBeGreaterThanOrEqual(PINGS)
  })
  expect(Object.keys(before).filter((name) => /\.read$|\.dropped\./.test(name))).toEqual([])
  expect(status()).toMatchObject({ dataplane: 'kernel', driver: 'kernel', features: {}, offenders: [], state: 'ready' })
  expect(status()?.peers).toMatchObject([{ state: null, traffic: null }])
})

test('a device without its address is back within 5 s, with entries, routes and MTU', async () => {
  const before = shape()
  const { daemonPid } = lab().host('host2')
  onHost2('address', 'flush', 'dev', 'flannel.1')
  const start = performance.now()
  await eventually(() => expect(shape()).toEqual(before), LIMIT_MS)
  console.log(`back after ${((performance.now() - start) / 1000).toFixed(1)} s`)
  expect(await lab().ping('pod1.1', 'pod2.1', { count: PINGS })).toMatchObject({ received: PINGS })
  await eventually(() => expect(status()?.state).toBe('ready'))
  await eventually(() => expect(logOf(lab(), 'host2').map(({ event }) => event)).toContain('device-restored'))
  expect(lab().host('host2').daemonPid).toBe(daemonPid)
})

test('an underlay address that is gone makes the node degraded', async () => {
  const address = /inet (\S+)/.exec(onHost2('-4', 'address', 'show', 'dev', 'eth0'))![1]!
  onHost2('address', 'delete', address, 'dev', 'eth0')
  await eventually(() => expect(status()?.state).toBe('degraded'))
  onHost2('address', 'add', address, 'dev', 'eth0')
  await eventually(() => expect(status()?.state).toBe('ready'))
})
