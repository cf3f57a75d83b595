// A worker that stood still sends nothing until it is told to go on, or has waited long enough.
import { expect, test } from 'vitest'
import { LONGEST_PAUSE_MS, NAP_MS, NapWatch } from '../../../dataplane/worker/nap-watch.ts'

/** A watch whose clocks a test moves: by how much the monotonic one, by how much that of the wall. */
function watched() {
  const now = { monotonic: 1000, wall: 1_600_000_000_000 }
  const watch = new NapWatch({ monotonicMs: () => now.monotonic, wallMs: () => now.wall })
  const after = (monotonic: number, wall = monotonic) => {
    now.monotonic += monotonic
    now.wall += wall
    return [watch.look(), watch.isPaused]
  }
  return { watch, after }
}

test('turns and sleeps of a second are no naps', () => {
  const { after } = watched()
  for (const ms of [0, 1, 1000, 1003, NAP_MS - 1]) expect(after(ms)).toEqual([null, false])
})

test('a process that was stopped pauses, once, and says for how long it stood still', () => {
  const { after } = watched()
  expect(after(NAP_MS)).toEqual([NAP_MS, true])
  expect(after(10)).toEqual([null, true])
})

test('so does a machine that was suspended, of which only the wall clock knows', () => {
  const { after } = watched()
  expect(after(3, 7_200_000)).toEqual([3, true])
})

test('a wall clock that is set back is no nap, and neither hides one', () => {
  const { after } = watched()
  expect(after(10, -10_800_000)).toEqual([null, false])
  expect(after(60_000, -10_800_000)).toEqual([60_000, true])
})

test('the word to go on ends a pause', () => {
  const { watch, after } = watched()
  after(NAP_MS)
  watch.go()
  expect(after(10)).toEqual([null, false])
})

test('without it a pause ends all the same', () => {
  const { after } = watched()
  after(NAP_MS)
  for (let waited = 1000; waited < LONGEST_PAUSE_MS; waited += 1000) expect(after(1000)).toEqual([null, true])
  expect(after(1000)).toEqual([null, false])
})

test('a second nap begins the pause anew', () => {
  const { after } = watched()
  after(NAP_MS)
  after(3000)
  expect(after(NAP_MS + 1)).toEqual([NAP_MS + 1, true])
  expect(after(3000)).toEqual([null, true])
})
