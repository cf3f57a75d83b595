// The drivers besides the usual one in a network with kernel VXLAN hosts, and what a daemon says of its driver and of
// the kernel's offloads.
import { describe, expect, test } from 'vitest'
import { startDaemon, twoHosts } from '../support/daemon-under-test.ts'
import { DIRECTIONS, describeInterop } from '../support/interop.ts'
import { eventually } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'
import { skipWithoutRawSocket, withRawSocket } from '../support/raw-socket-here.ts'

const [toKernel, fromKernel] = DIRECTIONS
/** For an end, milliseconds; fails at three times as much. */
const PATIENCE_MS = 1500

// A diagonal; test/long runs the whole matrix of every driver.
describeInterop({ driver: 'plain', underlay: 'wire', udpChecksum: false, directions: [toKernel], seconds: 1 })
describeInterop({ driver: 'dgram', underlay: 'veth', udpChecksum: true, directions: [fromKernel], seconds: 1 })

withRawSocket(() => {
  const directions = [toKernel] as const
  describeInterop({ driver: 'raw', underlay: 'veth', udpChecksum: true, directions, seconds: 1 })
})

/** A daemon with these flags, once it is ready. */
async function daemonWith(...flags: string[]) {
  const [host] = twoHosts()
  // The self-test goes through the loopback.
  ip('-n', host.namespace, 'link', 'set', 'lo', 'up')
  const daemon = startDaemon(host, flags)
  await daemon.ready(0)
  const status = daemon.status!
  const on = Object.entries(status.features).filter(([, feature]) => feature.on)
  return { daemon, status, on: on.map(([name]) => name) }
}

describe('a daemon says what moves its packets', () => {
  test('with everything that the kernel has, by default', async () => {
    const { status, on } = await daemonWith()
    expect(status.driver).toBe('offload')
    expect(on).toEqual(expect.arrayContaining(['tun-tso', 'tun-gso-tcp4', 'udp-gso', 'udp-gro']))
    expect(status.features['udp-gso']?.why).toMatch(/^(63|127) segments a send, self-test passed$/)
  })

  test('without the device’s offloads when they are switched off', async () => {
    const { status, on } = await daemonWith('--tun-offload', 'off')
    expect(status.driver).toBe('offload')
    expect(on).toEqual(['udp-gso', 'udp-gro'])
    expect(status.features['tun-gso-tcp4']?.why).toMatch(/--tun-offload off/)
  })

  test('without segmented sends when they are switched off, and counts that as no downgrade', async () => {
    const { daemon, status } = await daemonWith('--udp-gso', 'off')
    expect(status.features['udp-gso']).toEqual({ on: false, why: 'switched off by --udp-gso off' })
    await eventually(() => expect(daemon.status?.counters['downgrade.udp-gso']).toBe(0))
    expect(daemon.complaints.filter((line) => line.includes('udp-gso'))).toEqual([])
  })

  test('with nothing of it on the plain driver', async () => {
    const { status, on } = await daemonWith('--driver', 'plain')
    expect(status.driver).toBe('plain')
    expect(on).toEqual([])
  })

  test('with the device’s offloads alone on the dgram driver', async () => {
    const { status, on } = await daemonWith('--driver', 'dgram')
    expect(status).toMatchObject({ driver: 'dgram', entropy: '16 source ports' })
    expect(on).toEqual(expect.arrayContaining(['tun-tso', 'tun-gso-tcp4']))
    expect(on.filter((name) => name.startsWith('udp-'))).toEqual([])
    expect(status.features['udp-gso']?.why).toMatch(/one datagram a call/)
  })

  test('with all but segmented sends on the raw driver, and ports of the kernel’s range', async (context) => {
    skipWithoutRawSocket(context)
    const { status, on } = await daemonWith('--driver', 'raw')
    expect(status).toMatchObject({ driver: 'raw', entropy: 'local port range' })
    expect(on).toEqual(expect.arrayContaining(['tun-tso', 'tun-gso-tcp4', 'udp-gro']))
    expect(status.features['udp-gso']?.why).toMatch(/headers are our own/)
  })

  test.each(['dgram', 'raw'] as const)('and ends in time with the %s driver', async (driver) => {
    const [host] = twoHosts()
    const daemon = startDaemon(host, ['--driver', driver])
    await daemon.ready(0)
    const start = performance.now()
    expect((await daemon.end('SIGTERM')).exitCode).toBe(0)
    expect(performance.now() - start).toBeLessThan(3 * PATIENCE_MS)
  })

  test('and goes from one driver to the other over the same device', async () => {
    const [host] = twoHosts()
    for (const driver of ['offload', 'plain', 'dgram', 'offload'] as const) {
      const daemon = startDaemon(host, ['--driver', driver])
      await daemon.ready(0)
      expect(daemon.status?.driver).toBe(driver)
      expect((await daemon.end('SIGTERM')).exitCode).toBe(0)
    }
  })
})
