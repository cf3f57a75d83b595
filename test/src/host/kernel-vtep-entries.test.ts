// Entries of peers in tables that refuse: nobody waits for a peer that cannot be programmed, and it is tried again.
import { describe, expect, test } from 'vitest'
import type { Timer } from '../../../src/clock.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { VtepEntries } from '../../../src/host/kernel-vtep-entries.ts'
import { desiredRows } from '../../../src/host/kernel-vtep-plan.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { RecordingTables } from '../../support/recording-tables.ts'

const HOST2 = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const HOST3 = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')
const LOCAL = { encapsulation: 'vxlan', deviceName: 'flannel.1' } as LocalVtep

/** A clock whose timers fire when the test says so. */
class HandClock {
  readonly delays: number[] = []
  #fire: (() => void) | null = null
  wallMs = () => 0
  bootMs = () => 0

  after(delayMs: number, fire: () => void): Timer {
    this.delays.push(delayMs)
    this.#fire = fire
    return { cancel: () => (this.#fire = null) }
  }

  get waiting(): boolean {
    return this.#fire !== null
  }

  fire(): void {
    const fire = this.#fire
    this.#fire = null
    fire?.()
  }
}

function made() {
  const [tables, clock, log] = [new RecordingTables(), new HandClock(), new RecordingLog()]
  const onRetry = () => void entries.pass('retry')
  const entries = new VtepEntries({ log, clock, tables, device: 'flannel.1', onRetry })
  const replace = (...peers: Lease[]) => {
    entries.want(desiredRows(peers, LOCAL))
    return entries.pass('test')
  }
  /** Fires the retry and waits until its pass is over. */
  const retry = async () => {
    clock.fire()
    for (let turn = 0; turn < 20; turn++) await Promise.resolve()
  }
  const pending = () => [...entries.pending.keys()]
  return { tables, clock, log, entries, replace, retry, pending }
}

describe('the keeper of entries', () => {
  test('fills neighbours, then FDB, then routes', async () => {
    const { tables, replace, pending } = made()
    await replace(HOST2, HOST3)
    expect(tables.commands.map((command) => command.split(' ').slice(0, 2).join(' '))).toEqual([
      'ip neigh',
      'ip neigh',
      'bridge fdb',
      'bridge fdb',
      'ip route',
      'ip route',
    ])
    expect(pending()).toEqual([])
  })

  test('programs the others when one peer fails, without a route to the failed one', async () => {
    const { tables, clock, replace, pending } = made()
    tables.refuses = (command) => command.includes('neigh replace 10.244.2.0')
    await replace(HOST2, HOST3)
    const routes = tables.commands.filter((command) => command.startsWith('ip route'))
    expect(routes).toEqual(['ip route add 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink proto 142'])
    expect(pending()).toEqual(['10.244.2.0/24'])
    expect(clock.waiting).toBe(true)
  })

  test('tries a peer again, ever later, until the kernel takes it', async () => {
    const { tables, clock, replace, retry, pending } = made()
    let left = 3
    tables.refuses = (command) => command.startsWith('neigh replace 10.244.2.0') && left-- > 0
    await replace(HOST2)
    await retry()
    await retry()
    expect(pending()).toHaveLength(1)
    await retry()
    expect(pending()).toEqual([])
    expect(clock.waiting).toBe(false)
    expect(clock.delays).toEqual([100, 200, 400])
    expect(tables.commands.at(-1)).toContain('route add 10.244.2.0/24')
  })

  test('forgets a pending peer that has left', async () => {
    const { tables, replace, pending } = made()
    tables.refuses = () => true
    await replace(HOST2)
    expect(pending()).toHaveLength(1)
    tables.refuses = () => false
    await replace()
    expect(pending()).toEqual([])
  })

  test('forgets one that leaves while a pass is under way', async () => {
    const { tables, clock, entries, replace, pending } = made()
    tables.refuses = () => true
    const first = replace(HOST2)
    entries.want([])
    await first
    expect([pending(), clock.waiting]).toEqual([[], false])
  })

  test('tells of somebody else’s route to a part of a subnet, and programs the peer all the same', async () => {
    const { tables, entries, replace, pending, log } = made()
    tables.routes = [{ dst: '10.244.2.128/25', dev: 'eth0', protocol: 'static' }]
    await replace(HOST2, HOST3)
    expect(tables.take()).toContain('ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 142')
    expect([...entries.partTaken]).toEqual([
      ['10.244.2.0/24', 'a route that is not ours takes a part of it: 10.244.2.128/25 dev eth0 proto static'],
    ])
    tables.routes = []
    await entries.pass('test')
    expect([pending(), entries.partTaken.size]).toEqual([[], 0])
    expect(log.lines.map(({ event }) => event)).toEqual(['foreign-route', 'peers-restored', 'foreign-route-gone'])
  })

  test('counts all peers as pending while the tables cannot be read, and recovers', async () => {
    const { tables, replace, retry, pending } = made()
    tables.readable = false
    await replace(HOST2, HOST3)
    expect(pending()).toHaveLength(2)
    tables.readable = true
    await retry()
    expect(pending()).toEqual([])
  })

  test('believes what it has programmed while the tables cannot be read, and reads them again with back-off', async () => {
    const { tables, clock, entries, replace, retry, pending } = made()
    await replace(HOST2, HOST3)
    tables.readable = false
    await entries.pass('changed by somebody else')
    await retry()
    expect([pending(), clock.delays, clock.waiting]).toEqual([[], [100, 200], true])
    expect(entries.unseen).toBe('Device "flannel.1" does not exist.')
    tables.readable = true
    await retry()
    expect([pending(), clock.waiting, entries.unseen]).toEqual([[], false, null])
    tables.readable = false
    entries.forget() // a device that was made anew
    await entries.pass('changed by somebody else')
    expect(pending()).toHaveLength(2)
  })

  test('takes a wrong route of ours away where the kernel does not replace it, in the same pass', async () => {
    const { tables, replace, pending } = made()
    tables.routes = [{ dst: '10.244.2.0/24', dev: 'eth0', protocol: '142' }]
    tables.refuses = (command) => command.startsWith('route replace')
    await replace(HOST2)
    const words = 'via 10.244.2.0 dev flannel.1 onlink proto 142'
    expect(tables.commands.filter((command) => command.startsWith('ip route'))).toEqual([
      `ip route replace 10.244.2.0/24 ${words}`,
      'ip route delete 10.244.2.0/24 dev eth0 proto 142',
      `ip route add 10.244.2.0/24 ${words}`,
    ])
    expect(pending()).toEqual([])
  })

  test('does nothing more once it is stopped', async () => {
    const { tables, clock, entries, replace, retry } = made()
    tables.refuses = () => true
    await replace(HOST2)
    entries.stop()
    tables.take()
    await retry()
    expect(clock.waiting).toBe(false)
    expect(tables.commands).toEqual([])
  })
})

test('of copied machines, which have one MAC, one is programmed and the other waits, without a quarrel over the entry', async () => {
  const { tables, replace, pending } = made()
  await replace(HOST2, peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:02'))
  expect(tables.take().filter((command) => command.startsWith('bridge'))).toEqual([
    'bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent',
  ])
  expect(pending()).toEqual(['10.244.4.0/24'])
})

test('a hundred thousand peers that all fail are tried again as one is', async () => {
  const { tables, clock, entries } = made()
  tables.readable = false
  const [row] = desiredRows([HOST2], LOCAL)
  entries.want(Array.from({ length: 200_000 }, (_, index) => ({ ...row!, subnet: `subnet ${index}` })))
  await entries.pass('test')
  expect([entries.pending.size, clock.delays]).toEqual([200_000, [100]])
})
