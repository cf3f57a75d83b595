// Which command runs next for a peer, whatever has become of the one before.
import { expect, test } from 'vitest'
import { PeerCommands, type PeerEvent } from '../../../src/daemon/peer-commands.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

/** Peers are words here; each command waits for `end`. */
function bench() {
  const clock = new VirtualClock()
  const started: string[] = []
  const events: PeerEvent[] = []
  const open = new Map<string, (failure: string | null) => void>()
  const run = (what: string) => (peer: string) =>
    new Promise<string | null>((resolve) => {
      started.push(`${what} ${peer}`)
      open.set(`${what} ${peer}`, resolve)
    })
  const work = { add: run('add'), remove: run('remove'), tell: (event: PeerEvent) => void events.push(event) }
  const commands = new PeerCommands<string>(work, clock, (a, b) => a === b)
  const settled = async () => {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve()
  }
  return {
    clock,
    started,
    events,
    commands,
    settled,
    want: async (peers: Record<string, string>) => {
      commands.want(new Map(Object.entries(peers)))
      await settled()
    },
    end: async (what: string, failure: string | null = null) => {
      const resolve = open.get(what)
      if (resolve === undefined) throw new Error(`${what} does not run: ${started.join(', ')}`)
      open.delete(what)
      resolve(failure)
      await settled()
    },
  }
}

test('peers that are there at the start are added, and counted as pending until that has worked', async () => {
  const { want, end, started, commands } = bench()
  await want({ a: 'a1', b: 'b1' })
  expect(started).toEqual(['add a1', 'add b1'])
  expect(commands.pending.size).toBe(2)
  await end('add b1')
  expect(commands.pending.size).toBe(1)
  await end('add a1')
  expect(commands.pending.size).toBe(0)
})

test('the same set again runs nothing; a peer that is gone is removed', async () => {
  const { want, end, started, commands } = bench()
  await want({ a: 'a1', b: 'b1' })
  await end('add a1')
  await end('add b1')
  await want({ a: 'a1', b: 'b1' })
  await want({ b: 'b1' })
  expect(started).toEqual(['add a1', 'add b1', 'remove a1'])
  await end('remove a1')
  expect(commands.pending.size).toBe(0)
})

test('a peer that changed is removed as it was and added as it is', async () => {
  const { want, end, started } = bench()
  await want({ a: 'a1' })
  await end('add a1')
  await want({ a: 'a2' })
  expect(started.slice(1)).toEqual(['remove a1'])
  await end('remove a1')
  expect(started.slice(1)).toEqual(['remove a1', 'add a2'])
})

test('a failure is told and tried again, later each time, and nobody else waits for it', async () => {
  const { want, end, started, events, clock, commands, settled } = bench()
  await want({ a: 'a1', b: 'b1' })
  await end('add b1')
  await end('add a1', 'exit code 1')
  expect(events).toEqual([{ peer: 'a', what: 'add', failure: 'exit code 1', failures: 1, givenUp: false }])
  expect(commands.pending.size).toBe(1)
  await clock.advance(499)
  expect(started.filter((one) => one === 'add a1')).toHaveLength(1)
  await clock.advance(1)
  await settled()
  await end('add a1', 'exit code 1')
  await clock.advance(999)
  expect(started.filter((one) => one === 'add a1')).toHaveLength(2)
  await clock.advance(1)
  await settled()
  await end('add a1')
  expect(events.at(-1)).toEqual({ peer: 'a', what: 'add', failure: null, failures: 2, givenUp: false })
  expect(commands.pending.size).toBe(0)
})

test('a pending peer is told of with its last command and what that has come to', async () => {
  const { want, end, commands, clock, settled } = bench()
  const pendingA = () => commands.pending.get('a')
  await want({ a: 'a1', b: 'b1' })
  await end('add b1')
  expect([...commands.pending.keys()]).toEqual(['a'])
  expect(pendingA()).toEqual({ peer: 'a1', what: 'add', failure: null, failures: 0 })
  await end('add a1', 'exit code 1')
  await clock.advance(500)
  await settled()
  await end('add a1', 'exit code 3')
  expect(pendingA()).toEqual({ peer: 'a1', what: 'add', failure: 'exit code 3', failures: 2 })
  await want({ a: 'a2', b: 'b1' })
  expect(pendingA()).toEqual({ peer: 'a2', what: 'remove', failure: null, failures: 0 })
  await end('remove a1')
  await end('add a2')
  expect(commands.pending.size).toBe(0)
})

test('the longest pause is a minute', async () => {
  const { want, end, started, clock, settled } = bench()
  await want({ a: 'a1' })
  for (let failures = 1; failures <= 10; failures++) {
    await end('add a1', 'no')
    await clock.advance(60_000)
    await settled()
    expect(started).toHaveLength(failures + 1)
  }
})

test('what changes while a command runs is looked at when it has ended', async () => {
  const { want, end, started, commands } = bench()
  await want({ a: 'a1' })
  await want({ a: 'a2' })
  await want({})
  await want({ a: 'a3' })
  expect(started).toEqual(['add a1'])
  await end('add a1')
  await end('remove a1')
  await end('add a3')
  expect(started).toEqual(['add a1', 'remove a1', 'add a3'])
  expect(commands.pending.size).toBe(0)
})

