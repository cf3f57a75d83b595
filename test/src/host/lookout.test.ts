// When somebody looks: after the bell, without it, and sooner while something is amiss.
import { describe, expect, test } from 'vitest'
import { Lookout } from '../../../src/host/lookout.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

function lookout() {
  const clock = new VirtualClock()
  const looks: number[] = []
  const bell = { ring: () => {}, stopped: false }
  const host: { found: boolean | number } = { found: true }
  const watch = new Lookout({
    clock,
    doorbell: (ring) => {
      bell.ring = ring
      return { stop: () => (bell.stopped = true) }
    },
    look: async () => {
      looks.push(clock.bootMs())
      return host.found
    },
  })
  return { clock, looks, bell, host, watch }
}

describe('a lookout', () => {
  test('looks every ten seconds although no bell rings', async () => {
    const { clock, looks } = lookout()
    await clock.advance(30_000)
    expect(looks).toEqual([10_000, 20_000, 30_000])
  })

  test('looks at once when the bell rings, and lets a host that never rests wait', async () => {
    const { clock, looks, bell } = lookout()
    await clock.advance(1000)
    for (let turn = 0; turn < 10; turn++) {
      bell.ring()
      await clock.advance(100)
    }
    expect(looks).toEqual([1000, 1500, 2000])
  })

  test('looks sooner while something is amiss, ever later, and as usual when all is well', async () => {
    const { clock, looks, bell, host } = lookout()
    host.found = false
    bell.ring()
    await clock.advance(20_000)
    expect(looks).toEqual([0, 1000, 3000, 7000, 15_000])
    host.found = true
    await clock.advance(20_000)
    expect(looks.slice(5)).toEqual([25_000, 35_000])
  })

  test('looks after as long as the one who looked has said, or when the bell rings', async () => {
    const { clock, looks, bell, host } = lookout()
    host.found = 3000
    bell.ring()
    await clock.advance(7000)
    expect(looks).toEqual([0, 3000, 6000])
    bell.ring()
    await clock.advance(3000)
    expect(looks.slice(3)).toEqual([7000, 10_000])
  })

  test('ends with its bell', async () => {
    const { clock, looks, bell, watch } = lookout()
    watch.stop()
    bell.ring()
    await clock.advance(60_000)
    expect([looks, bell.stopped]).toEqual([[], true])
  })
})
