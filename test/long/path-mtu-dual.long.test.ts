// DF set on a node with a tunnel of each family: each has limits of its own, and a peer is told of with the smaller one.
import { expect, test } from 'vitest'
import { eventually, labUnderTest } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const lab = labUnderTest({ name: 'dualway', hosts: 2, pods: 1, family: 'dual', daemonArguments: ['--outer-df', 'set'] })
/** Of host2 on the underlay. */
const THERE = { 4: '192.168.56.12', 6: 'fd00:192:168:56::12' }
const HEADERS = { 4: 28, 6: 48 }

/** Two pings of a packet of so many bytes that must stay whole: the first may meet the change. */
async function pings(family: 4 | 6, bytes: number): Promise<string> {
  const words = ['-n', '-c', '2', '-i', '0.2', '-W', '1', '-M', 'do', '-s', String(bytes - HEADERS[family])]
  const { stdout, stderr } = await lab().exec('pod1.1', ['ping', ...words, lab().endpoint('pod2.1', family).address])
  return stdout + stderr
}

/** The way by that family takes so many bytes from now on, as an operator says it by a route. */
function limit(family: 4 | 6, mtuBytes: number): void {
  const words = [`-${family}`, '-n', lab().namespace('host1'), 'route', 'add', THERE[family], 'dev', 'eth0']
  ip(...words, 'mtu', String(mtuBytes))
}

const pathMtu = () => lab().host('host1').status?.peers[0]?.pathMtu

test('a way by IPv4 and a way by IPv6 are limited apart', async () => {
  for (const family of [4, 6] as const) expect(await pings(family, 1430)).toContain('2 received')
  limit(4, 1400)
  expect(await pings(4, 1430)).toMatch(/mtu ?[=:] ?1350\b/)
  expect(await pings(6, 1430)).toContain('2 received')
  await eventually(() => expect(pathMtu()).toBe(1350))
  limit(6, 1380)
  expect(await pings(6, 1430)).toMatch(/mtu ?[=:] ?1310\b/)
  await eventually(() => expect(pathMtu()).toBe(1310))
  expect(await pings(4, 1350)).toContain('2 received')
  expect(await pings(6, 1310)).toContain('2 received')
})
