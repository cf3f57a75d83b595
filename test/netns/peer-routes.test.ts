// Routes to peers in a real kernel, of both families, and what a host shows of them once a daemon has gone for good.
import { expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../dataplane/wire/prefix.ts'
import { planCleanup, runCleanup, stepText } from '../../src/daemon/cleanup.ts'
import type { PeerRoute } from '../../src/host/peer-route-plan.ts'
import { PeerRoutes } from '../../src/host/peer-routes.ts'
import { routeTable } from '../../src/host/route-table.ts'
import { silentLog } from '../../src/log.ts'
import { startDaemon, traceOf, twoHosts, writeConfig } from '../support/daemon-under-test.ts'
import { linesOf } from '../support/output-lines.ts'
import { ip, joinedNamespaces } from '../support/own-namespace.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const NETWORKS = [parsePrefix('10.244.0.0/16')!, parseIpv6Prefix('fd00:10:244::/48')!]
const V4: PeerRoute = { subnet: '10.244.2.0/24', gateway: '192.0.2.2', device: 'eth0' }
const V6: PeerRoute = { subnet: 'fd00:10:244:2::/64', gateway: '2001:db8::2', device: 'eth0' }
const FAR: PeerRoute = { subnet: '10.244.9.0/24', gateway: '198.51.100.9', device: 'eth0' }
const FAR6: PeerRoute = { subnet: 'fd00:10:244:9::/64', gateway: '2001:db9::9', device: 'eth0' }

function host() {
  const [namespace] = joinedNamespaces()
  ip('-n', namespace, 'address', 'add', '2001:db8::1/64', 'dev', 'eth0', 'nodad')
  const on = (...words: string[]) => ip('-n', namespace, ...words)
  const shown = (family: string, root: string) =>
    linesOf(on(family, 'route', 'show', 'root', root)).map((line) => line.replace(/ (metric 1024|pref medium)/g, ''))
  const table = routeTable({ namespace })
  const routes = new PeerRoutes({ table, log: silentLog, networks: NETWORKS, sparedDevice: null })
  const inForce = () => [...routes.states.values()].map((state) => state.inForce)
  return {
    namespace,
    on,
    table,
    routes,
    inForce,
    shown: () => [...shown('-4', '10.244.0.0/16'), ...shown('-6', 'fd00::/16')],
  }
}

const IN_V4 = '10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142'
const IN_V6 = 'fd00:10:244:2::/64 via 2001:db8::2 dev eth0 proto 142'

test('each family goes and stays by itself, and in the end nothing is left', async () => {
  const { routes, shown, on } = host()
  on('route', 'add', '10.244.8.0/24', 'via', '192.0.2.8', 'proto', 'static')
  const foreign = '10.244.8.0/24 via 192.0.2.8 dev eth0 proto static'
  await routes.keep([V4, V6])
  expect(shown()).toEqual([IN_V4, foreign, IN_V6])
  await routes.keep([V4])
  expect(shown()).toEqual([IN_V4, foreign])
  await routes.keep([V4, V6])
  await routes.keep([V6])
  expect(shown()).toEqual([foreign, IN_V6])
  await routes.keep([])
  expect(shown()).toEqual([foreign])
})

test('a gateway that is no neighbour holds up no other, of either family', async () => {
  const { routes, inForce, table, on } = host()
  on('route', 'add', '198.51.100.0/24', 'via', '192.0.2.254')
  await routes.keep([FAR, V4, FAR6, V6])
  expect(inForce()).toEqual([false, true, false, true])
  expect([...routes.states.values()].map(({ why }) => why.replace(/ \(.*/, ''))).toEqual([
    ...['198.51.100.9 is no neighbour on eth0', ''],
    ...['2001:db9::9 is no neighbour on eth0', ''],
  ])
  const ways = await table.waysTo([FAR.gateway, V4.gateway, FAR6.gateway, V6.gateway])
  expect([...ways.keys()]).toEqual([FAR.gateway, V4.gateway, V6.gateway])
  expect([...ways.values()].map(({ gateway }) => gateway)).toEqual(['192.0.2.254', undefined, undefined])
})

test('what somebody alters comes back, what is somebody else’s stays and is told of', async () => {
  const { routes, shown, inForce, on } = host()
  await routes.keep([V4, V6])
  on('route', 'replace', '10.244.2.0/24', 'via', '192.0.2.7', 'proto', '142')
  on('-6', 'route', 'delete', 'fd00:10:244:2::/64')
  await routes.keep([V4, V6])
  expect([shown(), routes.restored]).toEqual([[IN_V4, IN_V6], 2])
  on('route', 'replace', '10.244.2.0/24', 'via', '192.0.2.7', 'proto', 'static')
  on('-6', 'route', 'replace', 'fd00:10:244:2::/64', 'via', '2001:db8::7', 'proto', 'static')
  const foreign = shown()
  await routes.keep([V4, V6])
  expect([shown(), inForce()]).toEqual([foreign, [false, false]])
  await routes.remove()
  expect(shown()).toEqual(foreign)
})

test('a daemon that is to remove all takes its routes along; one that was killed leaves them to cleanup', async () => {
  const [first, second] = twoHosts()
  writeConfig(first.store, { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } })
  const before = traceOf(first)
  const daemons = [startDaemon(first, ['--on-exit', 'remove']), startDaemon(second)]
  await Promise.all(daemons.map((daemon) => daemon.ready(1)))
  const there = traceOf(second).routes
  expect(there.filter((line) => line.includes('proto 142'))).toHaveLength(1)
  expect(daemons.map(({ complaints }) => complaints)).toEqual([[], []])
  expect(await daemons[0]!.end('SIGTERM')).toMatchObject({ exitCode: 0 })
  expect(traceOf(first)).toEqual(before)
  await daemons[1]!.end('SIGKILL')
  expect(traceOf(second).routes).toEqual(there)
  const { subnetFile, stateDirectory, namespace } = second
  const options = { subnetFile, stateDirectory, namespace, state: true, identityDirectory: temporaryDirectory() }
  const plan = await planCleanup(options)
  expect(plan.steps.map(stepText).filter((line) => line.startsWith('ip '))).toEqual([
    expect.stringMatching(/^ip route delete 10\.244\.\d+\.0\/24 via 192\.0\.2\.1 dev eth0 proto 142$/),
  ])
  await runCleanup(options, plan)
  expect(traceOf(second)).toMatchObject({
    routes: before.routes.map((line) => line.replace('192.0.2.1', '192.0.2.2')),
    subnetFile: null,
  })
})

test('a public address that is not the interface’s ends the start, and says why', async () => {
  const [host] = twoHosts()
  writeConfig(host.store, { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } })
  const before = traceOf(host)
  const daemon = startDaemon(host, ['--public-ip', '203.0.113.9'])
  expect(await daemon.exited()).toBe(1)
  expect(daemon.told.join()).toMatch(/public address 203\.0\.113\.9 is not that of eth0 \(192\.0\.2\.1\)/)
  expect(traceOf(host)).toEqual(before)
})
