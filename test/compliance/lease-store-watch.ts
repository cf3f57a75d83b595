// The part of the lease stores' rules that is about watching, and about a store that is away.
import { expect, test } from 'vitest'
import { formatPrefix } from '../../dataplane/wire/prefix.ts'
import { LONGEST_TIMER_MS } from '../../src/clock.ts'
import { LEASE_TTL_MS } from '../../src/store/lease-book.ts'
import type { LeaseNews, LeaseStore } from '../../src/store/lease-store.ts'
import { A, attributesOf, B, type Make, request } from '../support/store-harness.ts'
import { settle, type VirtualClock } from '../support/virtual-clock.ts'

function subnetsOf(news: LeaseNews | undefined): string[] | string | undefined {
  return news?.type === 'snapshot' ? news.leases.map((lease) => formatPrefix(lease.subnet!)) : news?.type
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

export function watchRules(make: Make): void {
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
    expect(await open().read(lease)).not.toBeNull()
    await clock.advance(LEASE_TTL_MS - 1000)
    expect(await open().read(lease)).not.toBeNull()
    await clock.advance(2000)
    expect(await open().read(lease)).toBeNull()
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

export function outageRules(make: Make): void {
  test('fails every call with an error that may pass', async () => {
    const harness = make()
    const store = harness.open()
    const lease = await store.acquire(request(A))
    harness.setOutage(true)
    const away = { code: 'store-unreadable', retryable: true, exitCode: 1, remedy: expect.stringMatching(/./) }
    await expect(store.readNetworkConfig()).rejects.toMatchObject(away)
    await expect(store.acquire(request(B))).rejects.toMatchObject(away)
    await expect(store.renew(lease)).rejects.toMatchObject(away)
    await expect(store.read(lease)).rejects.toMatchObject(away)
    harness.setOutage(false)
    expect(await store.read(lease)).toEqual(lease)
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
