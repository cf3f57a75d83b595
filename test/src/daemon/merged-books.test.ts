// Books of two engines that are read as those of one.
import { expect, test } from 'vitest'
import { lost, works } from '../../../dataplane/io/feature.ts'
import { mergeBooks } from '../../../src/daemon/merged-books.ts'
import type { EngineBooks } from '../../../src/host/dataplane.ts'
import { ip, ip6 } from '../../support/packets.ts'

const SILENT = {
  ...{ sentPackets: 0, sentBytes: 0, lastSentMs: 0 },
  ...{ receivedPackets: 0, receivedBytes: 0, lastReceivedMs: 0 },
}
const offender = (lastSeenMs: number) => {
  return { outerSource: 1, innerSource: 2, reason: 'unknown-peer', packets: 1, lastSeenMs } as const
}
const books = (more: Partial<EngineBooks>): EngineBooks => ({
  ...{ features: () => [], traffic: () => new Map(), pathLimits: () => new Map() },
  ...{ workerRestarts: () => [], offenders: () => [] },
  ...more,
})

test('none are none, and one is itself', () => {
  const one = books({})
  expect([mergeBooks([]), mergeBooks([one])]).toEqual([undefined, one])
})

test('traffic and limits are by the addresses of both families', () => {
  const [near, far] = [ip('192.0.2.2'), ip6('2001:db8::2')]
  const merged = mergeBooks([
    books({ traffic: () => new Map([[near, SILENT]]), pathLimits: () => new Map([[near, 1350]]) }),
    books({ traffic: () => new Map([[far, SILENT]]), pathLimits: () => new Map([[far, 1330]]) }),
  ])!
  expect([...merged.traffic().keys()]).toEqual([near, far])
  expect([...merged.pathLimits().values()]).toEqual([1350, 1330])
})

test('restarts stand one behind the other', () => {
  const merged = mergeBooks([books({ workerRestarts: () => [0, 2] }), books({ workerRestarts: () => [1] })])
  expect(merged!.workerRestarts()).toEqual([0, 2, 1])
})

test('offenders come the latest first, whichever saw them', () => {
  const merged = mergeBooks([
    books({ offenders: () => [offender(30), offender(10)] }),
    books({ offenders: () => [offender(20)] }),
  ])
  expect(merged!.offenders().map(({ lastSeenMs }) => lastSeenMs)).toEqual([30, 20, 10])
})

test.each([
  ['the first', true],
  ['the second', false],
])('a feature that %s does without is told of as missing', (_, isFirst) => {
  const both = [
    books({ features: () => [lost('udp-gso', 'refused')] }),
    books({ features: () => [works('udp-gso', '')] }),
  ]
  const merged = mergeBooks(isFirst ? both : both.reverse())
  expect(merged!.features()).toMatchObject([{ name: 'udp-gso', on: false, why: 'refused' }])
})
