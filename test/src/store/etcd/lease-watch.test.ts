// The watch over leases against a server that does what a test says, on a clock that a test moves.
import { describe, expect, onTestFinished, test } from 'vitest'
import { formatPrefix } from '../../../../dataplane/wire/prefix.ts'
import { EtcdStore } from '../../../../src/store/etcd/etcd-store.ts'
import {
  FIRST_BACKOFF_MS,
  LONGEST_BACKOFF_MS,
  LONGEST_FLAP_BACKOFF_MS,
} from '../../../../src/store/etcd/lease-watch.ts'
import { OPEN_LIMIT_MS, PROGRESS_MS, SILENCE_LIMIT_MS } from '../../../../src/store/etcd/watch-session.ts'
import { formatLeaseValue } from '../../../../src/store/flannel-json.ts'
import type { LeaseNews } from '../../../../src/store/lease-store.ts'
import { peerLease } from '../../../support/peer-lease.ts'
import { RecordingLog } from '../../../support/recording-log.ts'
import { seededRandom } from '../../../support/seeded-random.ts'
import { StubEtcd } from '../../../support/stub-etcd.ts'
import { VirtualClock } from '../../../support/virtual-clock.ts'

const PREFIX = '/net'
const keyOf = (subnet: string) => `${PREFIX}/subnets/${subnet.replace('/', '-')}`
const valueWith = (last: number, mac = '02:00:00:00:00:01') =>
  formatLeaseValue(peerLease('10.244.0.0/24', `192.0.2.${last}`, mac).attributes)

function follow() {
  const clock = new VirtualClock()
  const etcd = new StubEtcd(clock)
  const log = new RecordingLog()
  const store = new EtcdStore('etcd', PREFIX, etcd, { clock, log, random: seededRandom(5) })
  const news: LeaseNews[] = []
  const end = new AbortController()
  const start = () => {
    const done = (async () => {
      for await (const item of store.watch(end.signal)) news.push(item)
    })()
    onTestFinished(async () => {
      end.abort()
      await done
      expect(clock.timers).toBe(0)
      expect(etcd.streams).toBe(0)
    })
    return done
  }
  const subnets = () => {
    const last = news.at(-1)
    return last?.type === 'snapshot' ? last.leases.map((lease) => formatPrefix(lease.subnet!)) : last?.type
  }
  const put = (subnet: string, value = valueWith(9)) => etcd.put(keyOf(subnet), value, '7')
  return { clock, etcd, log, news, start, subnets, put, end }
}

/** A watch that has seen one lease. */
async function following() {
  const all = follow()
  all.put('10.244.1.0/24')
  all.start()
  await all.clock.advance(1000)
  expect(all.subnets()).toEqual(['10.244.1.0/24'])
  return all
}

describe('after a break', () => {
  test('the watch goes on behind the last revision it saw, and lists nothing again', async () => {
    const { clock, etcd, subnets, put } = await following()
    etcd.breakStreams()
    put('10.244.2.0/24')
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(subnets()).toEqual(['10.244.1.0/24', '10.244.2.0/24'])
    expect(etcd.asked).toEqual(['range', 'watch from 3', 'watch from 3'])
  })

  test('the consumer hears of the break, and that it is over, though nothing changed', async () => {
    const { clock, etcd, news } = await following()
    etcd.breakStreams()
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(news.map(({ type }) => type)).toEqual(['snapshot', 'disconnected', 'snapshot'])
  })

  test('progress without events moves the revision, one message late, so that compaction does not reach it', async () => {
    const { clock, etcd, subnets } = await following()
    for (let other = 0; other < 50; other++) etcd.put('/elsewhere', String(other))
    await clock.advance(3 * PROGRESS_MS)
    etcd.compact()
    etcd.breakStreams()
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(etcd.asked.at(-1)).toBe('watch from 53')
    expect(etcd.asked.filter((call) => call === 'range')).toHaveLength(1)
    expect(subnets()).toEqual(['10.244.1.0/24'])
  })

  test('progress that runs ahead of its events loses none of them', async () => {
    const { clock, etcd, subnets, put } = await following()
    etcd.say({ revision: 3 }) // though what happened at 3 has not been told
    etcd.breakStreams()
    put('10.244.2.0/24')
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(subnets()).toEqual(['10.244.1.0/24', '10.244.2.0/24'])
  })
})

