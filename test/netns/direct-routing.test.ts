// DirectRouting as daemons on a lab with two links: host1 (our engine) and host2 (the kernel's VTEP) are neighbours, host3
// is behind a router. Which way packets take follows the routes of the hosts.
import { describe, expect, test } from 'vitest'
import { askInHost } from '../support/ask-in-host.ts'
import { Capture } from '../support/capture.ts'
import { labUnderTest, logOf } from '../support/lab-under-test.ts'
import { linesOf } from '../support/output-lines.ts'
import { ip } from '../support/own-namespace.ts'

/** 5 s to converge; fails at three times as much. */
const CONVERGED_MS = 3 * 5000
const TEST_MS = 3 * CONVERGED_MS
/** Echo requests a second, as the lab pings, and how many may be lost when the way changes: a second's, 3 times over. */
const PER_SECOND = 20
const LOST_AT_MOST = 3 * PER_SECOND

describe('neighbours and a host behind a router', () => {
  const lab = labUnderTest({
    ...{ name: 'directr', hosts: 3, pods: 1, kernel: ['host2'], routed: ['host3'], directRouting: true },
  })
  const on = (host: string, ...words: string[]) => ip('-n', lab().namespace(host), ...words)
  const routes = (host: string) => linesOf(on(host, 'route', 'show', 'root', '10.244.0.0/16', 'proto', '142'))
  const waysOf = (host: string) => (lab().host(host).status?.peers ?? []).map(({ ways }) => ways?.[0]?.way)
  const converged = <T>(look: () => T, wanted: T) =>
    expect.poll(look, { timeout: CONVERGED_MS, interval: 50 }).toEqual(wanted)
  /** What the kernel's VTEP of host2 holds for a subnet. */
  const entriesOf = (subnet: string) => [
    linesOf(on('host2', 'neigh', 'show', subnet, 'dev', 'flannel.1')).length,
    linesOf(on('host2', 'route', 'show', `${subnet}/24`, 'dev', 'flannel.1')).length,
  ]
  const forwardings = async () => {
    const { stdout } = await lab().exec('host2', ['bridge', 'fdb', 'show', 'dev', 'flannel.1'])
    return linesOf(stdout)
      .filter((line) => line.includes(' dst '))
      .map((line) => / dst (\S+)/.exec(line)![1])
      .sort()
  }

  test(
    'a neighbour is reached past the tunnel, the host behind the router through it',
    async () => {
      const from = { namespace: lab().namespace('host1'), device: 'eth0', direction: 'inout' as const }
      const near = await Capture.start({ ...from, filter: 'udp port 8472 and host 192.168.56.12' })
      const far = await Capture.start({ ...from, filter: 'udp port 8472 and host 192.168.57.13' })
      for (const result of await lab().pingAll({ count: 2 })) expect(result).toMatchObject({ sent: 2, received: 2 })
      expect(await near.stop()).toEqual([])
      await far.stop(4)
      await converged(
        () => ['host1', 'host2', 'host3'].map(waysOf),
        [
          ['direct', 'tunnel'],
          ['direct', 'tunnel'],
          ['tunnel', 'tunnel'],
        ],
      )
      expect(lab().host('host1').status?.peers[1]?.ways?.[0]?.why).toBe('its address is behind 192.168.56.1')
      expect(routes('host1')).toContain('10.244.2.0/24 via 192.168.56.12 dev eth0')
      expect(routes('host3')).toHaveLength(1)
      expect([entriesOf('10.244.1.0'), entriesOf('10.244.3.0'), await forwardings()]).toEqual([
        [0, 0],
        [1, 1],
        ['192.168.57.13'],
      ])
    },
    TEST_MS,
  )

  test(
    'ping and doctor find both ways and nothing amiss',
    async () => {
      for (const [host, other, rung] of [
        ['host1', 'host2', 'route'],
        ['host2', 'host1', 'route'],
        ['host1', 'host3', 'vtep'],
      ] as const) {
        const { json } = await askInHost(lab(), host, 'ping', other, '-n', '1')
        expect(json).toMatchObject({ result: 'reached' })
        expect(json.rungs[2]).toMatchObject({ name: rung, verdict: 'good' })
      }
      const { json } = await askInHost(lab(), 'host1', 'doctor', '--peers')
      expect(json.findings.filter(({ severity }: { severity: string }) => /error|warning/.test(severity))).toEqual([])
    },
    TEST_MS,
  )

  test(
    'a route to a peer that changes turns its way to the tunnel and back, and other peers feel nothing',
    async () => {
      const before = ['host1', 'host2'].map(routes)
      const pinging = (to: string) => lab().ping('pod1.1', to, { count: 8 * PER_SECOND })
      const [near, far] = [pinging('pod2.1'), pinging('pod3.1')]
      on('host1', 'route', 'add', '192.168.56.12/32', 'via', '192.168.56.1')
      await converged(() => waysOf('host1'), ['tunnel', 'tunnel'])
      on('host2', 'route', 'add', '192.168.56.11/32', 'via', '192.168.56.1')
      await converged(() => waysOf('host2'), ['tunnel', 'tunnel'])
      expect(routes('host1').filter((line) => line.includes('via'))).toEqual([])
      expect([entriesOf('10.244.1.0'), await forwardings()]).toEqual([
        [1, 1],
        ['192.168.56.11', '192.168.57.13'],
      ])
      const wrapped = await Capture.start({
        ...{ namespace: lab().namespace('host1'), device: 'eth0', direction: 'inout' },
        filter: 'udp port 8472 and host 192.168.56.12',
      })
      expect(await lab().ping('pod2.1', 'pod1.1')).toMatchObject({ received: 1 })
      await wrapped.stop(2)
      on('host1', 'route', 'delete', '192.168.56.12/32')
      on('host2', 'route', 'delete', '192.168.56.11/32')
      await converged(
        () => ['host1', 'host2'].map(waysOf),
        [
          ['direct', 'tunnel'],
          ['direct', 'tunnel'],
        ],
      )
      await converged(() => ['host1', 'host2'].map(routes), before)
      expect([entriesOf('10.244.1.0'), await forwardings()]).toEqual([[0, 0], ['192.168.57.13']])
      const [turned, untouched] = await Promise.all([near, far])
      console.log(`lost while the way changed four times: ${turned.sent - turned.received} of ${turned.sent}`)
      expect(turned.received).toBeGreaterThan(turned.sent - LOST_AT_MOST)
      expect(untouched).toMatchObject({ sent: 8 * PER_SECOND, received: 8 * PER_SECOND })
      const told = () => logOf(lab(), 'host1').filter(({ event }) => event === 'peer-way').length
      await expect.poll(told).toBeGreaterThanOrEqual(3)
    },
    TEST_MS,
  )

  test(
    'a direct route that somebody takes away is back',
    async () => {
      for (const host of ['host1', 'host2'] as const) {
        const before = routes(host)
        on(host, 'route', 'delete', host === 'host1' ? '10.244.2.0/24' : '10.244.1.0/24')
        await converged(() => routes(host), before)
      }
      expect(await lab().ping('pod1.1', 'pod2.1', { count: 3 })).toMatchObject({ received: 3 })
    },
    TEST_MS,
  )
})
