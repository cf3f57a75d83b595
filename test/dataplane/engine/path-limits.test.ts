// A way to a peer that takes less than the overlay's MTU, with DF set on what is sent: who is told, what leaves all the same,
// and when it is forgotten.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { OVERHEAD_BYTES } from '../../../dataplane/encap/overhead.ts'
import { REVIEW_MS } from '../../../dataplane/engine/path-limits.ts'
import { encodeForwardingTable } from '../../../dataplane/forwarding/forwarding-table.ts'
import * as icmpv4 from '../../../dataplane/wire/icmpv4.ts'
import * as icmpv6 from '../../../dataplane/wire/icmpv6.ts'
import { finish, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import { PeerLedger } from '../../../dataplane/worker/peer-ledger.ts'
import {
  enginePair,
  entriesFor,
  entryFor,
  MTU,
  NODE_B,
  type NodeOptions,
  type Written,
} from '../../support/engine-pair.ts'
import { LimitedPath } from '../../support/limited-path.ts'
import { countingBytes, fromTun, ip, superFromTun, tcpPacket, udpPacket, viewOf } from '../../support/packets.ts'

const THERE = ip(NODE_B.underlay)
/** Of 1400 bytes on the underlay. */
const WHOLE = 1350
const OUTSIDE_UDP = 28
const OTHER = { ...NODE_B, underlay: '192.0.2.9', subnet: '10.244.9.0', mac: 0x0a0000000009 }
const IPV4_ONLY = { settings: { ipv6Subnet: null, overlayIpv6: null } } as const
const MINUTE_MS = 60_000

/** Node A behind a way to B that takes inner packets of `whole` bytes, and what its workers would tell the daemon. */
function limitedPair(whole: number, options: NodeOptions = {}) {
  let nowMs = 1000
  const paths: LimitedPath[] = []
  const wrapSocket: NodeOptions['wrapSocket'] = (socket) => {
    const path = new LimitedPath(socket)
    paths.push(path)
    return path
  }
  const pair = enginePair({ nowMs: () => nowMs, wrapSocket, ...options })
  const path = paths[0]!
  path.payloads.set(THERE, whole + OVERHEAD_BYTES.vxlan - OUTSIDE_UDP)
  const ledger = new PeerLedger()
  let generation = 100
  const learn = (...entries: ReturnType<typeof entriesFor>) => {
    const table = encodeForwardingTable(entries, ++generation)
    pair.a.engine.replaceTable(table, ledger.open(table))
  }
  learn(...entriesFor(NODE_B, options.encapsulation))
  const send = (...packets: Uint8Array[]) => {
    pair.a.sendFromTun(...packets)
    expect(pair.a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
    return { told: pair.a.takeWritten(), arrived: pair.b.receive().map(({ packet }) => packet) }
  }
  const pass = (ms: number) => {
    nowMs += ms
    pair.a.engine.reviewPaths()
  }
  const dropped = (reason: 'too-big' | 'tx-too-big') => pair.a.counters.dropped('outbound', reason).packets
  return { ...pair, path, ledger, learn, send, pass, dropped }
}

/** A UDP packet of so many bytes, headers included; with DF unless said otherwise. */
const sized = (bytes: number, more: Parameters<typeof udpPacket>[0] = {}) =>
  udpPacket({ payload: countingBytes(bytes - 28), ...more })
const CUTTABLE = { fragmentWord: 0 }
const V6 = { source: 'fd00:10:244:1::2', destination: 'fd00:10:244:2::3' }
const sized6 = (bytes: number) => udpPacket({ payload: countingBytes(bytes - 48), ...V6 })

/** The MTU that an answer names, its bytes 6 and 7 (ICMPv6: 4 to 7). */
function namedMtu({ packet }: Written): number {
  const view = viewOf(packet)
  if (packet[0]! >> 4 === 6) {
    expect(packet[40]).toBe(icmpv6.TYPE_PACKET_TOO_BIG)
    return view.getUint32(44)
  }
  expect([packet[20], packet[21]]).toEqual([icmpv4.TYPE_UNREACHABLE, icmpv4.CODE_FRAGMENTATION_NEEDED])
  expect(view.getUint16(24)).toBe(0)
  expect(finish(sumWords(packet, 20, packet.length))).toBe(0)
  return view.getUint16(26)
}

describe('a packet with DF that is larger than the way takes', () => {
  it('is told of at once when the kernel refuses it, and the next one before it is sent', () => {
    const { send, dropped, path, a } = limitedPair(WHOLE)
    const packet = sized(MTU)
    const first = send(fromTun(packet))
    expect(first.told.map(namedMtu)).toEqual([WHOLE])
    expect(first.told[0]!.packet.slice(28)).toEqual(packet.slice(0, 28))
    expect([dropped('tx-too-big'), dropped('too-big')]).toEqual([1, 0])
    expect(send(fromTun(packet)).told.map(namedMtu)).toEqual([WHOLE])
    expect([dropped('tx-too-big'), dropped('too-big')]).toEqual([1, 1])
    expect([path.sent, path.asked, a.counters.get('path-mtu.lowered')]).toEqual([[], 1, 1])
  })

  it('is the first that does not pass: the largest that the way takes arrives', () => {
    const { send } = limitedPair(WHOLE)
    send(fromTun(sized(MTU)))
    expect(send(fromTun(sized(WHOLE))).arrived).toEqual([sized(WHOLE)])
    expect(send(fromTun(sized(WHOLE + 1))).told.map(namedMtu)).toEqual([WHOLE])
  })

  it('of IPv6 is answered with what fits the smallest MTU of it', () => {
    const { send } = limitedPair(WHOLE)
    const packet = sized6(MTU)
    for (const { told } of [send(fromTun(packet)), send(fromTun(packet))]) {
      expect(told.map(namedMtu)).toEqual([WHOLE])
      expect(told[0]!.packet).toHaveLength(1280)
      expect(told[0]!.packet.slice(48)).toEqual(packet.slice(0, 1280 - 48))
    }
  })

  it('is one of a train that was refused as a whole: all are counted, the sender is told once, the next train is told of', () => {
    const { send, dropped } = limitedPair(WHOLE)
    const train = Array.from({ length: 20 }, (_, n) => fromTun(sized(MTU, { identification: n })))
    expect(send(...train).told.map(namedMtu)).toEqual([WHOLE])
    expect(dropped('tx-too-big')).toBe(20)
    expect(send(...train).told.map(namedMtu)).toEqual(train.map(() => WHOLE))
    expect(dropped('too-big')).toBe(20)
  })

  it.each([
    ['IPv4', {}, 1410, 40],
    ['IPv6', V6, 1390, 60],
  ])(
    'is a segment of a TCP super-packet: TCP is told, and what it sends then arrives (%s)',
    (_, hosts, mss, headers) => {
      const { send, path, dropped } = limitedPair(WHOLE)
      const stream = (segment: number, count: number) =>
        superFromTun(tcpPacket({ payload: countingBytes(segment * count), checksum: 'partial', ...hosts }), segment)
      const first = send(stream(mss, 5))
      expect(first.told.map(namedMtu)).toEqual([WHOLE])
      expect(dropped('tx-too-big')).toBe(5)
      const second = send(stream(mss, 5))
      expect(second.told.map(namedMtu)).toEqual([WHOLE])
      // What a kernel cut itself looks the same but for length, id and checksums: the answer quotes what is behind it rightly.
      const quoted = first.told[0]!.packet.slice(headers === 60 ? 48 + 60 : 28 + 20)
      expect(quoted).toEqual(
        (headers === 60 ? countingBytes(mss) : second.told[0]!.packet.slice(48)).slice(0, quoted.length),
      )
      expect(send(stream(WHOLE - headers, 5)).arrived).toHaveLength(1)
      expect(path.sent).toEqual([{ df: true, frames: 5, frameBytes: WHOLE + 22 }])
    },
  )

  it('is told what plain UDP leaves of the way, which adds less', () => {
    const { send, path, ledger } = limitedPair(WHOLE, { encapsulation: 'udp' })
    path.payloads.set(THERE, 1400 - OUTSIDE_UDP)
    expect(send(fromTun(sized(1472))).told.map(namedMtu)).toEqual([1400 - OVERHEAD_BYTES.udp])
    expect(send(fromTun(sized(1372))).arrived).toHaveLength(1)
    expect(ledger.pathLimits()).toEqual(new Map([[THERE, 1372]]))
  })

  it('to another peer passes: each has a limit of its own', () => {
    const { send, learn, path } = limitedPair(WHOLE)
    learn(...entriesFor(NODE_B), entryFor(OTHER))
    send(fromTun(sized(MTU)))
    expect(send(fromTun(sized(MTU, { destination: '10.244.9.3' }))).told).toEqual([])
    expect(path.asked).toBe(1)
  })

  it('costs no other of its batch: nine arrive in one send, one is told of, and other peers notice nothing', () => {
    const { send, learn, path, dropped } = limitedPair(WHOLE)
    learn(...entriesFor(NODE_B), entryFor(OTHER))
    const small = Array.from({ length: 9 }, (_, n) => sized(1000, { identification: n }))
    const { told, arrived } = send(
      ...small.map((packet) => fromTun(packet)),
      fromTun(sized(MTU)),
      fromTun(sized(MTU, { destination: '10.244.9.3' })),
    )
    expect(told.map(namedMtu)).toEqual([WHOLE])
    expect(arrived).toHaveLength(1) // joined again
    expect(path.sent).toEqual([
      { df: true, frames: 9, frameBytes: 1022 },
      { df: true, frames: 1, frameBytes: MTU + 22 },
    ])
    expect(dropped('tx-too-big')).toBe(1)
    expect(send(...small.map((packet) => fromTun(packet))).told).toEqual([])
    expect(path.sent.at(-1)).toEqual({ df: true, frames: 9, frameBytes: 1022 })
  })

  it('is lost, and no more, where the kernel does not say what would pass', () => {
    const { send, path, dropped } = limitedPair(WHOLE)
    path.answer = -113
    for (let n = 0; n < 2; n++) expect(send(fromTun(sized(MTU)))).toEqual({ told: [], arrived: [] })
    expect([dropped('tx-too-big'), dropped('too-big')]).toEqual([2, 0])
  })
})

describe('a packet without DF that is larger than the way takes', () => {
  it('leaves without DF outside as well, and arrives as it was', () => {
    const { send, path, a } = limitedPair(WHOLE)
    send(fromTun(sized(MTU)))
    expect(send(fromTun(sized(MTU, CUTTABLE)))).toEqual({ told: [], arrived: [sized(MTU, CUTTABLE)] })
    expect(path.sent).toEqual([{ df: false, frames: 1, frameBytes: MTU + 22 }])
    expect(a.counters.get('outbound.oversized')).toBe(1)
    expect(send(fromTun(sized(WHOLE, CUTTABLE))).arrived).toHaveLength(1)
    expect(path.sent.at(-1)).toMatchObject({ df: true })
  })

  it('does so too when it is larger than the overlay’s MTU', () => {
    const { send, path } = limitedPair(9000)
    expect(send(fromTun(sized(3000, CUTTABLE))).arrived).toEqual([sized(3000, CUTTABLE)])
    expect(path.sent).toEqual([{ df: false, frames: 1, frameBytes: 3022 }])
  })
})

describe('a limit that leaves less than every host must take', () => {
  it.each([
    ['8 bytes', 8, IPV4_ONLY],
    ['183 bytes', 183, IPV4_ONLY],
    ['less than the tunnel’s headers', -20, IPV4_ONLY],
    ['one byte less for IPv4', 575, IPV4_ONLY],
    ['one byte less where there is IPv6', 1279, {}],
  ])('is counted and believed by nobody, and packets leave for routers to cut: %s', (_, whole, options) => {
    const { send, ledger, a, path } = limitedPair(whole, options)
    expect(send(fromTun(sized(MTU))).told).toEqual([])
    expect(send(fromTun(sized(MTU)))).toEqual({ told: [], arrived: [sized(MTU)] })
    expect(path.sent.at(-1)).toMatchObject({ df: false })
    expect(send(fromTun(sized(MTU + 1))).told.map(namedMtu)).toHaveLength(1)
    expect([a.counters.get('path-mtu.ignored'), a.counters.get('path-mtu.lowered')]).toEqual([1, 0])
    expect(ledger.pathLimits()).toEqual(new Map())
  })

  it.each([
    ['576 bytes', 576, IPV4_ONLY],
    ['1280 bytes where there is IPv6', 1280, {}],
  ])('is not one of %s', (_, whole, options) => {
    const { send, ledger } = limitedPair(whole, options)
    expect(send(fromTun(sized(MTU))).told.map(namedMtu)).toEqual([whole])
    expect(ledger.pathLimits()).toEqual(new Map([[THERE, whole]]))
  })
})

describe('what is known of a way', () => {
  it('is told to the daemon, and goes with the peer from table to table', () => {
    const { send, ledger, learn } = limitedPair(WHOLE)
    send(fromTun(sized(MTU)))
    expect(ledger.pathLimits()).toEqual(new Map([[THERE, WHOLE]]))
    learn(...entriesFor(NODE_B), entryFor(OTHER))
    expect(ledger.pathLimits()).toEqual(new Map([[THERE, WHOLE]]))
    learn(entryFor(OTHER))
    expect(ledger.pathLimits()).toEqual(new Map())
    learn(...entriesFor(NODE_B))
    expect(ledger.pathLimits()).toEqual(new Map())
  })

  it('is asked for again now and then, and ends when the kernel forgets it after ten minutes', () => {
    const { send, path, pass, ledger, a } = limitedPair(WHOLE)
    send(fromTun(sized(MTU)))
    for (let minute = 0; minute < 9; minute++) pass(MINUTE_MS)
    expect(path.asked).toBe(10)
    expect(send(fromTun(sized(MTU))).told.map(namedMtu)).toEqual([WHOLE])
    path.payloads.clear()
    pass(MINUTE_MS)
    expect(ledger.pathLimits()).toEqual(new Map())
    expect(a.counters.get('path-mtu.raised')).toBe(1)
    expect(send(fromTun(sized(MTU)))).toEqual({ told: [], arrived: [sized(MTU)] })
  })

  it('is asked for no more often than that, and not at all while no way is limited', () => {
    const { send, path, pass } = limitedPair(WHOLE)
    pass(MINUTE_MS)
    expect(path.asked).toBe(0)
    send(fromTun(sized(MTU)))
    pass(REVIEW_MS - 1)
    expect(path.asked).toBe(1)
    pass(1)
    expect(path.asked).toBe(2)
  })

  it('shrinks and grows with what the kernel says', () => {
    const { send, path, pass, ledger } = limitedPair(WHOLE)
    send(fromTun(sized(MTU)))
    for (const whole of [1300, 1400]) {
      path.payloads.set(THERE, whole + 22)
      pass(REVIEW_MS)
      expect(ledger.pathLimits()).toEqual(new Map([[THERE, whole]]))
      expect(send(fromTun(sized(MTU))).told.map(namedMtu)).toEqual([whole])
    }
  })

  it('holds for packets that are like one that passed before', () => {
    const { send, path } = limitedPair(MTU)
    const packet = fromTun(sized(MTU))
    expect(send(packet, packet, packet).arrived.length).toBeGreaterThan(0)
    path.payloads.set(THERE, WHOLE + 22)
    send(packet)
    expect(send(packet).told.map(namedMtu)).toEqual([WHOLE])
  })
})

describe('whatever the kernel says', () => {
  const path = fc.oneof(fc.integer({ min: -100, max: 700 }), fc.integer({ min: 1200, max: MTU + 50 }))
  const step = fc.record({
    whole: path,
    bytes: fc.integer({ min: 28, max: MTU + 40 }),
    df: fc.boolean(),
    ms: fc.nat(9000),
  })

  it('each packet arrives, is told of with a size that hosts must take, or meets the change itself', () => {
    fc.assert(
      fc.property(fc.boolean(), fc.array(step, { minLength: 1, maxLength: 20 }), (hasIpv6, steps) => {
        const least = hasIpv6 ? 1280 : 576
        const { send, path, pass, dropped } = limitedPair(MTU, hasIpv6 ? {} : IPV4_ONLY)
        for (const { whole, bytes, df, ms } of steps) {
          path.payloads.set(THERE, Math.max(1, whole + 22))
          pass(ms)
          const before = dropped('tx-too-big')
          const packet = sized(bytes, df ? {} : CUTTABLE)
          const { told, arrived } = send(fromTun(packet))
          const refused = dropped('tx-too-big') - before
          for (const answer of told) {
            expect(namedMtu(answer)).toBeGreaterThanOrEqual(least)
            expect(namedMtu(answer)).toBeLessThan(bytes)
          }
          if (refused === 0) expect(arrived.length + told.length).toBe(1)
          if (arrived.length === 1) expect(arrived).toEqual([packet])
        }
      }),
    )
  })
})
