// The machine's clock, and waiting that can be broken off.
import { readFileSync } from 'node:fs'
import { expect, onTestFinished, test, vi } from 'vitest'
import { delay, LONGEST_TIMER_MS, systemClock } from '../../src/clock.ts'
import { exhaustFiles } from '../support/exhausted-files.ts'
import { settle, VirtualClock } from '../support/virtual-clock.ts'

test('boot time is what the kernel says, suspend included', () => {
  const before = Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) * 1000
  const now = systemClock().bootMs()
  expect(now).toBeGreaterThanOrEqual(before)
  expect(now - before).toBeLessThan(5000)
})

test('a timer fires once, after its delay', async () => {
  const clock = systemClock()
  const started = clock.bootMs()
  let fired = 0
  await new Promise<void>((resolve) => {
    clock.after(30, () => {
      fired++
      resolve()
    })
  })
  // Boot time comes in steps of 10 ms.
  expect(clock.bootMs() - started).toBeGreaterThanOrEqual(20)
  expect(fired).toBe(1)
})

test('a process without files left to open goes on in time', async () => {
  const clock = systemClock()
  const before = clock.bootMs()
  exhaustFiles()
  await delay(clock, 30)
  expect(clock.bootMs() - before).toBeGreaterThanOrEqual(20)
})

test('no long delay is trusted to one timer', () => {
  const armed: number[] = []
  const spy = vi.spyOn(globalThis, 'setTimeout').mockImplementation(((_: unknown, ms: number) => {
    armed.push(ms)
    return 0
  }) as unknown as typeof setTimeout)
  onTestFinished(() => spy.mockRestore())
  systemClock().after(24 * 3600_000, () => {})
  expect(armed).toEqual([LONGEST_TIMER_MS])
})

test('a cancelled timer does not fire', async () => {
  const clock = systemClock()
  let fired = false
  clock
    .after(1, () => {
      fired = true
    })
    .cancel()
  await new Promise((resolve) => clock.after(15, () => resolve(undefined)))
  expect(fired).toBe(false)
})

test('a delay ends by time, by its signal, and at once when that was aborted before', async () => {
  const clock = new VirtualClock()
  const control = new AbortController()
  const ended: string[] = []
  void delay(clock, 1000).then(() => ended.push('time'))
  void delay(clock, 5000, control.signal).then(() => ended.push('signal'))
  await clock.advance(1000)
  expect(ended).toEqual(['time'])
  control.abort()
  await settle()
  expect(ended).toEqual(['time', 'signal'])
  await delay(clock, 5000, control.signal)
  expect(clock.timers).toBe(0)
})
