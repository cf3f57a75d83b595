// Counters: one memory for all threads, names for people, books that balance.
import { describe, expect, it } from 'vitest'
import { DROP_REASON_NAMES } from '../../../dataplane/drop-reason.ts'
import { Counters, cellOf } from '../../../dataplane/engine/counters.ts'

describe('counters', () => {
  it('are seen by whoever has the buffer', () => {
    const writer = new Counters()
    const reader = new Counters(writer.buffer)
    writer.add(cellOf('icmp.sent'), 3)
    writer.drop('inbound', 'tun-down', 2, 99)
    expect(reader.get('icmp.sent')).toBe(3)
    expect(reader.dropped('inbound', 'tun-down')).toEqual({ packets: 2, bytes: 99 })
  })

  it('have a cell of their own each: none is counted under two names', () => {
    const counters = new Counters()
    const names = Object.keys(counters.snapshot())
    counters.cells.forEach((_, index) => {
      counters.cells[index] = index + 1
    })
    const values = Object.values(counters.snapshot())
    expect(new Set(values).size).toBe(names.length)
    expect(names.length).toBe(counters.cells.length)
  })

  it('name every reason in both directions', () => {
    const names = Object.keys(new Counters().snapshot())
    for (const reason of DROP_REASON_NAMES) {
      expect(names).toContain(`outbound.dropped.${reason}`)
      expect(names).toContain(`inbound.dropped-bytes.${reason}`)
    }
  })

  it('count beyond 2^32', () => {
    const counters = new Counters()
    counters.add(cellOf('inbound.bytes.read'), 2 ** 40)
    counters.add(cellOf('inbound.bytes.read'), 1)
    expect(counters.get('inbound.bytes.read')).toBe(2 ** 40 + 1)
  })

  it('tell what is astray', () => {
    const counters = new Counters()
    counters.add(cellOf('outbound.packets.read'), 5)
    counters.add(cellOf('outbound.bytes.read'), 500)
    counters.add(cellOf('outbound.packets.passed'), 2)
    counters.add(cellOf('outbound.bytes.passed'), 200)
    counters.drop('outbound', 'no-route', 2, 200)
    expect(counters.imbalance()).toEqual({ packets: 1, bytes: 100 })
  })
})
