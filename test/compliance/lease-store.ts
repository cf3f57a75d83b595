// What every lease store must do, whatever it is made of. Each implementation runs this suite from its own test file.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../dataplane/wire/address.ts'
import { formatPrefix, parsePrefix } from '../../dataplane/wire/prefix.ts'
import { LONGEST_TIMER_MS } from '../../src/clock.ts'
import { parseNetworkConfig } from '../../src/config/network-config.ts'
import type { Lease, LeaseAttributes } from '../../src/lease/lease.ts'
import { LEASE_TTL_MS } from '../../src/store/lease-book.ts'
import type { AcquireRequest, LeaseNews, LeaseStore } from '../../src/store/lease-store.ts'
import { peerLease } from '../support/peer-lease.ts'
import { settle, type VirtualClock } from '../support/virtual-clock.ts'

/** A store under test, and what an operator with direct access to its data could do. */
export interface StoreHarness {
  readonly clock: VirtualClock
  /** Another node's view of the same data. */
  open(): LeaseStore
  setConfig(text: string | null): void
  /** Writes a lease behind everybody's back, with a revision of its own making. */
  put(lease: Lease): void
  remove(subnet: string): void
  /** Makes every call fail as if the store were away, or works again. */
  setOutage(away: boolean): void
}

const CONFIG = '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'
const A = '192.0.2.1'
const B = '192.0.2.2'
const MAC = '0a:00:00:00:00:01'

function attributesOf(publicIp: string, mac = MAC): LeaseAttributes {
  return peerLease('10.244.0.0/24', publicIp, mac).attributes
}

function request(publicIp: string, previous: string | null = null, config = CONFIG): AcquireRequest {
  return {
    network: parseNetworkConfig(config),
    publicIp: parseIpv4(publicIp)!,
    previousSubnet: previous === null ? null : parsePrefix(previous),
    attributes: () => attributesOf(publicIp),
  }
}

function subnetsOf(news: LeaseNews | undefined): string[] | string | undefined {
  return news?.type === 'snapshot' ? news.leases.map((lease) => formatPrefix(lease.subnet)) : news?.type
}

export function leaseStoreCompliance(makeHarness: () => StoreHarness): void {
  const make = () => {
    const harness = makeHarness()
    harness.setConfig(CONFIG)
    return harness
  }
  describe('config', () => configRules(make))
  describe('acquire', () => acquireRules(make))
  describe('races', () => raceRules(make))
  describe('renew', () => renewRules(make))
  describe('release and read', () => releaseRules(make))
  describe('watch', () => watchRules(make))
  describe('an outage', () => outageRules(make))
}

type Make = () => StoreHarness

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

