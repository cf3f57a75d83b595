// When a dataplane looks at what it has made.
import { describe, expect, test } from 'vitest'
import { ChangeWatch } from '../../../src/host/change-watch.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

function watching() {
  const clock = new VirtualClock()
  const bell = { ring: () => {}, stopped: 0 }
  const doorbell = (ring: () => void) => {
    bell.ring = ring
    return { stop: () => bell.stopped++ }
  }
  const state = { intact: true, mended: 0 }
  const mend = async () => {
    state.mended++
  }
  const watch = new ChangeWatch({ clock, doorbell, isIntact: () => state.intact, mend })
  return { clock, bell, state, watch }
}

describe('device and tables', () => {
  test('are looked at when the bell has rung, once for all that happened within a second', async () => {
    const { clock, bell, state } = watching()
    await clock.advance(3000)
    expect(state.mended).toBe(0)
    for (let times = 0; times < 5; times++) bell.ring()
    await clock.advance(1000)
    expect(state.mended).toBe(1)
    await clock.advance(5000)
    expect(state.mended).toBe(1)
  })

  test('are looked at once a second as long as the device looks wrong', async () => {
    const { clock, state } = watching()
    state.intact = false
    await clock.advance(3000)
    expect(state.mended).toBe(3)
  })

  test('are looked at soon when whoever watches them has changed something, or could not see it', async () => {
    const { clock, state, watch } = watching()
    watch.ring()
    await clock.advance(1000)
    expect(state.mended).toBe(1)
  })

  test('are looked at every 30 s, bell or not', async () => {
    const { clock, state } = watching()
    await clock.advance(61_000)
    expect(state.mended).toBe(2)
  })

  test('are left alone after a stop', async () => {
    const { clock, bell, state, watch } = watching()
    bell.ring()
    watch.stop()
    await clock.advance(60_000)
    expect([state.mended, bell.stopped]).toEqual([0, 1])
  })
})
