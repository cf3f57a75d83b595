// Sources that a node forwards for others, and the list of those who were refused.
import { describe, expect, it } from 'vitest'
import { OFFENDERS_KEPT } from '../../../dataplane/engine/offenders.ts'
import type { EngineSettings } from '../../../dataplane/engine/settings.ts'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { receiveDatagrams } from '../../support/arrival.ts'
import { enginePair, NODE_A } from '../../support/engine-pair.ts'
import { type IpOptions, icmpEcho, ip } from '../../support/packets.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

const STRANGER = '192.0.2.99'
const from = (options: IpOptions = {}) => vxlanFrame(icmpEcho(options))
const sourceAllow = [parsePrefix('10.8.0.0/16')!, parsePrefix('203.0.113.7/32')!, parseIpv6Prefix('fd00:8::/64')!]

function passes(datagram: Uint8Array, sender = NODE_A.underlay, settings: Partial<EngineSettings> = {}): boolean {
  return receiveDatagrams([datagram], { from: sender }, { settings: { sourceAllow, ...settings } }).written.length === 1
}

describe('an allowed source', () => {
  it.each(['10.8.0.0', '10.8.255.255', '203.0.113.7'])('%s may come from any lease holder', (source) => {
    expect(passes(from({ source }))).toBe(true)
  })

  it.each(['10.7.255.255', '10.9.0.0', '203.0.113.6', '203.0.113.8'])('%s is beside it and may not', (source) => {
    expect(passes(from({ source }))).toBe(false)
  })

  it('may not come from a stranger, and only for our own subnet', () => {
    expect(passes(from({ source: '10.8.1.1' }), STRANGER)).toBe(false)
    expect(passes(from({ source: '10.8.1.1', destination: '10.244.3.1' }))).toBe(false)
  })

  it('takes nothing away from those who hold a lease', () => {
    expect(passes(from())).toBe(true)
    expect(passes(from(), STRANGER)).toBe(false)
    expect(passes(from({ source: '10.244.3.4' }))).toBe(false)
  })

  it('is checked packet by packet: one that passed opens no way for others', () => {
    const frames = ['10.8.1.1', '10.9.1.1', '10.8.1.1'].map((source) => from({ source }))
    const { written, b } = receiveDatagrams(frames, {}, { settings: { sourceAllow } })
    expect(written).toHaveLength(2)
    expect(b.counters.dropped('inbound', 'inner-source-spoofed').packets).toBe(1)
  })
})

describe('those who were refused', () => {
  function node(nowMs = () => 0) {
    const { b } = enginePair({ nowMs })
    const receive = (datagram: Uint8Array, sender = NODE_A.underlay) => {
      b.socket.deliver(datagram, ip(sender))
      b.receive()
    }
    return { offenders: b.engine.offenders, receive }
  }

  it('are kept with both addresses, reason, count and time', () => {
    let now = 1000
    const { offenders, receive } = node(() => now)
    receive(from(), STRANGER)
    receive(from({ source: '10.244.3.4' }))
    receive(from({ destination: '10.244.3.4' }))
    now = 5000
    receive(from(), STRANGER)
    now = 7000
    const [own, spoofed] = [ip('10.244.1.2'), ip('10.244.3.4')]
    const [stranger, peer] = [ip(STRANGER), ip(NODE_A.underlay)]
    expect(offenders.take(1_000_000)).toEqual([
      { outerSource: stranger, innerSource: own, reason: 'unknown-peer', packets: 2, lastSeenMs: 998_000 },
      { outerSource: peer, innerSource: spoofed, reason: 'inner-source-spoofed', packets: 1, lastSeenMs: 994_000 },
      { outerSource: peer, innerSource: own, reason: 'inner-destination-foreign', packets: 1, lastSeenMs: 994_000 },
    ])
  })

  it('are told once', () => {
    const { offenders, receive } = node()
    expect(offenders.isEmpty).toBe(true)
    receive(from(), STRANGER)
    expect(offenders.isEmpty).toBe(false)
    expect(offenders.take(0)).toHaveLength(1)
    expect(offenders.isEmpty).toBe(true)
    expect(offenders.take(0)).toEqual([])
  })

  it('are so many at most, the latest ones', () => {
    let now = 0
    const { offenders, receive } = node(() => now)
    for (let n = 0; n < OFFENDERS_KEPT + 8; n++) {
      now = n
      receive(from({ source: `10.99.0.${n}` }))
    }
    const kept = offenders.take(0).map(({ innerSource }) => Number(innerSource) & 0xff)
    expect(kept.sort((a, b) => a - b)).toEqual(Array.from({ length: OFFENDERS_KEPT }, (_, n) => n + 8))
  })

  it('are not those who passed, nor those whose tunnel header is not ours', () => {
    const { offenders, receive } = node()
    receive(from())
    receive(vxlanFrame(icmpEcho(), { vni: 7 }), STRANGER)
    expect(offenders.isEmpty).toBe(true)
  })
})
