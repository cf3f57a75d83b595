// Those who were refused, from many reports: added up, bounded, latest first, and a log that stays small.
import { expect, test } from 'vitest'
import { OFFENDERS_KEPT, type Offender } from '../../../dataplane/index.ts'
import { RecentOffenders } from '../../../src/daemon/recent-offenders.ts'
import { ip, ip6 } from '../../support/packets.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const offender = (more: Partial<Offender> = {}): Offender => ({
  outerSource: ip('192.0.2.9'),
  innerSource: ip('10.244.9.9'),
  reason: 'unknown-peer',
  packets: 1,
  lastSeenMs: 1000,
  ...more,
})

test('packets of one offender are added up over reports, whichever worker they come from', () => {
  const recent = new RecentOffenders(new RecordingLog())
  recent.note([offender({ packets: 3 })])
  recent.note([
    offender({ packets: 4, lastSeenMs: 2000 }),
    offender({ reason: 'inner-source-spoofed', lastSeenMs: 1500 }),
  ])
  expect(recent.list).toEqual([
    offender({ packets: 7, lastSeenMs: 2000 }),
    offender({ reason: 'inner-source-spoofed', lastSeenMs: 1500 }),
  ])
})

test('no more are kept than there is room for, those seen longest ago go first', () => {
  const recent = new RecentOffenders(new RecordingLog())
  for (let n = 0; n < OFFENDERS_KEPT; n++) recent.note([offender({ innerSource: n })])
  recent.note([offender({ innerSource: 0 })])
  recent.note([offender({ innerSource: 1000 })])
  expect(recent.list).toHaveLength(OFFENDERS_KEPT)
  expect(recent.list.slice(0, 2).map(({ innerSource }) => innerSource)).toEqual([1000, 0])
  expect(recent.list.some(({ innerSource }) => innerSource === 1)).toBe(false)
})

test('each report is one line that is always the same, with the latest offender in its fields', () => {
  const log = new RecordingLog()
  const recent = new RecentOffenders(log)
  recent.note([offender({ lastSeenMs: 2000, innerSource: ip6('fd00::9') }), offender()])
  recent.note([offender({ outerSource: ip('192.0.2.8') })])
  recent.note([])
  expect(log.lines.map(({ level, event }) => [level, event])).toEqual(Array(2).fill(['warn', 'packets-refused']))
  expect(new Set(log.lines.map(({ message }) => message)).size).toBe(1)
  expect(log.lines[0]?.fields).toEqual({ outerSource: '192.0.2.9', innerSource: 'fd00::9', reason: 'unknown-peer' })
})
