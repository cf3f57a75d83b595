// How it stands with a peer, from sums alone: above all, that silence is told from an answer that may yet come.
import { expect, test } from 'vitest'
import type { PeerTraffic } from '../../../dataplane/index.ts'
import { PeerWatch, UNANSWERED_MS, UNANSWERED_PACKETS } from '../../../src/daemon/peer-watch.ts'

const PEER = 0xc0000202
const NOTHING: PeerTraffic = {
  ...{ sentPackets: 0, sentBytes: 0, lastSentMs: 0 },
  ...{ receivedPackets: 0, receivedBytes: 0, lastReceivedMs: 0 },
}

function watchOne() {
  const watch = new PeerWatch()
  return (nowMs: number, seen: Partial<PeerTraffic>) =>
    watch.look(new Map([[PEER, { ...NOTHING, ...seen }]]), nowMs).get(PEER)
}

test('a peer without packets is idle', () => {
  expect(watchOne()(1000, {})).toBe('idle')
})

test('sending and hearing is active, and idle when both are long ago', () => {
  const look = watchOne()
  const seen = { sentPackets: 9, lastSentMs: 900, receivedPackets: 9, lastReceivedMs: 950 }
  expect(look(1000, seen)).toBe('active')
  expect(look(100_000, seen)).toBe('idle')
})

test('sending without an answer is no news at first, and then it is', () => {
  const look = watchOne()
  expect(look(1000, { sentPackets: 1, lastSentMs: 990 })).toBe('sending')
  const seen = { sentPackets: UNANSWERED_PACKETS, lastSentMs: 1000 + UNANSWERED_MS }
  expect(look(999 + UNANSWERED_MS, seen)).toBe('sending')
  expect(look(1000 + UNANSWERED_MS, seen)).toBe('no-answer')
})

test('a few stray packets are not worth a word', () => {
  const look = watchOne()
  const seen = { sentPackets: UNANSWERED_PACKETS - 1, lastSentMs: 20_000 }
  look(1000, seen)
  expect(look(20_000, seen)).toBe('sending')
})

test('a peer that answered before and falls silent is without an answer, until something comes again', () => {
  const look = watchOne()
  const before = { receivedPackets: 50, lastReceivedMs: 1000 }
  expect(look(1000, { ...before, sentPackets: 50, lastSentMs: 1000 })).toBe('active')
  look(2000, { ...before, sentPackets: 60, lastSentMs: 2000 })
  expect(look(13_000, { ...before, sentPackets: 90, lastSentMs: 13_000 })).toBe('no-answer')
  expect(look(14_000, { receivedPackets: 51, lastReceivedMs: 13_900, sentPackets: 91, lastSentMs: 14_000 })).toBe(
    'active',
  )
})

test('who stops sending is not kept waiting for an answer', () => {
  const look = watchOne()
  const seen = { sentPackets: 90, lastSentMs: 1000 }
  look(1000, seen)
  expect(look(12_000, seen)).toBe('no-answer')
  expect(look(32_000, seen)).toBe('idle')
})

test('a peer that went and came back is judged anew', () => {
  const watch = new PeerWatch()
  watch.look(new Map([[PEER, { ...NOTHING, sentPackets: 90, lastSentMs: 1000 }]]), 1000)
  watch.look(new Map(), 2000)
  const again = new Map([[PEER, { ...NOTHING, sentPackets: 9, lastSentMs: 20_000 }]])
  expect(watch.look(again, 20_000).get(PEER)).toBe('sending')
})
