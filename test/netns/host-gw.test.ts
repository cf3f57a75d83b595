// The backend host-gw as daemons on three hosts of one link: pods reach each other by routes alone, and the routes are
// kept whatever somebody does to them.
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { loadRuleset, replaceTable } from '../../src/host/nft.ts'
import { hostFiles, labFiles } from '../../src/lab/lab-state.ts'
import { askInHost, verdictsOf } from '../support/ask-in-host.ts'
import { Capture } from '../support/capture.ts'
import { leasesIn } from '../support/daemon-under-test.ts'
import { eventually, killDaemon, labUnderTest, logOf } from '../support/lab-under-test.ts'
import { linesOf } from '../support/output-lines.ts'
import { ip } from '../support/own-namespace.ts'
import { startTransfer } from '../support/transfer.ts'

/** 5 s to converge; fails at three times as much. */
const CONVERGED_MS = 3 * 5000
const TEST_MS = 2 * CONVERGED_MS
/** On the link of the hosts. */
const NOBODY = 'fd00:192:168:56::99'
const TO_HOST2 = '10.244.2.0/24 via 192.168.56.12 proto 142'
const TO_HOST3 = '10.244.3.0/24 via 192.168.56.13 proto 142'

describe('three hosts with host-gw', () => {
  const lab = labUnderTest({ name: 'hostgw', hosts: 3, pods: 1, backend: 'host-gw' })
  const on = (host: string, ...words: string[]) => ip('-n', lab().namespace(host), ...words)
  const routes = (host = 'host1') => linesOf(on(host, 'route', 'show', 'root', '10.244.0.0/16', 'dev', 'eth0'))
  const converged = (wanted: readonly string[], host = 'host1') =>
    expect.poll(() => routes(host), { timeout: CONVERGED_MS, interval: 50 }).toEqual(wanted)

  test(
    'pods reach each other with whole packets of the link’s size, and nothing is encapsulated',
    async () => {
      const from = { namespace: lab().namespace('host1'), device: 'eth0', direction: 'inout' as const }
      const wrapped = await Capture.start({ ...from, filter: 'udp or ip proto 4 or ip proto 41 or ip proto 47' })
      const plain = await Capture.start({ ...from, filter: 'icmp and host 10.244.1.2 and host 10.244.2.2' })
      for (const result of await lab().pingAll({ count: 2 })) expect(result).toMatchObject({ sent: 2, received: 2 })
      const whole = { sizeBytes: 1472, dontFragment: true }
      expect(await lab().ping('pod1.1', 'pod3.1', whole)).toMatchObject({ received: 1 })
      const transfer = await startTransfer(lab().endpoint('pod1.1'), lab().endpoint('pod2.1'), { mebibytes: 1 })
      const { sent, received } = await transfer.done
      expect(sent).toMatch(/^1048576 [0-9a-f]{64}$/)
      expect(received).toBe(sent)
      await plain.stop(4)
      expect(await wrapped.stop()).toEqual([])
    },
    TEST_MS,
  )

  test('there is no device, and the status says which way peers are reached', () => {
    expect(on('host1', '-br', 'link', 'show')).not.toMatch(/flannel/)
    expect(readFileSync(hostFiles('hostgw', 'host1').subnetFile, 'utf8')).toContain('FLANNEL_MTU=1500\n')
    const { status } = lab().host('host1')
    expect(status).toMatchObject({
      dataplane: 'routes',
      driver: 'none',
      node: { device: '', mtu: 1500 },
      pendingPeers: 0,
    })
    expect(status?.peers[0]).toMatchObject({
      backendType: 'host-gw',
      ways: [{ subnet: '10.244.2.0/24', way: 'direct', why: '' }],
    })
    expect(routes()).toEqual([TO_HOST2, TO_HOST3])
  })

  test(
    'ping and doctor find the way and nothing amiss, and status is well',
    async () => {
      const ping = await askInHost(lab(), 'host1', 'ping', 'host2', '-n', '1')
      expect(ping.json).toMatchObject({ result: 'reached' })
      expect(ping.json.rungs.map(({ name }: { name: string }) => name)).toEqual([
        ...['store', 'underlay', 'route', 'sizes', 'pod-side'],
      ])
      const doctor = await askInHost(lab(), 'host1', 'doctor', '--peers')
      const amiss = doctor.json.findings.filter(({ severity }: { severity: string }) => /error|warning/.test(severity))
      expect(amiss).toEqual([])
      const status = await askInHost(lab(), 'host1', 'status')
      expect([status.exitCode, status.json.warnings]).toEqual([0, []])
    },
    TEST_MS,
  )

  test(
    'a route that somebody deletes or alters is as it was, and others’ routes stay',
    async () => {
      on('host1', 'route', 'add', '10.244.200.0/24', 'via', '192.168.56.13', 'proto', 'static')
      onTestFinished(() => void on('host1', 'route', 'delete', '10.244.200.0/24'))
      const foreign = '10.244.200.0/24 via 192.168.56.13 proto static'
      on('host1', 'route', 'delete', '10.244.2.0/24')
      on('host1', 'route', 'replace', '10.244.3.0/24', 'via', '192.168.56.12', 'proto', '142')
      await converged([TO_HOST2, TO_HOST3, foreign])
      const restored = () => logOf(lab(), 'host1').filter(({ event }) => event === 'route-restored')
      await eventually(() => expect(restored().length).toBeGreaterThanOrEqual(2))
    },
    TEST_MS,
  )

  test(
    'another’s route to a peer’s subnet is told of and never replaced; gone, ours takes its place',
    async () => {
      on('host1', 'route', 'replace', '10.244.2.0/24', 'via', '192.168.56.13', 'proto', 'static')
      const foreign = '10.244.2.0/24 via 192.168.56.13 proto static'
      await eventually(() => {
        const { status } = lab().host('host1')
        expect([status?.state, status?.pendingPeers]).toEqual(['degraded', 1])
        expect(status?.peers[0]?.ways?.[0]).toMatchObject({
          way: 'none',
          why: expect.stringContaining('via 192.168.56.13 dev eth0 proto static'),
        })
      }, CONVERGED_MS)
      expect(routes()).toEqual([foreign, TO_HOST3])
      expect(await lab().ping('pod1.1', 'pod3.1')).toMatchObject({ received: 1 })
      on('host1', 'route', 'delete', '10.244.2.0/24')
      await converged([TO_HOST2, TO_HOST3])
      await eventually(() => expect(lab().host('host1').status?.state).toBe('ready'))
    },
    TEST_MS,
  )

  test(
    'after a link has been down all routes are back',
    async () => {
      on('host1', 'link', 'set', 'eth0', 'down')
      expect(routes()).toEqual([])
      on('host1', 'link', 'set', 'eth0', 'up')
      const start = performance.now()
      await converged([TO_HOST2, TO_HOST3])
      console.log(`routes back after ${Math.round(performance.now() - start)} ms`)
      const reached = async () => (await lab().ping('pod1.1', 'pod2.1', { waitMs: 1000 })).received
      await expect.poll(reached, { timeout: CONVERGED_MS }).toBe(1)
    },
    TEST_MS,
  )

  test(
    'routes outlive their daemon, and its next start takes those away that nobody needs',
    async () => {
      await killDaemon(lab(), 'host1')
      await killDaemon(lab(), 'host3')
      on('host1', 'route', 'add', '10.244.77.0/24', 'via', '192.168.56.12', 'proto', '142')
      on('host1', 'route', 'add', '10.99.1.0/24', 'via', '192.168.56.12', 'proto', '142') // of a former Network
      expect(await lab().ping('pod1.1', 'pod2.1')).toMatchObject({ received: 1 })
      lab().startDaemon('host1')
      await converged([TO_HOST2, TO_HOST3])
      await expect.poll(() => on('host1', 'route', 'show', '10.99.1.0/24'), { timeout: CONVERGED_MS }).toBe('')
      const { store } = labFiles('hostgw')
      const lease = leasesIn(store).find((name) => name.includes('10.244.3.0'))!
      rmSync(join(store, 'subnets', lease))
      await converged([TO_HOST2])
      await lab().restart('host3')
      await converged([TO_HOST2, TO_HOST3])
      expect(await lab().ping('pod3.1', 'pod1.1')).toMatchObject({ received: 1 })
    },
    3 * TEST_MS,
  )
})