describe('compaction meanwhile', () => {
  test('is no reconnection: nothing is told before the listing', async () => {
    const { clock, etcd, news, put } = await following()
    put('10.244.2.0/24')
    await clock.advance(20_000)
    etcd.away = true
    etcd.breakStreams()
    put('10.244.3.0/24')
    etcd.put('/elsewhere', 'x')
    etcd.compact()
    etcd.away = false
    const before = news.length
    await clock.advance(FIRST_BACKOFF_MS)
    expect(news.slice(before).map(({ type }) => type)).toEqual(['disconnected', 'snapshot'])
    expect(etcd.asked.slice(-3)).toEqual(['watch from 4', 'range', `watch from ${etcd.revision + 1}`])
  })

  test('leads to one listing, which shows what is gone, new and changed, and one watch behind it', async () => {
    const { clock, etcd, news, put } = await following()
    put('10.244.2.0/24')
    await clock.advance(0)
    etcd.away = true
    etcd.breakStreams()
    await clock.advance(60_000)
    etcd.delete(keyOf('10.244.1.0/24'))
    put('10.244.2.0/24', valueWith(9, '02:00:00:00:00:99'))
    put('10.244.3.0/24')
    etcd.put('/elsewhere', 'x')
    etcd.compact()
    etcd.away = false
    etcd.asked.length = 0
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(etcd.asked).toEqual(['watch from 4', 'range', `watch from ${etcd.revision + 1}`])
    expect(news.at(-1)).toMatchObject({
      type: 'snapshot',
      leases: [
        { subnet: { length: 24 }, attributes: { backendData: { VtepMAC: '02:00:00:00:00:99' } } },
        { attributes: { publicIp: 0xc0000209 } },
      ],
    })
  })

  test('that comes back each time is met with longer and longer pauses', async () => {
    const { clock, etcd } = await following()
    etcd.asked.length = 0
    for (let minute = 0; minute < 60; minute++) {
      etcd.compacted = Number.MAX_SAFE_INTEGER
      await clock.advance(1000)
      etcd.breakStreams()
    }
    expect(etcd.asked.filter((call) => call === 'range').length).toBeLessThan(25)
  })
})

describe('a silent stream', () => {
  test('is asked, then given up and opened again: what came meanwhile is there', async () => {
    const { clock, etcd, news, subnets, put } = await following()
    etcd.silent = true
    const before = etcd.asked.length
    await clock.advance(SILENCE_LIMIT_MS)
    expect(news.at(-1)).toMatchObject({ type: 'disconnected', why: expect.stringMatching(/said nothing for 25 s/) })
    put('10.244.2.0/24')
    etcd.silent = false
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(etcd.asked.slice(before)).toEqual(['watch from 3'])
    expect(subnets()).toEqual(['10.244.1.0/24', '10.244.2.0/24'])
  })

  test('that answers when it is asked stays', async () => {
    const { clock, etcd, news } = await following()
    await clock.advance(600_000)
    expect(news).toHaveLength(1)
    expect(etcd.asked).toEqual(['range', 'watch from 3'])
  })

  test('that is never confirmed has failed', async () => {
    const { clock, etcd, news, start } = follow()
    etcd.mute = true
    start()
    await clock.advance(OPEN_LIMIT_MS)
    expect(news.at(-1)).toMatchObject({ type: 'disconnected', why: expect.stringContaining('no watch within 5 s') })
  })

  test('after a suspend is given up at the first look: its connection may be long gone', async () => {
    const { clock, etcd, news } = await following()
    etcd.silent = true
    clock.suspend(3_600_000)
    await clock.advance(PROGRESS_MS)
    expect(news.map(({ type }) => type)).toContain('disconnected')
  })
})

describe('many failures', () => {
  test('1,000 in a row: one is told, pauses grow to 5 s, one stream at a time, nothing is left behind', async () => {
    const { clock, etcd, news, log, subnets, put } = await following()
    etcd.away = true
    etcd.breakStreams()
    etcd.asked.length = 0
    const heap = process.memoryUsage().heapUsed
    let ms = 0
    for (; etcd.asked.length < 1000; ms += 60_000) {
      await clock.advance(60_000)
      expect(clock.timers).toBeLessThanOrEqual(2)
    }
    expect(process.memoryUsage().heapUsed - heap).toBeLessThan(50e6)
    expect(ms / etcd.asked.length).toBeGreaterThan(LONGEST_BACKOFF_MS / 2)
    expect(ms / etcd.asked.length).toBeLessThan(LONGEST_BACKOFF_MS)
    expect(news.filter(({ type }) => type === 'disconnected')).toHaveLength(1)
    expect(log.lines).toEqual([])
    put('10.244.2.0/24')
    etcd.away = false
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(subnets()).toEqual(['10.244.1.0/24', '10.244.2.0/24'])
    expect(etcd.streams).toBe(1)
  })

  test('another reason is told when it comes, and the same one no more', async () => {
    const { clock, etcd, news } = await following()
    etcd.away = true
    etcd.breakStreams()
    for (const why of ['the stub is away', 'wrong password', 'wrong password', 'the stub is away']) {
      etcd.why = why
      await clock.advance(60_000)
    }
    const reasons = news.flatMap((item) => (item.type === 'disconnected' ? [item.why] : []))
    expect(reasons).toEqual(['the stub is away', 'wrong password', 'the stub is away'])
  })

  test('streams that open and break at once are told of no more than every 20 s', async () => {
    const { clock, etcd, news } = await following()
    for (let second = 0; second < 1000; second++) {
      await clock.advance(1000)
      etcd.breakStreams()
    }
    const disconnects = news.filter(({ type }) => type === 'disconnected').length
    expect(disconnects).toBeLessThan(1_000_000 / (LONGEST_FLAP_BACKOFF_MS / 2))
    expect(disconnects).toBeGreaterThan(10)
  })

  test('in the first minute of an outage there are at most 20 calls, the first within 100 ms', async () => {
    const { clock, etcd } = await following()
    etcd.away = true
    etcd.breakStreams()
    etcd.asked.length = 0
    await clock.advance(100)
    expect(etcd.asked).toHaveLength(1)
    await clock.advance(59_900)
    expect(etcd.asked.length).toBeLessThanOrEqual(20 + 1)
  })

  test('a first listing that fails is told, and tried until it works', async () => {
    const { clock, etcd, start, subnets, put } = follow()
    etcd.away = true
    start()
    await clock.advance(60_000)
    expect(subnets()).toBe('disconnected')
    put('10.244.1.0/24')
    etcd.away = false
    await clock.advance(LONGEST_BACKOFF_MS)
    expect(subnets()).toEqual(['10.244.1.0/24'])
  })
})

