// What is a sleep and what is not, and who is asked before workers go on.
import { expect, test } from 'vitest'
import { WakeUp } from '../../../src/daemon/wake-up.ts'

function sleeper() {
  const now = { boot: 50_000, monotonic: 20_000 }
  const asked: ((ours: boolean) => void)[] = []
  const wakeUp = new WakeUp({
    clock: { bootMs: () => now.boot },
    monotonicMs: () => now.monotonic,
    validate: () => new Promise((resolve) => void asked.push(resolve)),
  })
  /** The machine runs, then is suspended. */
  const pass = (runsMs: number, suspendedMs: number) => {
    now.monotonic += runsMs
    now.boot += runsMs + suspendedMs
  }
  return { wakeUp, asked, pass }
}

test('a wall clock that was set, or a thread that was late for a moment, may go on unasked', async () => {
  const { wakeUp, asked, pass } = sleeper()
  pass(3_600_000, 0)
  expect(await wakeUp.look(3)).toBe(true)
  expect(await wakeUp.look(4999)).toBe(true)
  expect(asked).toEqual([])
})

test.each([
  ['a stopped process', 60_000, 0],
  ['a suspended machine', 3, 7_200_000],
  ['both', 3000, 3000],
])('%s asks for the lease first', async (_, standstillMs, suspendedMs) => {
  for (const ours of [true, false]) {
    const { wakeUp, asked, pass } = sleeper()
    pass(standstillMs, suspendedMs)
    const go = wakeUp.look(standstillMs)
    expect(asked).toHaveLength(1)
    asked[0]?.(ours)
    expect(await go).toBe(ours)
  }
})

test('several workers that wake at the same time wait for one answer', async () => {
  const { wakeUp, asked, pass } = sleeper()
  pass(3, 7_200_000)
  const all = Promise.all([wakeUp.look(3), wakeUp.look(2), wakeUp.look(5)])
  asked[0]?.(false)
  expect([await all, asked.length]).toEqual([[false, false, false], 1])
})

test('a sleep counts once', async () => {
  const { wakeUp, asked, pass } = sleeper()
  pass(3, 7_200_000)
  const first = wakeUp.look(3)
  asked[0]?.(true)
  await first
  expect(await wakeUp.look(3)).toBe(true)
  expect(asked).toHaveLength(1)
})
