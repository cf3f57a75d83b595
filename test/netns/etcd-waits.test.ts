// No wait for etcd is without end: an endpoint that swallows everything costs seconds, and a signal ends a start at once,
// whatever it waits for.
import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { type RunningDaemon, traceOf } from '../support/daemon-under-test.ts'
import { dropEtcd, PREFIX, startOnEtcd, Underlay } from '../support/etcd-network.ts'
import type { EtcdServer } from '../support/etcd-server.ts'

/** An endpoint from which nothing comes, no refusal either. */
function blackHole(underlay: Underlay): EtcdServer {
  const place = underlay.place(102)
  dropEtcd(place)
  return { url: `http://${place.address}:2379` } as EtcdServer
}

/** From the start of the process to forwarding, milliseconds. */
const START_MS = 10_000
const STOP_MS = 2000

test('a first endpoint that swallows everything costs a start less than 10 s', async () => {
  const underlay = new Underlay()
  const hole = blackHole(underlay)
  const etcd = await underlay.etcd()
  const begun = performance.now()
  const daemon = startOnEtcd(underlay.host(1), [hole, etcd])
  await expect.poll(() => daemon.status?.state, { timeout: 3 * START_MS, interval: 20 }).toBe('ready')
  console.log(`ready after ${((performance.now() - begun) / 1000).toFixed(1)} s`)
})

/** Ends it: in time, with exit code 0 and without a word to anybody. */
async function endsAtOnce(daemon: RunningDaemon): Promise<void> {
  const { exitCode, milliseconds } = await daemon.end('SIGTERM')
  console.log(`ended after ${milliseconds.toFixed(0)} ms`)
  expect([exitCode, daemon.told]).toEqual([0, []])
  expect(milliseconds).toBeLessThan(3 * STOP_MS)
}

const heard = (daemon: RunningDaemon, event: string) =>
  expect.poll(() => daemon.output, { timeout: 20_000, interval: 10 }).toContain(`"event":"${event}"`)

describe('a signal while a start waits', () => {
  test('for a server that says nothing', async () => {
    const underlay = new Underlay()
    const host = underlay.host(1)
    const before = traceOf(host)
    const daemon = startOnEtcd(host, [blackHole(underlay)], ['--on-exit', 'remove'])
    await expect.poll(() => daemon.status?.state, { timeout: 10_000, interval: 10 }).toBe('starting')
    await endsAtOnce(daemon)
    expect(traceOf(host)).toEqual(before)
  })

  test('for a subnet, all of which are taken', async () => {
    const underlay = new Underlay()
    const host = underlay.host(1)
    const etcd = await underlay.etcd()
    etcd.ctl('put', `${PREFIX}/config`, '{"Network":"10.244.0.0/28","Backend":{"Type":"vxlan"}}')
    for (const last of [4, 8, 12]) etcd.ctl('put', `${PREFIX}/subnets/10.244.0.${last}-30`, `{"PublicIP":"192.0.2.${last}"}`)
    const before = traceOf(host)
    const daemon = startOnEtcd(host, [etcd], ['--on-exit', 'remove'])
    await heard(daemon, 'lease-unavailable')
    await endsAtOnce(daemon)
    expect(traceOf(host)).toEqual(before)
  })

  test('for a server that froze when it was asked for a lease', async () => {
    const underlay = new Underlay()
    const host = underlay.host(1)
    const etcd = await underlay.etcd()
    const before = traceOf(host)
    const daemon = startOnEtcd(host, [etcd], ['--on-exit', 'remove'])
    await heard(daemon, 'mtu-chosen')
    etcd.freeze()
    await endsAtOnce(daemon)
    expect(traceOf(host)).toEqual(before)
    expect(existsSync(host.subnetFile)).toBe(false)
  })
})
