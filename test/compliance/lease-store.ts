// What every lease store must do, whatever it is made of. Each implementation runs this suite from its own test file.
import { describe, expect, test, vi } from 'vitest'
import { formatPrefix, parseIpv6Prefix, parsePrefix } from '../../dataplane/wire/prefix.ts'
import { LONGEST_TIMER_MS } from '../../src/clock.ts'
import type { Lease } from '../../src/lease/lease.ts'
import { LEASE_TTL_MS } from '../../src/store/lease-book.ts'
import { peerLease } from '../support/peer-lease.ts'
import {
  A,
  attributesOf,
  B,
  CONFIG,
  DUAL_CONFIG,
  MAC,
  type Make,
  request,
  type StoreHarness,
} from '../support/store-harness.ts'
import { ipv6Rules } from './lease-store-ipv6.ts'
import { outageRules, watchRules } from './lease-store-watch.ts'

export function leaseStoreCompliance(makeHarness: () => StoreHarness): void {
  const make = () => {
    const harness = makeHarness()
    harness.setConfig(CONFIG)
    return harness
  }
  describe('config', () => configRules(make))
  describe('the wait for a config', () => configWaitRules(make))
  describe('acquire', () => acquireRules(make))
  describe('acquire with IPv6', () => dualStackRules(make))
  describe('without IPv4', () => ipv6Rules(make))
  describe('races', () => raceRules(make))
  describe('renew', () => renewRules(make))
  describe('release and read', () => releaseRules(make))
  describe('watch', () => watchRules(make))
  describe('an outage', () => outageRules(make))
}

function configRules(make: Make): void {
  test('is handed over as it stands', async () => {
    expect((await make().open().readNetworkConfig()).trim()).toBe(CONFIG)
  })

  test('a missing one is an error that may pass, and says how to write one', async () => {
    const harness = make()
    const store = harness.open()
    harness.setConfig(null)
    await expect(store.readNetworkConfig()).rejects.toMatchObject({ code: 'config-missing', retryable: true })
    harness.setConfig(CONFIG)
    await expect(store.readNetworkConfig()).resolves.toContain('10.244.0.0/16')
  })
}

function configWaitRules(make: Make): void {
  test('ends at once when there is a config', async () => {
    await make().open().awaitNetworkConfig(new AbortController().signal)
  })

  test('ends soon after one is written, and not before', async () => {
    const harness = make()
    harness.setConfig(null)
    const told = vi.fn()
    const waiting = harness.open().awaitNetworkConfig(new AbortController().signal).then(told)
    await harness.clock.advance(LONGEST_TIMER_MS)
    expect(told).not.toHaveBeenCalled()
    harness.setConfig(CONFIG)
    await harness.clock.advance(1000)
    await waiting
  })

  test('ends with its signal, also where the store is away', async () => {
    const harness = make()
    harness.setConfig(null)
    const [store, end] = [harness.open(), new AbortController()]
    const waiting = [store.awaitNetworkConfig(end.signal)]
    await harness.clock.advance(1000)
    harness.setOutage(true)
    waiting.push(store.awaitNetworkConfig(end.signal))
    await harness.clock.advance(LONGEST_TIMER_MS)
    end.abort()
    await Promise.all(waiting)
    harness.setOutage(false)
  })
}

