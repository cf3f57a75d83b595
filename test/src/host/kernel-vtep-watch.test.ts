// When the kernel dataplane looks at what it has made.
import { describe, expect, test, vi } from 'vitest'
import { isElsewhere, VtepWatch } from '../../../src/host/kernel-vtep-watch.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const bell = vi.hoisted(() => ({ ring: () => {}, stopped: 0 }))
vi.mock('../../../src/host/ip-monitor.ts', () => ({
  ringOnChanges: (ring: () => void) => {
    bell.ring = ring
    return { stop: () => bell.stopped++ }
  },
}))

function watching() {
  const clock = new VirtualClock()
  const state = { intact: true, mended: 0 }
  const mend = async () => {
    state.mended++
  }
  const watch = new VtepWatch({ clock, device: 'flannel.1', isIntact: () => state.intact, mend })
  return { clock, state, watch }
}

describe('device and tables', () => {
  test('are looked at when the bell has rung, once for all that happened within a second', async () => {
    const { clock, state } = watching()
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

  test('are looked at every 30 s, bell or not', async () => {
    const { clock, state } = watching()
    await clock.advance(61_000)
    expect(state.mended).toBe(2)
  })

  test('are left alone after a stop', async () => {
    const { clock, state, watch } = watching()
    const before = bell.stopped
    bell.ring()
    watch.stop()
    await clock.advance(60_000)
    expect([state.mended, bell.stopped - before]).toEqual([0, 1])
  })
})

test.each([
  ['a neighbour of pods', '10.244.1.2 dev cni0 lladdr 0a:58:0a:f4:01:02 REACHABLE', true],
  ['one that is looked for', '10.244.1.9 dev cni0  INCOMPLETE', true],
  ['one that is gone', 'Deleted 10.244.1.9 dev cni0  FAILED', true],
  ['a neighbour of ours', '10.244.2.0 dev flannel.1 lladdr 02:00:00:00:00:02 PERMANENT proto 142', false],
  ['an FDB entry of ours', 'Deleted 192.0.2.2 dev flannel.1 lladdr 02:00:00:00:00:02 NOARP PERMANENT', false],
  ['one of a device with a longer name', '10.1.2.0 dev flannel.11 lladdr 02:00:00:00:00:02 PERMANENT', true],
  ['a route that somebody took over', '10.244.2.0/24 dev eth0 scope link', false],
  ['a pod’s link', '9: veth1a@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 master cni0 state UP', true],
  ['our link', '3: flannel.1: <BROADCAST,MULTICAST> mtu 1450 qdisc noqueue state DOWN group default', false],
  ['our link that is gone', 'Deleted 3: flannel.1: <BROADCAST,MULTICAST> mtu 1450 qdisc noop state DOWN', false],
  ['our address that is gone', 'Deleted 3: flannel.1    inet 10.244.1.0/32 scope global flannel.1', false],
])('a line of %s', (_, line, elsewhere) => {
  expect(isElsewhere(line, 'flannel.1')).toBe(elsewhere)
})
