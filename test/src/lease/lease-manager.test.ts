// Keeping a lease: renewal on its own clock, suspend, outages, revocation, and other hosts that want the same subnet.
import { describe, expect, onTestFinished, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { formatPrefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import type { FlanneletteError } from '../../../src/errors.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { LeaseManager } from '../../../src/lease/lease-manager.ts'
import { LEASE_TTL_MS } from '../../../src/store/lease-book.ts'
import type { LeaseStore } from '../../../src/store/lease-store.ts'
import { MemoryLeases } from '../../../src/store/memory.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const SUBNET = '10.244.1.0/24'
const CONFIG = parseNetworkConfig('{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}')
const OWN = peerLease(SUBNET, '192.0.2.1', '0a:00:00:00:00:01').attributes
const MARGIN_MS = 3600_000
const SECOND = 1000
const HOUR = 3600 * SECOND

/** Calls to a store with the boot time at which they were made. */
interface Call {
  readonly name: 'renew' | 'read'
  readonly atMs: number
}

interface Options {
  readonly confirmed?: boolean
  /** What happened between the grant and the manager. */
  granted?(clock: VirtualClock): void
  /** What happened in the store before the manager started. */
  before?(shared: MemoryLeases): void
  /** Changes the store before the manager sees it. */
  wrap?(store: LeaseStore): LeaseStore
}

async function makeManager(options: Options = {}) {
  const clock = new VirtualClock()
  const shared = new MemoryLeases(clock, null)
  const log = new RecordingLog()
  const calls: Call[] = []
  const inner = shared.open(() => 0)
  const lease = await inner.acquire({
    network: CONFIG,
    publicIp: OWN.publicIp,
    previousSubnet: parsePrefix(SUBNET),
    previousIpv6Subnet: null,
    attributes: () => OWN,
  })
  options.granted?.(clock)
  const store = recorded(inner, clock, calls)
  const snapshots: (readonly Lease[])[] = []
  const owned: Lease[] = []
  const reachable: boolean[] = []
  const losses: FlanneletteError[] = []
  const manager = new LeaseManager(lease, options.confirmed ?? true, {
    store: options.wrap?.(store) ?? store,
    clock,
    log,
    renewMarginMs: MARGIN_MS,
    onLeases: (leases) => snapshots.push(leases),
    onOwnLease: (own) => owned.push(own),
    onStore: (is) => reachable.push(is),
    onLost: (error) => losses.push(error),
  })
  options.before?.(shared)
  manager.start()
  onTestFinished(() => manager.stop())
  const remove = () => shared.edit((leases) => leases.filter((one) => formatPrefix(one.subnet!) !== SUBNET))
  const stored = async () => inner.read(lease)
  return { clock, shared, log, calls, lease, manager, snapshots, owned, reachable, losses, remove, stored }
}

/** Somebody else writes our key. */
function overwrite(shared: MemoryLeases, change: Partial<Lease>): void {
  const revision = shared.book().revision + 1
  shared.edit((leases) => {
    return leases.map((one) => (formatPrefix(one.subnet!) === SUBNET ? { ...one, revision, ...change } : one))
  })
}

/** The same store, writing down when it is asked. */
function recorded(store: LeaseStore, clock: VirtualClock, calls: Call[]): LeaseStore {
  return {
    name: store.name,
    renewal: store.renewal,
    remote: store.remote,
    readNetworkConfig: () => store.readNetworkConfig(),
    awaitNetworkConfig: (signal) => store.awaitNetworkConfig(signal),
    acquire: (request) => store.acquire(request),
    renew: (lease) => {
      calls.push({ name: 'renew', atMs: clock.bootMs() })
      return store.renew(lease)
    },
    release: (lease) => store.release(lease),
    read: (subnet) => {
      calls.push({ name: 'read', atMs: clock.bootMs() })
      return store.read(subnet)
    },
    watch: (signal) => store.watch(signal),
    publishReady: () => store.publishReady(),
    close: () => store.close(),
  }
}

function renewalsOf(calls: readonly Call[]): number[] {
  return calls.filter((call) => call.name === 'renew').map((call) => call.atMs)
}

describe('renewal', () => {
  test('is first tried at lifetime minus margin, and not a second before', async () => {
    const { clock, calls } = await makeManager()
    await clock.advance(82_799 * SECOND)
    expect(calls).toEqual([])
    await clock.advance(SECOND)
    expect(renewalsOf(calls)).toEqual([82_800 * SECOND])
  })

  test('three times over keeps key, subnet and attributes', async () => {
    const { clock, calls, owned, lease, stored } = await makeManager()
    await clock.advance(3 * 24 * HOUR)
    expect(renewalsOf(calls)).toEqual([1, 2, 3].map((round) => round * 82_800 * SECOND))
    for (const own of owned) expect([own.subnet, own.attributes]).toEqual([lease.subnet, lease.attributes])
    expect(await stored()).toEqual(owned.at(-1))
  })

  test('is tried again at most 60 s later while the store refuses, until it works', async () => {
    const { clock, shared, calls, manager } = await makeManager()
    await clock.advance(82_700 * SECOND)
    shared.setOutage('away')
    await clock.advance(1000 * SECOND)
    const attempts = renewalsOf(calls)
    expect(attempts.length).toBeGreaterThan(14)
    for (const [index, at] of attempts.slice(1).entries()) expect(at - attempts[index]!).toBeLessThanOrEqual(60_000)
    shared.setOutage(null)
    await clock.advance(60 * SECOND)
    expect([manager.state, manager.lease.expiresAtMs! > clock.wallMs() + 23 * HOUR]).toEqual(['held', true])
  })

  test('is tried again at most 60 s later when the store does not answer at all', async () => {
    const times: number[] = []
    const { clock } = await makeManager({
      wrap: (store) => ({
        ...store,
        watch: (signal) => store.watch(signal),
        renew: () => {
          times.push(clock.bootMs())
          return new Promise(() => {})
        },
      }),
    })
    await clock.advance(82_800 * SECOND + 300 * SECOND)
    expect(times[0]).toBe(82_800 * SECOND)
    expect(times.length).toBeGreaterThan(4)
    for (const [index, at] of times.slice(1).entries()) expect(at - times[index]!).toBeLessThanOrEqual(60_000)
  })

  test('does not depend on the watch: one that hangs for ever changes nothing', async () => {
    const hanging = {
      [Symbol.asyncIterator]: () => ({ next: () => new Promise<IteratorResult<never>>(() => {}) }),
    }
    const { clock, calls } = await makeManager({ wrap: (store) => ({ ...store, watch: () => hanging }) })
    await clock.advance(2 * 82_800 * SECOND)
    expect(renewalsOf(calls)).toEqual([82_800 * SECOND, 2 * 82_800 * SECOND])
  })

  test.each([-3, 3])('is not moved by a step of the wall clock by %i h', async (hours) => {
    const { clock, calls } = await makeManager()
    await clock.advance(HOUR)
    clock.stepWall(hours * HOUR)
    await clock.advance(82_800 * SECOND - HOUR)
    expect(renewalsOf(calls)).toEqual([82_800 * SECOND])
  })

  test.each([-3, 3])('comes before the end although the wall clock was set by %i h since the grant', async (hours) => {
    const { clock, calls } = await makeManager({ granted: (clock) => clock.stepWall(hours * HOUR) })
    await clock.advance(LEASE_TTL_MS - MARGIN_MS)
    expect(renewalsOf(calls)).toHaveLength(1)
  })

  test('a renewal whose answer got lost is recognised as our own', async () => {
    let lost = false
    const { clock, losses, manager, stored } = await makeManager({
      wrap: (store) => ({
        ...store,
        renew: async (lease) => {
          const renewed = await store.renew(lease)
          if (lost) return renewed
          lost = true
          throw new Error('connection reset')
        },
      }),
    })
    await clock.advance(82_900 * SECOND)
    expect([lost, losses]).toEqual([true, []])
    expect(manager.lease).toEqual(await stored())
  })

  test('a store that keeps leases by itself is never asked to renew', async () => {
    const { clock, calls } = await makeManager({ wrap: (store) => ({ ...store, renewal: 'never' }) })
    await clock.advance(2 * LEASE_TTL_MS)
    expect(renewalsOf(calls)).toEqual([])
  })
})

describe('after a suspend', () => {
  test('longer than the lifetime the same subnet is taken again within one tick, when it is free', async () => {
    const { clock, owned, manager, lease, losses } = await makeManager()
    await clock.advance(60 * SECOND)
    clock.suspend(2 * LEASE_TTL_MS)
    await clock.advance(30 * SECOND)
    expect(losses).toEqual([])
    expect([manager.state, manager.lease.subnet]).toEqual(['held', lease.subnet])
    expect(owned.at(-1)?.expiresAtMs).toBeGreaterThan(clock.wallMs() + 23 * HOUR)
  })

  test('a subnet that was taken meanwhile is lost, and the other key is not written', async () => {
    const { clock, shared, losses, manager } = await makeManager()
    await clock.advance(60 * SECOND)
    clock.suspend(2 * LEASE_TTL_MS)
    const theirs = peerLease(SUBNET, '192.0.2.9', '0a:00:00:00:00:09')
    shared.edit(() => [{ ...theirs, revision: 50 }])
    await clock.advance(30 * SECOND)
    expect(manager.state).toBe('lost')
    expect(losses).toEqual([
      expect.objectContaining({ code: 'lease-conflict', message: expect.stringContaining('192.0.2.9') }),
    ])
    expect(shared.book().leases()).toEqual([{ ...theirs, revision: 50 }])
  })

  test('the own key is read before anything is written', async () => {
    const { clock, calls } = await makeManager({ wrap: (store) => ({ ...store, watch: () => silence() }) })
    await clock.advance(60 * SECOND)
    clock.suspend(LEASE_TTL_MS)
    await clock.advance(30 * SECOND)
    expect(calls.map((call) => call.name)).toEqual(['read', 'renew'])
  })
})

async function* silence(): AsyncGenerator<never> {
  await new Promise(() => {})
}

describe('the own lease under a running node', () => {
  test('deleted by someone: one error with the cause and the revision, and it is back within 5 s', async () => {
    const { clock, log, remove, stored, losses, manager } = await makeManager()
    await clock.advance(10 * SECOND)
    remove()
    await clock.advance(5 * SECOND)
    expect(log.of('lease-gone')).toEqual([
      expect.objectContaining({
        level: 'error',
        fields: { cause: 'deleted by someone', revision: expect.any(Number) },
      }),
    ])
    expect(await stored()).toEqual(manager.lease)
    expect(losses).toEqual([])
  })

  test('expired: said so, and put back', async () => {
    const { clock, shared, log, stored, manager } = await makeManager()
    await clock.advance(10 * SECOND)
    shared.setOutage('away')
    await clock.advance(LEASE_TTL_MS)
    expect(manager.state).toBe('suspect')
    shared.setOutage(null)
    await clock.advance(5 * SECOND)
    expect(log.of('lease-gone')[0]?.fields).toMatchObject({ cause: 'expired' })
    expect([manager.state, await stored()]).toEqual(['held', manager.lease])
  })

  test('taken by another node: lost once, with the cause, and never written again', async () => {
    const { clock, shared, losses, manager, calls, stored } = await makeManager()
    await clock.advance(10 * SECOND)
    overwrite(shared, { attributes: { ...OWN, publicIp: parseIpv4('192.0.2.9')! } })
    await clock.advance(5 * SECOND)
    expect(losses.map((error) => error.message)).toEqual([
      expect.stringMatching(/owner changed.*192\.0\.2\.9 \(revision \d+\)/),
    ])
    await clock.advance(3 * LEASE_TTL_MS)
    expect([manager.state, losses.length, renewalsOf(calls)]).toEqual(['lost', 1, []])
    expect(await stored()).toBeNull()
  })

  test('written by another host with our address: lost, with the flags that help', async () => {
    const { clock, shared, losses } = await makeManager()
    await clock.advance(10 * SECOND)
    overwrite(shared, {})
    await clock.advance(5 * SECOND)
    expect(losses.map((error) => error.oneLine)).toEqual([expect.stringMatching(/192\.0\.2\.1.*--iface.*--public-ip/)])
  })

  test('made a reservation by an operator: taken over, not renewed any more', async () => {
    const { clock, shared, losses, manager, calls } = await makeManager()
    await clock.advance(10 * SECOND)
    overwrite(shared, { expiresAtMs: null })
    await clock.advance(2 * LEASE_TTL_MS)
    expect([losses, manager.lease.expiresAtMs, renewalsOf(calls)]).toEqual([[], null, []])
  })

  test('back at an earlier revision after the store was restored from a copy: taken over', async () => {
    const { clock, shared, losses, manager, lease } = await makeManager()
    await clock.advance(82_800 * SECOND)
    expect(manager.lease.revision).toBeGreaterThan(lease.revision)
    shared.edit(() => [lease])
    await clock.advance(5 * SECOND)
    expect([losses, manager.lease.revision]).toEqual([[], lease.revision])
  })

  test('gone between acquire and watch: the first snapshot comes all the same and the lease is put back', async () => {
    const { clock, shared, snapshots, stored, manager } = await makeManager()
    shared.edit(() => [])
    await clock.advance(5 * SECOND)
    expect(snapshots.length).toBeGreaterThan(0)
    expect(await stored()).toEqual(manager.lease)
  })
})

describe('a store that was away', () => {
  test('is asked for the own key before its snapshot is used', async () => {
    const { clock, shared, calls, snapshots, reachable } = await makeManager()
    await clock.advance(10 * SECOND)
    const before = snapshots.length
    shared.setOutage('away')
    await clock.advance(10 * SECOND)
    shared.setOutage(null)
    shared.edit((leases) => [...leases, peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')])
    await clock.advance(5 * SECOND)
    expect(calls.map((call) => call.name)).toEqual(['read'])
    expect(snapshots.slice(before).map((leases) => leases.length)).toEqual([2])
    expect(reachable).toEqual([true, false, true])
  })

  test('and gave our subnet away: lost, nothing written, the snapshot not used', async () => {
    const { clock, shared, losses, snapshots } = await makeManager()
    await clock.advance(10 * SECOND)
    const before = snapshots.length
    shared.setOutage('away')
    await clock.advance(48 * HOUR)
    const theirs = { ...peerLease(SUBNET, '192.0.2.9', '0a:00:00:00:00:09'), revision: 50 }
    shared.edit(() => [theirs])
    shared.setOutage(null)
    await clock.advance(35 * SECOND)
    expect([losses.length, snapshots.length]).toEqual([1, before])
    expect(shared.book().leases()).toEqual([theirs])
  })

  test('for longer than the lifetime is no loss by itself', async () => {
    const { clock, shared, losses, manager } = await makeManager()
    await clock.advance(10 * SECOND)
    shared.setOutage('away')
    await clock.advance(2 * LEASE_TTL_MS)
    expect([losses, manager.state]).toEqual([[], 'suspect'])
  })
})

describe('a lease kept from the last run', () => {
  test('is suspect until the store confirms it, which is tried at once', async () => {
    const { clock, manager, losses } = await makeManager({ confirmed: false })
    expect(manager.state).toBe('suspect')
    await clock.advance(2 * SECOND)
    expect([manager.state, losses]).toEqual(['held', []])
  })

  test('that the last run renewed just before it died is still ours', async () => {
    const { clock, manager, losses, lease } = await makeManager({
      confirmed: false,
      before: (shared) => overwrite(shared, {}),
    })
    await clock.advance(5 * SECOND)
    expect([manager.state, losses]).toEqual(['held', []])
    expect(manager.lease.revision).toBeGreaterThan(lease.revision)
  })

  test('that belongs to another node by now is lost', async () => {
    const { clock, manager, losses } = await makeManager({
      confirmed: false,
      before: (shared) => overwrite(shared, { attributes: { ...OWN, publicIp: parseIpv4('192.0.2.9')! } }),
    })
    await clock.advance(5 * SECOND)
    expect([manager.state, losses.length]).toEqual(['lost', 1])
  })
})

test('after a stop nothing runs any more', async () => {
  const { clock, manager, calls, shared, snapshots } = await makeManager()
  await clock.advance(10 * SECOND)
  manager.stop()
  const before = snapshots.length
  shared.edit(() => [])
  await clock.advance(2 * LEASE_TTL_MS)
  expect([calls, snapshots.length, clock.timers]).toEqual([[], before, 0])
})