function acquireRules(make: Make): void {
  test('gives a subnet of the range for a day', async () => {
    const { clock, open } = make()
    const lease = await open().acquire(request(A))
    expect(lease.subnet!.length).toBe(24)
    expect(formatPrefix(lease.subnet!)).toMatch(/^10\.244\.[1-9]\d*\.0\/24$/)
    expect(lease.attributes).toEqual(attributesOf(A))
    expect(lease.expiresAtMs).toBe(clock.wallMs() + LEASE_TTL_MS)
  })

  test('a second time gives the same subnet, fresh, and hands over what was there', async () => {
    const { clock, open } = make()
    const first = await open().acquire(request(A))
    await clock.advance(3600_000)
    const seen: (Lease | null)[] = []
    const attributes = (existing: Lease | null) => {
      seen.push(existing)
      return attributesOf(A, '0a:00:00:00:00:77')
    }
    const second = await open().acquire({ ...request(A, '10.244.99.0/24'), attributes })
    expect(second.subnet).toEqual(first.subnet)
    expect(second.revision).toBeGreaterThan(first.revision)
    expect(second.expiresAtMs).toBe(clock.wallMs() + LEASE_TTL_MS)
    expect(seen).toEqual([first])
    expect((await open().read(first))?.attributes).toEqual(attributesOf(A, '0a:00:00:00:00:77'))
  })

  test('the previous subnet is taken when it is free', async () => {
    expect(formatPrefix((await make().open().acquire(request(A, '10.244.6.0/24'))).subnet!)).toBe('10.244.6.0/24')
  })

  test('a previous subnet that now belongs to another host is neither taken nor written to', async () => {
    const harness = make()
    const theirs = await harness.open().acquire(request(B, '10.244.6.0/24'))
    const ours = await harness.open().acquire(request(A, '10.244.6.0/24'))
    expect(ours.subnet).not.toEqual(theirs.subnet)
    expect(await harness.open().read(theirs)).toEqual(theirs)
  })

  test('an expired lease whose subnet is still free gives the same subnet again', async () => {
    const { clock, open } = make()
    await open().acquire(request(A, '10.244.6.0/24'))
    await clock.advance(LEASE_TTL_MS + 1000)
    expect(await open().read({ subnet: parsePrefix('10.244.6.0/24'), ipv6Subnet: null })).toBeNull()
    expect(formatPrefix((await open().acquire(request(A, '10.244.6.0/24'))).subnet!)).toBe('10.244.6.0/24')
  })

  test('a reservation for our address is taken over and stays without end', async () => {
    const harness = make()
    harness.put({ ...peerLease('10.244.8.0/24', A, MAC), expiresAtMs: null })
    const lease = await harness.open().acquire(request(A))
    expect([formatPrefix(lease.subnet!), lease.expiresAtMs]).toEqual(['10.244.8.0/24', null])
    expect((await harness.open().renew(lease)).expiresAtMs).toBeNull()
    await harness.clock.advance(10 * LEASE_TTL_MS)
    expect(await harness.open().read(lease)).toMatchObject({ expiresAtMs: null })
  })

  test('after the network changed, the old lease goes and a subnet of the new network comes', async () => {
    const { open } = make()
    const old = await open().acquire(request(A))
    const fresh = await open().acquire(request(A, formatPrefix(old.subnet!), '{"Network":"10.4.0.0/16"}'))
    expect(formatPrefix(fresh.subnet!)).toMatch(/^10\.4\./)
    expect(await open().read(old)).toBeNull()
  })

  test('when all subnets are taken the error says range, number and soonest expiry, until one expires', async () => {
    const { clock, open } = make()
    const small = '{"Network":"10.0.0.0/28"}'
    const end = new Date(clock.wallMs() + LEASE_TTL_MS).toISOString()
    for (const host of [2, 3, 4]) await open().acquire(request(`192.0.2.${host}`, null, small))
    await expect(open().acquire(request(A, null, small))).rejects.toMatchObject({
      code: 'out-of-subnets',
      retryable: true,
      message: expect.stringMatching(new RegExp(`10\\.0\\.0\\.4-10\\.0\\.0\\.12.*3 leases.*${end}`)),
    })
    await clock.advance(LEASE_TTL_MS + 1000)
    await expect(open().acquire(request(A, null, small))).resolves.toMatchObject({ attributes: attributesOf(A) })
  })
}

function dualStackRules(make: Make): void {
  const dual = (publicIp: string, previous: string | null = null) => request(publicIp, previous, DUAL_CONFIG)

  test('gives a subnet of each range, which a second time are the same', async () => {
    const { open } = make()
    const lease = await open().acquire(dual(A))
    expect(formatPrefix(lease.subnet!)).toMatch(/^10\.244\.[1-9]\d*\.0\/24$/)
    expect(lease.ipv6Subnet).toMatch(/^fd00:10:244:[0-9a-f]+::\/64$/)
    expect(await open().read(lease)).toEqual(lease)
    const again = await open().acquire(dual(A, '10.244.99.0/24'))
    expect([again.subnet, again.ipv6Subnet]).toEqual([lease.subnet, lease.ipv6Subnet])
    expect((await open().renew(again)).ipv6Subnet).toBe(lease.ipv6Subnet)
    await open().release(await open().acquire(dual(A)))
    expect(await open().read(lease)).toBeNull()
  })

  test('takes the remembered half again, and leaves one that another node holds', async () => {
    const { open } = make()
    const previousIpv6Subnet = parseIpv6Prefix('fd00:10:244:6::/64')
    const first = await open().acquire({ ...dual(A, '10.244.6.0/24'), previousIpv6Subnet })
    const second = await open().acquire({ ...dual(B, '10.244.7.0/24'), previousIpv6Subnet })
    expect(first.ipv6Subnet).toBe('fd00:10:244:6::/64')
    expect(formatPrefix(second.subnet!)).toBe('10.244.7.0/24')
    expect(second.ipv6Subnet).not.toBe('fd00:10:244:6::/64')
  })

  test('leaves a lease of another node without IPv6 as it is', async () => {
    const { open } = make()
    const theirs = await open().acquire(request(B))
    const ours = await open().acquire(dual(A, formatPrefix(theirs.subnet!)))
    expect(ours.subnet).not.toEqual(theirs.subnet)
    expect(await open().read(theirs)).toEqual(theirs)
  })

  test('gives an own lease its IPv6 half, and takes it away again, with the config; the IPv4 subnet stays', async () => {
    const { open } = make()
    const before = await open().acquire(request(A))
    const { subnet } = before
    expect(await open().acquire(dual(A))).toMatchObject({ subnet, ipv6Subnet: expect.stringMatching(/^fd00:10:244:/) })
    expect(await open().acquire(request(A))).toMatchObject({ subnet, ipv6Subnet: null })
    expect(await open().read(before)).toMatchObject({ ipv6Subnet: null })
  })

  test('nodes that come at once get halves of their own', async () => {
    const { open } = make()
    const leases = await Promise.all(
      Array.from({ length: 20 }, (_, index) => open().acquire(dual(`192.0.2.${index + 1}`))),
    )
    expect(new Set(leases.map(({ ipv6Subnet }) => ipv6Subnet)).size).toBe(20)
  })
}