function acquireRules(make: Make): void {
  test('gives a subnet of the range for a day', async () => {
    const { clock, open } = make()
    const lease = await open().acquire(request(A))
    expect(lease.subnet.length).toBe(24)
    expect(formatPrefix(lease.subnet)).toMatch(/^10\.244\.[1-9]\d*\.0\/24$/)
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
    expect((await open().read(first.subnet))?.attributes).toEqual(attributesOf(A, '0a:00:00:00:00:77'))
  })

  test('the previous subnet is taken when it is free', async () => {
    expect(formatPrefix((await make().open().acquire(request(A, '10.244.6.0/24'))).subnet)).toBe('10.244.6.0/24')
  })

  test('a previous subnet that now belongs to another host is neither taken nor written to', async () => {
    const harness = make()
    const theirs = await harness.open().acquire(request(B, '10.244.6.0/24'))
    const ours = await harness.open().acquire(request(A, '10.244.6.0/24'))
    expect(ours.subnet).not.toEqual(theirs.subnet)
    expect(await harness.open().read(theirs.subnet)).toEqual(theirs)
  })

  test('an expired lease whose subnet is still free gives the same subnet again', async () => {
    const { clock, open } = make()
    await open().acquire(request(A, '10.244.6.0/24'))
    await clock.advance(LEASE_TTL_MS + 1000)
    expect(await open().read(parsePrefix('10.244.6.0/24')!)).toBeNull()
    expect(formatPrefix((await open().acquire(request(A, '10.244.6.0/24'))).subnet)).toBe('10.244.6.0/24')
  })

  test('a reservation for our address is taken over and stays without end', async () => {
    const harness = make()
    harness.put({ ...peerLease('10.244.8.0/24', A, MAC), expiresAtMs: null })
    const lease = await harness.open().acquire(request(A))
    expect([formatPrefix(lease.subnet), lease.expiresAtMs]).toEqual(['10.244.8.0/24', null])
    expect((await harness.open().renew(lease)).expiresAtMs).toBeNull()
    await harness.clock.advance(10 * LEASE_TTL_MS)
    expect(await harness.open().read(lease.subnet)).toMatchObject({ expiresAtMs: null })
  })

  test('after the network changed, the old lease goes and a subnet of the new network comes', async () => {
    const { open } = make()
    const old = await open().acquire(request(A))
    const fresh = await open().acquire(request(A, formatPrefix(old.subnet), '{"Network":"10.4.0.0/16"}'))
    expect(formatPrefix(fresh.subnet)).toMatch(/^10\.4\./)
    expect(await open().read(old.subnet)).toBeNull()
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

function raceRules(make: Make): void {
  test('nodes that come at once get subnets of their own', async () => {
    const { open } = make()
    const nodes = Array.from({ length: 20 }, (_, index) => open().acquire(request(`192.0.2.${index + 1}`)))
    const subnets = (await Promise.all(nodes)).map((lease) => formatPrefix(lease.subnet))
    expect(new Set(subnets).size).toBe(20)
  })

  test('of nodes that remember one free subnet exactly one gets it', async () => {
    const { open } = make()
    const nodes = Array.from({ length: 10 }, (_, index) =>
      open().acquire(request(`192.0.2.${index + 1}`, '10.244.6.0/24')),
    )
    const subnets = (await Promise.all(nodes)).map((lease) => formatPrefix(lease.subnet))
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
    expect(await open().read(lease.subnet)).toEqual(renewed)
  })

  test('puts back a lease that is gone', async () => {
    const harness = make()
    const lease = await harness.open().acquire(request(A))
    harness.remove(formatPrefix(lease.subnet))
    const again = await harness.open().renew(lease)
    expect([again.subnet, again.attributes]).toEqual([lease.subnet, lease.attributes])
    expect(await harness.open().read(lease.subnet)).toEqual(again)
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
    expect(await harness.open().read(lease.subnet)).toEqual(theirs)
  })

  test('does not put back a lease whose subnet another one overlaps by now', async () => {
    const harness = make()
    const lease = await harness.open().acquire(request(A, '10.244.6.0/24'))
    harness.remove('10.244.6.0/24')
    harness.put({ ...peerLease('10.244.6.128/25', B, MAC), expiresAtMs: null })
    await expect(harness.open().renew(lease)).rejects.toMatchObject({ code: 'lease-conflict' })
    expect(await harness.open().read(lease.subnet)).toBeNull()
  })
}

function releaseRules(make: Make): void {
  test('a released lease is gone, and releasing it again is no error', async () => {
    const { open } = make()
    const lease = await open().acquire(request(A))
    await open().release(lease)
    expect(await open().read(lease.subnet)).toBeNull()
    await open().release(lease)
  })

  test('a lease that was written since, or is another node\u2019s, is not released', async () => {
    const { open } = make()
    const old = await open().acquire(request(A))
    const renewed = await open().renew(old)
    await open().release(old)
    expect(await open().read(old.subnet)).toEqual(renewed)
  })

  test('a revision is never given out twice', async () => {
    const { open } = make()
    const first = await open().acquire(request(A, '10.244.6.0/24'))
    await open().release(first)
    const second = await open().acquire(request(A, '10.244.6.0/24'))
    expect(second.revision).toBeGreaterThan(first.revision)
  })
}

/** A watch, with the latest news at hand. */
function follow(store: LeaseStore, clock: VirtualClock) {
  const end = new AbortController()
  const news: LeaseNews[] = []
  const done = (async () => {
    for await (const item of store.watch(end.signal)) news.push(item)
  })()
  return {
    /** News so far, after the time in which any change must be noticed. */
    async latest(): Promise<LeaseNews | undefined> {
      await clock.advance(LONGEST_TIMER_MS)
      return news.at(-1)
    },
    async stop(): Promise<number> {
      end.abort()
      await done
      return news.length
    },
  }
}

function watchRules(make: Make): void {
  test('begins with what is there, the own lease included, also when there is nothing', async () => {
    const { clock, open } = make()
    const empty = follow(open(), clock)
    expect(subnetsOf(await empty.latest())).toEqual([])
    await open().acquire(request(A, '10.244.6.0/24'))
    const later = follow(open(), clock)
    expect(subnetsOf(await later.latest())).toEqual(['10.244.6.0/24'])
    await Promise.all([empty.stop(), later.stop()])
  })

  test('tells several watchers of a new lease, a changed MAC, and a removal', async () => {
    const harness = make()
    const { clock, open } = harness
    const watchers = [follow(open(), clock), follow(open(), clock)]
    const expectAll = async (expected: unknown) => {
      for (const watcher of watchers)
        expect(await watcher.latest()).toMatchObject({ type: 'snapshot', leases: expected })
    }
    await expectAll([])
    const lease = await open().acquire(request(B, '10.244.6.0/24'))
    await expectAll([lease])
    await open().acquire({ ...request(B), attributes: () => attributesOf(B, '0a:00:00:00:00:99') })
    await expectAll([{ attributes: attributesOf(B, '0a:00:00:00:00:99') }])
    harness.remove('10.244.6.0/24')
    await expectAll([])
    for (const watcher of watchers) await watcher.stop()
  })

  test('tells of an expiry without any write', async () => {
    const { clock, open } = make()
    await open().acquire(request(B, '10.244.6.0/24'))
    const watcher = follow(open(), clock)
    expect(subnetsOf(await watcher.latest())).toEqual(['10.244.6.0/24'])
    clock.suspend(LEASE_TTL_MS)
    expect(subnetsOf(await watcher.latest())).toEqual([])
    await watcher.stop()
  })

  test.each([-1, 1])('a step of the wall clock by %i year ends no lease and makes none live longer', async (years) => {
    const { clock, open } = make()
    const lease = await open().acquire(request(B, '10.244.6.0/24'))
    clock.stepWall(years * 365 * LEASE_TTL_MS)
    expect(await open().read(lease.subnet)).not.toBeNull()
    await clock.advance(LEASE_TTL_MS - 1000)
    expect(await open().read(lease.subnet)).not.toBeNull()
    await clock.advance(2000)
    expect(await open().read(lease.subnet)).toBeNull()
  })

  test('loses no change that happens while the reader is busy', async () => {
    const { clock, open } = make()
    const end = new AbortController()
    const seen: unknown[] = []
    const reader = (async () => {
      for await (const news of open().watch(end.signal)) {
        seen.push(subnetsOf(news))
        // Busy: the change comes between this item and the next.
        if (seen.length === 1) await open().acquire(request(B, '10.244.6.0/24'))
      }
    })()
    await clock.advance(2000)
    expect(seen).toEqual([[], ['10.244.6.0/24']])
    end.abort()
    await reader
  })

  test('says nothing while nothing changes, and ends at once when aborted', async () => {
    const { clock, open } = make()
    const watcher = follow(open(), clock)
    await clock.advance(60_000)
    expect(await watcher.stop()).toBe(1)
    expect(clock.timers).toBe(0)
  })

  test('revisions of snapshots never go back', async () => {
    const { clock, open } = make()
    const end = new AbortController()
    const revisions: number[] = []
    const reader = (async () => {
      for await (const news of open().watch(end.signal)) if (news.type === 'snapshot') revisions.push(news.revision)
    })()
    let lease = await open().acquire(request(B))
    for (let round = 0; round < 5; round++) {
      await clock.advance(2000)
      if (round % 2 === 0) await open().release(lease)
      else lease = await open().acquire(request(B))
    }
    await clock.advance(2000)
    end.abort()
    await reader
    expect(revisions.length).toBeGreaterThan(4)
    expect(revisions).toEqual([...revisions].sort((a, b) => a - b))
  })
}

function outageRules(make: Make): void {
  test('fails every call with an error that may pass', async () => {
    const harness = make()
    const store = harness.open()
    const lease = await store.acquire(request(A))
    harness.setOutage(true)
    const away = { code: 'store-unreadable', retryable: true, exitCode: 1, remedy: expect.stringMatching(/./) }
    await expect(store.readNetworkConfig()).rejects.toMatchObject(away)
    await expect(store.acquire(request(B))).rejects.toMatchObject(away)
    await expect(store.renew(lease)).rejects.toMatchObject(away)
    await expect(store.read(lease.subnet)).rejects.toMatchObject(away)
    harness.setOutage(false)
    expect(await store.read(lease.subnet)).toEqual(lease)
  })

  test('is told to watchers, which go on afterwards', async () => {
    const harness = make()
    const watcher = follow(harness.open(), harness.clock)
    expect(subnetsOf(await watcher.latest())).toEqual([])
    harness.setOutage(true)
    expect(subnetsOf(await watcher.latest())).toBe('disconnected')
    harness.setOutage(false)
    await harness.open().acquire(request(B, '10.244.6.0/24'))
    expect(subnetsOf(await watcher.latest())).toEqual(['10.244.6.0/24'])
    await settle()
    await watcher.stop()
  })
}
