// The memory of all leases follows the changes, it does not go along with each of them.
import { expect, test } from 'vitest'
import { KeptLeases, REST_MS } from '../../../src/daemon/kept-leases.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { settle, VirtualClock } from '../../support/virtual-clock.ts'

/** A set of leases that is told apart by its size. */
const setOf = (size: number) =>
  Array.from({ length: size }, (_, node) =>
    peerLease(`10.244.${node}.0/24`, `192.0.2.${node + 1}`, '02:00:00:00:00:01'),
  )

/** A shelf whose disk takes its time: `done` lets the oldest writing end. */
function slowShelf() {
  const begun: number[] = []
  const ends: (() => void)[] = []
  const writeLeases = (leases: readonly Lease[]) => {
    begun.push(leases.length)
    return new Promise<void>((resolve) => ends.push(resolve))
  }
  const done = async () => {
    ends.shift()?.()
    await settle()
  }
  return { shelf: { writeLeases }, begun, done }
}

test('the first set is waited for, until it is on disk', async () => {
  const { shelf, begun, done } = slowShelf()
  const kept = new KeptLeases(shelf, new VirtualClock())
  let isKept = false
  void kept.offer(setOf(1)).then(() => {
    isKept = true
  })
  await settle()
  expect([begun, isKept]).toEqual([[1], false])
  await done()
  expect(isKept).toBe(true)
})

test('of many changes in a second the last is written, at the end of the rest, and nobody waits for it', async () => {
  const clock = new VirtualClock()
  const { shelf, begun, done } = slowShelf()
  const kept = new KeptLeases(shelf, clock)
  void kept.offer(setOf(1))
  await done()
  for (const size of [2, 3, 4]) await kept.offer(setOf(size))
  await clock.advance(REST_MS - 1)
  expect(begun).toEqual([1])
  await clock.advance(1)
  expect(begun).toEqual([1, 4])
})

test('a change after a quiet second is written at once; one during a writing is not lost, and never passes it', async () => {
  const clock = new VirtualClock()
  const { shelf, begun, done } = slowShelf()
  const kept = new KeptLeases(shelf, clock)
  void kept.offer(setOf(1))
  await done()
  await clock.advance(2 * REST_MS)
  void kept.offer(setOf(2))
  expect(begun).toEqual([1, 2])
  await kept.offer(setOf(3))
  await clock.advance(10 * REST_MS)
  expect(begun).toEqual([1, 2])
  await done()
  await clock.advance(REST_MS)
  expect(begun).toEqual([1, 2, 3])
})

test('the end waits for a writing, writes what still waits, and leaves no timer behind', async () => {
  const clock = new VirtualClock()
  const { shelf, begun, done } = slowShelf()
  const kept = new KeptLeases(shelf, clock)
  void kept.offer(setOf(1))
  void kept.offer(setOf(2))
  const closed = kept.close()
  await settle()
  expect(begun).toEqual([1])
  await done()
  expect(begun).toEqual([1, 2])
  await done()
  await closed
  await kept.offer(setOf(3))
  expect([begun, clock.timers]).toEqual([[1, 2], 0])
})
