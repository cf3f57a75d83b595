// The etcd store against a real etcd: the rules of all lease stores, and what only etcd can do to it.
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { formatPrefix } from '../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../src/config/network-config.ts'
import { identityOf, ipv6HalfOf } from '../../src/lease/lease.ts'
import { LONGEST_BACKOFF_MS } from '../../src/store/etcd/lease-watch.ts'
import type { LeaseNews } from '../../src/store/lease-store.ts'
import { leaseStoreCompliance } from '../compliance/lease-store.ts'
import { EtcdHarness } from '../support/etcd-harness.ts'
import { EtcdServer } from '../support/etcd-server.ts'
import { dualLease, ipv6Lease, peerLease } from '../support/peer-lease.ts'
import { A, CONFIG, MAC, request } from '../support/store-harness.ts'

let server: EtcdServer
let harness: EtcdHarness
let serial = 0

beforeAll(async () => {
  server = await EtcdServer.start()
})
afterAll(() => server.stop())

beforeEach(async () => {
  harness = await EtcdHarness.make(server, `/test/${serial++}`)
})

leaseStoreCompliance(() => {
  onTestFinished(() => harness.close())
  return harness
})

describe('a real server', () => {
  /** A watch through the wire, and what it said last. */
  function follow() {
    const news: LeaseNews[] = []
    const end = new AbortController()
    const done = (async () => {
      for await (const item of harness.open().watch(end.signal)) news.push(item)
    })()
    onTestFinished(async () => {
      end.abort()
      await done
      harness.close()
    })
    return () => {
      const last = news.at(-1)
      return last?.type === 'snapshot' ? last.leases.map(({ subnet }) => formatPrefix(subnet!)) : last?.type
    }
  }

  test('gives a renewed lease its day, and the value stays as it was', async () => {
    onTestFinished(() => harness.close())
    harness.setConfig(CONFIG)
    const store = harness.open()
    const lease = await store.acquire(request(A, '10.244.6.0/24'))
    const key = `${harness.prefix}/subnets/10.244.6.0-24`
    const before = server.ctl('get', '--print-value-only', key)
    await store.renew(lease)
    expect(server.ctl('get', '--print-value-only', key)).toBe(before)
    const id = BigInt(/"lease":(\d+)/.exec(server.ctl('get', key, '-w', 'json'))![1]!).toString(16)
    const left = Number(/remaining\((\d+)s\)/.exec(server.ctl('lease', 'timetolive', id))?.[1])
    expect(Math.abs(left - 86_400)).toBeLessThanOrEqual(60)
  })

  test('holds leases with an IPv6 half, or with nothing else, as flannel writes them', async () => {
    onTestFinished(() => harness.close())
    const written: string[] = []
    for (const [families, lease, key, address] of [
      ['"Network":"10.244.0.0/16"', dualLease(2), '10.244.2.0-24&fd00:10:244:2::-64', '192.0.2.2'],
      ['"EnableIPv4":false', ipv6Lease(3), '0.0.0.0-0&fd00:10:244:3::-64', '0.0.0.0'],
    ] as const) {
      const config = `{${families},"EnableIPv6":true,"IPv6Network":"fd00:10:244::/48","Backend":{"Type":"vxlan"}}`
      harness.setConfig(config)
      const store = harness.open()
      const acquired = await store.acquire({
        network: parseNetworkConfig(config),
        publicIp: identityOf(lease.attributes),
        previousSubnet: lease.subnet,
        previousIpv6Subnet: ipv6HalfOf(lease),
        attributes: () => lease.attributes,
      })
      const host = lease.attributes.publicIpv6!.at(-1)
      const ipv4Data = lease.subnet === null ? '' : `"BackendData":{"VNI":1,"VtepMAC":"0a:00:00:00:00:0${host}"},`
      const ipv6Data = `"BackendV6Data":{"VNI":1,"VtepMAC":"0a:06:00:00:00:0${host}"}`
      written.push(
        `${harness.prefix}/subnets/${key}`,
        `{"PublicIP":"${address}","PublicIPv6":"2001:db8::${host}","BackendType":"vxlan",${ipv4Data}${ipv6Data}}`,
      )
      expect(await store.read(acquired)).toMatchObject({ subnet: lease.subnet, attributes: lease.attributes })
    }
    const [dualKey, dualValue, ipv6Key, ipv6Value] = written
    const kept = server.ctl('get', '--prefix', `${harness.prefix}/subnets/`)
    expect(kept).toBe(`${[ipv6Key, ipv6Value, dualKey, dualValue].join('\n')}\n`)
  })

  test('that compacted while the watch was cut off is listed anew, and then watched', async () => {
    const latest = follow()
    harness.put(peerLease('10.244.1.0/24', A, MAC))
    await harness.clock.advance(1000)
    expect(latest()).toEqual(['10.244.1.0/24'])
    harness.setOutage(true)
    await harness.clock.advance(1000)
    harness.put(peerLease('10.244.2.0/24', A, MAC))
    harness.remove('10.244.1.0/24')
    server.ctl('put', '/elsewhere', 'x')
    server.ctl('compact', String(server.revision))
    harness.setOutage(false)
    await harness.clock.advance(2 * LONGEST_BACKOFF_MS)
    expect(latest()).toEqual(['10.244.2.0/24'])
    harness.put(peerLease('10.244.3.0/24', A, MAC))
    await harness.clock.advance(100)
    expect(latest()).toEqual(['10.244.2.0/24', '10.244.3.0/24'])
  })

  test('whose wire goes dead without a word is left for another connection', async () => {
    const latest = follow()
    await harness.clock.advance(1000)
    harness.proxy.hold()
    await harness.clock.advance(30_000)
    expect(latest()).toBe('disconnected')
    harness.proxy.breakConnections()
    harness.setOutage(false)
    harness.put(peerLease('10.244.3.0/24', A, MAC))
    await harness.clock.advance(2 * LONGEST_BACKOFF_MS)
    expect(latest()).toEqual(['10.244.3.0/24'])
  })

  test('is asked over one connection by a store', async () => {
    onTestFinished(() => harness.close())
    harness.setConfig(CONFIG)
    const store = harness.open()
    for (let round = 0; round < 20; round++) await store.release(await store.acquire(request(A)))
    expect(harness.proxy.connections).toBe(1)
  })
})