describe('keys that are no leases', () => {
  test.each([
    ['a name', `${PREFIX}/subnets/planted`, '{}'],
    ['a value', keyOf('10.244.5.0/24'), '{bad'],
    ['a public address', keyOf('10.244.5.0/24'), '{"PublicIP":"::1"}'],
  ])('%s: warned about once, listed or written later, and no other lease suffers', async (_, key, value) => {
    const { clock, etcd, log, start, subnets, put } = follow()
    put('10.244.1.0/24')
    etcd.put(key, value)
    start()
    await clock.advance(0)
    expect(subnets()).toEqual(['10.244.1.0/24'])
    etcd.put(key, value)
    put('10.244.2.0/24')
    await clock.advance(0)
    expect(subnets()).toEqual(['10.244.1.0/24', '10.244.2.0/24'])
    expect(log.lines).toEqual([expect.objectContaining({ event: 'lease-unreadable' })])
    expect(log.lines[0]?.message).toContain(key)
  })

  test('a lease whose value breaks stays as it was, until its key is gone', async () => {
    const { clock, etcd, subnets, put, log } = await following()
    put('10.244.1.0/24', '{bad')
    await clock.advance(0)
    expect(subnets()).toEqual(['10.244.1.0/24'])
    expect(log.lines).toHaveLength(1)
    etcd.delete(keyOf('10.244.1.0/24'))
    await clock.advance(0)
    expect(subnets()).toEqual([])
  })

  test('a key beside the folder is not looked at', async () => {
    const { clock, etcd, log, subnets } = await following()
    etcd.put(`${PREFIX}/subnetsX`, '{bad')
    await clock.advance(0)
    expect(subnets()).toEqual(['10.244.1.0/24'])
    expect(log.lines).toEqual([])
  })
})

test('long listings are read page by page at one revision', async () => {
  const { clock, etcd, news, start, subnets, put } = follow()
  for (let node = 0; node < 2500; node++) put(`10.${node >> 8}.${node & 255}.0/24`)
  start()
  await clock.advance(0)
  expect(etcd.asked.slice(0, 3)).toEqual(['range', 'range at 2501', 'range at 2501'])
  expect(news.at(-1)).toMatchObject({ revision: 2501 })
  expect(subnets()).toHaveLength(2500)
})

test('a burst becomes few snapshots, the last of which has all', async () => {
  const { clock, news, subnets, put } = await following()
  for (let third = 2; third < 200; third++) put(`10.244.${third}.0/24`)
  await clock.advance(0)
  expect(news.length).toBeLessThan(4)
  expect(subnets()).toHaveLength(199)
})

test('a consumer that is still at work when the watch is ended holds no stream, and then hears that it is over', async () => {
  const { clock, etcd, put } = follow()
  const end = new AbortController()
  const store = new EtcdStore('etcd', PREFIX, etcd, { clock, log: new RecordingLog(), random: () => 0 })
  const watch = store.watch(end.signal)[Symbol.asyncIterator]()
  await watch.next()
  const second = watch.next()
  await clock.advance(1000)
  put('10.244.1.0/24')
  await clock.advance(1000)
  await second
  expect(etcd.streams).toBe(1)
  end.abort()
  expect([etcd.streams, clock.timers]).toEqual([0, 0])
  expect(await watch.next()).toMatchObject({ done: true })
})
