// A daemon's life on a host: how it stops, what it leaves, what the next one finds, and that there is only one.
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readLink } from '../../src/host/ip.ts'
import { answered } from '../support/answered.ts'
import {
  CONFIG,
  type Host,
  leasesIn,
  type RunningDaemon,
  startDaemon,
  traceOf,
  twoHosts,
  writeConfig,
} from '../support/daemon-under-test.ts'
import { ip } from '../support/own-namespace.ts'
import { startTransfer } from '../support/transfer.ts'

/** What a supervisor grants at least, milliseconds; fails at three times as much. */
const PATIENCE_MS = 1500
const LIMIT_MS = 3 * PATIENCE_MS

/** Both hosts with a daemon that knows the other. */
async function bothRunning(more: readonly string[] = []) {
  const [first, second] = twoHosts()
  const one = startDaemon(first, more)
  const two = startDaemon(second)
  await Promise.all([one.ready(1), two.ready(1)])
  return { first, second, one, two }
}

const overlayAddressOf = (daemon: RunningDaemon) => daemon.status?.node?.overlayAddress ?? ''

const indexOf = async (host: Host) => (await readLink('flannel.1', { namespace: host.namespace }))?.ifindex

describe('a stop', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)(
    'by %s takes at most 1.5 s and leaves device, routes and subnet.env',
    async (signal) => {
      const { first, second, one, two } = await bothRunning()
      expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)
      const before = traceOf(first)
      expect(before.subnetFile).toMatch(
        /^FLANNEL_NETWORK=10\.244\.0\.0\/16\nFLANNEL_SUBNET=10\.244\.\d+\.1\/24\nFLANNEL_MTU=1450\n/,
      )
      const { exitCode, milliseconds } = await one.end(signal)
      expect(exitCode).toBe(0)
      expect(milliseconds).toBeLessThan(LIMIT_MS)
      expect(one.told).toEqual([])
      expect(one.status?.counters['outbound.packets.passed']).toBeGreaterThan(0) // the books as they were closed
      const after = traceOf(first)
      expect(after.subnetFile).toBe(before.subnetFile)
      expect(after.addresses).toEqual(before.addresses)
      expect(after.routes).toEqual(before.routes)
      expect(leasesIn(second.store)).toHaveLength(2)
    },
  )

  test('with --on-exit=remove takes device, routes and subnet.env away', async () => {
    const { first, one } = await bothRunning(['--on-exit', 'remove'])
    const { exitCode, milliseconds } = await one.end('SIGTERM')
    expect(exitCode).toBe(0)
    expect(milliseconds).toBeLessThan(LIMIT_MS)
    const { links, routes, subnetFile } = traceOf(first)
    expect(links).not.toContain('flannel.1')
    expect(routes).toEqual([expect.stringMatching(/^192\.0\.2\.0\/24 dev eth0/)])
    expect(subnetFile).toBeNull()
  })

  test('in the midst of a start is a stop as well', async () => {
    const [first] = twoHosts()
    const daemon = startDaemon(first)
    await expect.poll(() => daemon.output, { interval: 5, timeout: 60_000 }).toContain('underlay-chosen')
    const { exitCode, milliseconds } = await daemon.end('SIGTERM')
    expect(exitCode).toBe(0)
    expect(milliseconds).toBeLessThan(LIMIT_MS)
    expect(daemon.told).toEqual([])
  })
})

describe('a second start', () => {
  test('finds device, lease and MAC of the first', async () => {
    const { first, one, two } = await bothRunning()
    const index = await indexOf(first)
    const { lease, node } = one.status!
    await one.end('SIGTERM')
    const again = startDaemon(first)
    await again.ready(1)
    expect(await indexOf(first)).toBe(index)
    expect(again.status?.node).toEqual(node)
    expect(again.status?.lease?.subnet).toBe(lease?.subnet)
    expect(leasesIn(first.store)).toHaveLength(2)
    expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)
  })

  test('takes up TCP connections that were open before', async () => {
    const { first, second, one, two } = await bothRunning()
    const to = { namespace: second.namespace, address: overlayAddressOf(two) }
    const transfer = await startTransfer(first, to, { mebibytes: 16, seconds: 3, held: true })
    await transfer.connected
    await one.end('SIGTERM')
    const again = startDaemon(first)
    await again.ready(1)
    transfer.release()
    const { sent, received } = await transfer.done
    expect(received).toBe(sent)
    expect(received).toMatch(/^16777216 /)
  })

  test('makes the device anew when somebody removed it meanwhile', async () => {
    const { first, one, two } = await bothRunning()
    await one.end('SIGTERM')
    ip('-n', first.namespace, 'link', 'delete', 'flannel.1')
    const again = startDaemon(first)
    await again.ready(1)
    expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)
  })

  test('with another network replaces address, routes and subnet.env of the first', async () => {
    const { first, one, two } = await bothRunning()
    await Promise.all([one.end('SIGTERM'), two.end('SIGTERM')])
    writeConfig(first.store, { ...CONFIG, Network: '10.99.0.0/16' })
    const again = startDaemon(first)
    await again.ready(0) // the lease of the other host is of the former network, and is left out
    const { addresses, routes, subnetFile } = traceOf(first)
    expect(addresses.join()).not.toContain('10.244.')
    expect(routes.filter((route) => route.includes('flannel.1'))).toEqual([expect.stringMatching(/^10\.99\.0\.0\/16 /)])
    expect(subnetFile).toMatch(/^FLANNEL_NETWORK=10\.99\.0\.0\/16\nFLANNEL_SUBNET=10\.99\./)
  })
})

describe('two daemons on one host', () => {
  test('with one state directory: the second is refused, the first goes on', async () => {
    const { first, one, two } = await bothRunning()
    const second = startDaemon(first)
    expect(await second.exited()).toBe(1)
    expect(second.told).toHaveLength(1)
    expect(second.told[0]).toContain(first.stateDirectory)
    expect(one.status?.state).toBe('ready')
    expect(existsSync(first.subnetFile)).toBe(true)
    expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)
  })

  test('with one device: the second is refused, the first goes on', async () => {
    const { first, one, two } = await bothRunning()
    const elsewhere = join(first.store, '..', 'elsewhere')
    mkdirSync(elsewhere)
    writeConfig(elsewhere, { ...CONFIG, Backend: { ...CONFIG.Backend, Port: 8473 } })
    const rival = {
      ...first,
      store: elsewhere,
      stateDirectory: join(elsewhere, 'state'),
      subnetFile: join(elsewhere, 'env'),
    }
    const before = traceOf(first)
    const second = startDaemon(rival)
    expect(await second.exited()).toBe(1)
    expect(second.told).toEqual([
      expect.stringMatching(/flannel\.1 is the device of another daemon of this host \(pid \d+, .*Backend\.VNI/),
    ])
    expect(traceOf(first)).toEqual(before)
    expect(existsSync(rival.subnetFile)).toBe(false)
    expect(one.status?.state).toBe('ready')
    expect(await answered(first.namespace, overlayAddressOf(two))).toBe(3)
  })
})