describe('two hosts with host-gw and both families', () => {
  const lab = labUnderTest({ name: 'hostgw6', hosts: 2, pods: 1, backend: 'host-gw', family: 'dual' })

  test(
    'ping names the rung of IPv6 that fails while IPv4 is well',
    async () => {
      const podOfHost2 = 'fd00:10:244:2::2'
      const well = await askInHost(lab(), 'host1', 'ping', podOfHost2, '-n', '1')
      expect(well.json.rungs.slice(5).map(({ name }: { name: string }) => name)).toEqual([
        ...['underlay-ipv6', 'route-ipv6', 'sizes-ipv6', 'pod-side-ipv6'],
      ])
      expect([verdictsOf(well.json.rungs), well.exitCode]).toEqual([Array(9).fill('good').join(' '), 0])
      const stolen = `fd00:10:244:2::/64 via ${NOBODY} dev eth0 metric 100`.split(' ')
      ip('-n', lab().namespace('host1'), '-6', 'route', 'add', ...stolen)
      const astray = await askInHost(lab(), 'host1', 'ping', podOfHost2, '-n', '1')
      ip('-n', lab().namespace('host1'), '-6', 'route', 'delete', ...stolen)
      expect(verdictsOf(astray.json.rungs)).toBe('good good good good good good bad skipped skipped')
      expect(astray.json.rungs[6].text).toContain(NOBODY)
      const rule = 'chain in { type filter hook input priority 0; icmpv6 type echo-request drop; }'
      await loadRuleset(replaceTable('inet', 'deaf', rule), { namespace: lab().namespace('host2') })
      const deaf = await askInHost(lab(), 'host1', 'ping', podOfHost2, '-n', '1')
      expect(verdictsOf(deaf.json.rungs)).toBe('good good good good good unproven good skipped bad')
      expect(deaf.json.rungs.at(-1).next).toContain('ip6tables -S INPUT')
      expect(deaf.exitCode).toBe(1)
    },
    TEST_MS,
  )
})