test('news of a peer ends the pause that an older failure has brought', async () => {
  const { want, end, started } = bench()
  await want({ a: 'a1' })
  await end('add a1', 'no')
  await want({ a: 'a2' })
  await end('remove a1')
  expect(started.at(-1)).toBe('add a2')
})

test('a removal that keeps failing is given up, and the peer’s new form is added', async () => {
  const { want, end, started, events, clock, settled } = bench()
  await want({ a: 'a1' })
  await end('add a1')
  await want({ a: 'a2' })
  for (let attempt = 1; attempt <= 4; attempt++) {
    await end('remove a1', 'no such route')
    await clock.advance(60_000)
    await settled()
  }
  expect(events.map(({ failures, givenUp }) => [failures, givenUp])).toEqual([
    [1, false],
    [2, false],
    [3, false],
    [4, true],
  ])
  expect(started.at(-1)).toBe('add a2')
})

test('sixteen commands run at a time, the others as places become free', async () => {
  const { want, end, started } = bench()
  await want(Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`p${index}`, `p${index}`])))
  expect(started).toHaveLength(16)
  await end('add p3')
  await end('add p7', 'no')
  expect(started).toHaveLength(18)
})

test('of the peers of an earlier run those that left are removed, those that stay added, and changed ones both', async () => {
  const { want, end, started, commands, settled } = bench()
  commands.recall(new Map(Object.entries({ stays: 's1', leaves: 'l1', changes: 'c1' })))
  await settled()
  expect(started).toEqual([])
  await want({ stays: 's1', changes: 'c2', comes: 'n1' })
  expect([...started].sort()).toEqual(['add n1', 'add s1', 'remove c1', 'remove l1'])
  expect(commands.pending.size).toBe(3)
  await end('remove c1')
  await end('remove l1')
  for (const add of ['add s1', 'add c2', 'add n1']) await end(add)
  await want({ stays: 's1', changes: 'c2', comes: 'n1' })
  expect([started.length, commands.pending.size]).toEqual([5, 0])
})

test('a removal of an earlier run’s peer that runs, or waits to be tried again, is not begun twice', async () => {
  const { want, end, started, commands, clock, settled } = bench()
  commands.recall(new Map([['leaves', 'l1']]))
  await want({})
  await want({ comes: 'n1' })
  await end('remove l1', 'exit code 2')
  await want({})
  expect(started.filter((one) => one === 'remove l1')).toHaveLength(1)
  await clock.advance(500)
  await settled()
  await end('remove l1')
  await clock.advance(120_000)
  expect(started.filter((one) => one === 'remove l1')).toHaveLength(2)
})

test('an earlier run’s peer that is back before its removal has ended is added behind it', async () => {
  const { want, end, started, commands } = bench()
  commands.recall(new Map([['a', 'a1']]))
  await want({})
  await want({ a: 'a1' })
  await end('remove a1')
  await end('add a1')
  expect(started).toEqual(['remove a1', 'add a1'])
})

test('the end removes the peers of an earlier run as well', async () => {
  const { end, commands, settled, started } = bench()
  commands.recall(new Map([['a', 'a1']]))
  const failures = commands.removeAll()
  await settled()
  await end('remove a1')
  expect([await failures, started]).toEqual([new Map(), ['remove a1']])
})

test('the end removes what is present, also what was half added, and runs nothing afterwards', async () => {
  const { want, end, started, clock, commands, settled } = bench()
  await want({ a: 'a1', b: 'b1' })
  await end('add a1')
  await end('add b1', 'no')
  const failures = commands.removeAll()
  await settled()
  expect(started.slice(2)).toEqual(['remove a1', 'remove b1'])
  await end('remove a1')
  await end('remove b1', 'gone')
  expect(await failures).toEqual(new Map([['b', 'gone']]))
  await clock.advance(120_000)
  expect(started).toHaveLength(4)
})

test('the end waits for a command that runs, and removes behind it what that has left', async () => {
  const { want, end, started, commands, settled } = bench()
  await want({ a: 'a1', b: 'b1' })
  await end('add b1')
  await want({ a: 'a1' })
  const failures = commands.removeAll()
  await settled()
  expect(started).toEqual(['add a1', 'add b1', 'remove b1'])
  await end('remove b1')
  await end('add a1')
  expect(started.slice(3)).toEqual(['remove a1'])
  await end('remove a1')
  expect([await failures, started.length]).toEqual([new Map(), 4])
})

test('the end begins nothing that has waited for a place, and removes nothing that was never added', async () => {
  const { want, end, started, commands, settled } = bench()
  await want(Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`p${index}`, `p${index}`])))
  const failures = commands.removeAll()
  await settled()
  for (let index = 0; index < 16; index++) await end(`add p${index}`)
  for (let index = 0; index < 16; index++) await end(`remove p${index}`)
  expect([await failures, started.length]).toEqual([new Map(), 32])
})
