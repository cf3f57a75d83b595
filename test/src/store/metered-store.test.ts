// A store that is counted behaves as the store behind it, and its numbers tell how that went.
import { expect, test } from 'vitest'
import { MemoryLeases } from '../../../src/store/memory.ts'
import { MeteredStore } from '../../../src/store/metered-store.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

function make() {
  const clock = new VirtualClock()
  const shared = new MemoryLeases(clock, '{"Network":"10.244.0.0/16"}')
  const store = new MeteredStore(shared.open(seededRandom(1)), clock)
  const count = (operation: string) => store.operations.find((one) => one.operation === operation)
  return { clock, shared, store, count }
}

test('every operation is there from the start', () => {
  const { store } = make()
  expect(store.operations.length).toBeGreaterThan(5)
  expect(store.operations.every(({ ok, failed }) => ok === 0 && failed === 0)).toBe(true)
  expect(store.lastSuccessWallMs).toBeNull()
})

test('what works is counted with its time, what fails is thrown on', async () => {
  const { clock, shared, store, count } = make()
  expect(await store.readNetworkConfig()).toBe('{"Network":"10.244.0.0/16"}')
  const wallMs = clock.wallMs()
  expect(store.lastSuccessWallMs).toBe(wallMs)
  await clock.advance(1000)
  shared.setOutage('gone')
  await expect(store.readNetworkConfig()).rejects.toMatchObject({ code: 'store-unreadable' })
  expect(count('config')).toEqual({ operation: 'config', ok: 1, failed: 1 })
  expect(store.lastSuccessWallMs).toBe(wallMs)
})

test('a watch counts each state that it brings', async () => {
  const { store, count } = make()
  const stop = new AbortController()
  for await (const news of store.watch(stop.signal)) {
    expect(news.type).toBe('snapshot')
    stop.abort()
  }
  expect(count('watch')).toMatchObject({ ok: 1, failed: 0 })
})