function raceRules(make: Make): void {
  test('nodes that come at once get subnets of their own', async () => {
    const { open } = make()
    const nodes = Array.from({ length: 20 }, (_, index) => open().acquire(request(`192.0.2.${index + 1}`)))
    const subnets = (await Promise.all(nodes)).map((lease) => formatPrefix(lease.subnet!))
    expect(new Set(subnets).size).toBe(20)
  })

  test('of nodes that remember one free subnet exactly one gets it', async () => {
    const { open } = make()
    const nodes = Array.from({ length: 10 }, (_, index) =>
      open().acquire(request(`192.0.2.${index + 1}`, '10.244.6.0/24')),
    )
    const subnets = (await Promise.all(nodes)).map((lease) => formatPrefix(lease.subnet!))
    expect(subnets.filter((subnet) => subnet === '10.244.6.0/24')).toHaveLength(1)
    expect(new Set(subnets).size).toBe(10)
  })

  test('of two renewals from the same revision one wins', async () => {
    const { open } = make()
    const lease = await open().acquire(request(A))
    const results = await Promise.allSettled([open().renew(lease), open().renew(lease)])
    expect(results.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected'])
  })
}

function renewRules(make: Make): void {
  test('gives a fresh day to the same subnet and changes nothing else', async () => {
    const { clock, open } = make()
    const lease = await open().acquire(request(A))
    await clock.advance(3600_000)
    const renewed = await open().renew(lease)
    expect(renewed).toEqual({ ...lease, revision: renewed.revision, expiresAtMs: clock.wallMs() + LEASE_TTL_MS })
    expect(renewed.revision).toBeGreaterThan(lease.revision)
    expect(await open().read(lease)).toEqual(renewed)
  })

  test('puts back a lease that is gone', async () => {
    const harness = make()
    const lease = await harness.open().acquire(request(A))
    harness.remove(formatPrefix(lease.subnet!))
    const again = await harness.open().renew(lease)
    expect([again.subnet, again.attributes]).toEqual([lease.subnet, lease.attributes])
    expect(await harness.open().read(lease)).toEqual(again)
  })

  test('never writes over another node', async () => {
    const harness = make()
    const lease = await harness.open().acquire(request(A, '10.244.6.0/24'))
    harness.remove('10.244.6.0/24')
    const theirs = await harness.open().acquire(request(B, '10.244.6.0/24'))
    await expect(harness.open().renew(lease)).rejects.toMatchObject({
      code: 'lease-conflict',
      message: expect.stringMatching(/192\.0\.2\.1.*192\.0\.2\.2/),
    })
    expect(await harness.open().read(lease)).toEqual(theirs)
  })

  test('does not put back a lease whose subnet another one overlaps by now', async () => {
    const harness = make()
    const lease = await harness.open().acquire(request(A, '10.244.6.0/24'))
    harness.remove('10.244.6.0/24')
    harness.put({ ...peerLease('10.244.6.128/25', B, MAC), expiresAtMs: null })
    await expect(harness.open().renew(lease)).rejects.toMatchObject({ code: 'lease-conflict' })
    expect(await harness.open().read(lease)).toBeNull()
  })
}

function releaseRules(make: Make): void {
  test('a released lease is gone, and releasing it again is no error', async () => {
    const { open } = make()
    const lease = await open().acquire(request(A))
    await open().release(lease)
    expect(await open().read(lease)).toBeNull()
    await open().release(lease)
  })

  test('a lease that was written since, or is another node\u2019s, is not released', async () => {
    const { open } = make()
    const old = await open().acquire(request(A))
    const renewed = await open().renew(old)
    await open().release(old)
    expect(await open().read(old)).toEqual(renewed)
  })

  test('a revision is never given out twice', async () => {
    const { open } = make()
    const first = await open().acquire(request(A, '10.244.6.0/24'))
    await open().release(first)
    const second = await open().acquire(request(A, '10.244.6.0/24'))
    expect(second.revision).toBeGreaterThan(first.revision)
  })
}
