// Which counters are drops, and when nobody can say how many there were.
import { expect, test } from 'vitest'
import { dropCounts, droppedPackets } from '../../../src/daemon/drop-counts.ts'
import { statusLine } from '../../../src/daemon/status-line.ts'
import { status } from '../../support/doctor-facts.ts'

const COUNTERS = {
  'outbound.packets.read': 100,
  'outbound.dropped.no-route': 2,
  'inbound.dropped.vni-unknown': 3,
  'inbound.lost.rx-queue-full': 4,
  'outbound.dropped-bytes.no-route': 2900,
}

test('drops are summed over reasons and directions with what the kernel lost, and nothing else is, not their bytes', () => {
  expect(droppedPackets({ dataplane: 'userspace', counters: COUNTERS })).toBe(9)
  expect(dropCounts(COUNTERS).filter(({ packets }) => packets > 0)).toEqual([
    { direction: 'outbound', reason: 'no-route', packets: 2 },
    { direction: 'inbound', reason: 'rx-queue-full', packets: 4 },
    { direction: 'inbound', reason: 'vni-unknown', packets: 3 },
  ])
})

test('of the kernel no number is claimed', () => {
  const kernel = status({ dataplane: 'kernel', counters: { 'inbound.dropped': 0 } })
  expect(droppedPackets(kernel)).toBeNull()
  expect(statusLine(kernel)).toBe('ready: 10.244.1.0/24, 2 peers')
  expect(statusLine(status({ counters: COUNTERS }))).toBe('ready: 10.244.1.0/24, 2 peers, 9 packets dropped')
})
