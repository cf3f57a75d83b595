// The engine in flannel's plain UDP mode: the bytes on the wire, the hop that the tunnel counts on both sides, and all
// that works as it does for VXLAN.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { DropReason } from '../../../dataplane/drop-reason.ts'
import { finish, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { receiveDatagrams, receivePackets, receiveTrain } from '../../support/arrival.ts'
import { NODE_A, NODE_B, recordSteps, UDP_MTU } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  IPV6,
  type IpOptions,
  icmpEcho,
  ip,
  ip6,
  ipv4Packet,
  openFromTun,
  sameBytes,
  superFromTun,
  tcpPacket,
  type UdpOptions,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { packetsOf, resplit, withChecksums } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'

const PLAIN = { encapsulation: 'udp' } as const

/** Sends things read from A's TUN; tells what was on the wire, what arrived and what A's pods were answered. */
function send(...reads: Uint8Array[]) {
  const pair = tappedPair(PLAIN)
  pair.a.sendFromTun(...reads)
  const answers = pair.a.takeWritten().map(({ packet }) => packet)
  const written = pair.b.receive()
  for (const node of [pair.a, pair.b]) expect(node.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return { ...pair, answers, written }
}

describe('a datagram of plain UDP', () => {
  it('is the inner packet with one hop less, and nothing else, to port 8285 of the peer', () => {
    const { tap } = send(fromTun(icmpEcho({ ttl: 63 })))
    expect(tap.messages).toEqual([
      { address: ip(NODE_B.underlay), port: 8285, tos: 0, segmentSize: 0, frames: [icmpEcho({ ttl: 62 })] },
    ])
  })

  it.each<[string, IpOptions]>([
    ['IPv4', {}],
    ['IPv4 with options', { options: Uint8Array.from([1, 1, 1, 0]) }],
    ['IPv6', IPV6],
  ])('has hop 63 in the pod, 62 on the wire and 61 in the other pod: %s', (_, options) => {
    const packet = (ttl: number) => udpPacket({ ...options, payload: countingBytes(50), ttl })
    const { tap, written } = send(fromTun(packet(63)))
    expect(tap.takePackets()).toEqual([packet(62)])
    expect(written.map((one) => one.packet)).toEqual([packet(61)])
  })

  it('may fill an MTU of 1472 bytes; one more is answered with that number, hop not yet taken', () => {
    const fits = udpPacket({ payload: countingBytes(UDP_MTU - 28), ttl: 9 })
    const large = udpPacket({ payload: countingBytes(UDP_MTU - 27), ttl: 9 })
    expect(UDP_MTU).toBe(1472)
    const { tap, answers } = send(fromTun(fits), fromTun(large))
    expect(tap.takePackets().map((packet) => packet.length)).toEqual([UDP_MTU])
    expect(answers).toHaveLength(1)
    expect([...answers[0]!.slice(20, 22), ...answers[0]!.slice(24, 28)]).toEqual([
      3,
      4,
      0,
      0,
      UDP_MTU >> 8,
      UDP_MTU & 255,
    ])
    expect(answers[0]!.slice(28)).toEqual(large.slice(0, 28))
  })

  it('carries the congestion mark of the packet, and brings back that of the underlay', () => {
    const { tap } = send(fromTun(udpPacket({ tos: 0xba })))
    expect(tap.messages.map(({ tos }) => tos)).toEqual([2])
    const { written } = receiveDatagrams([udpPacket({ tos: 2 })], { tos: 3 }, PLAIN)
    expect(written.map(({ packet }) => packet)).toEqual([udpPacket({ tos: 3, ttl: 62 })])
  })

  it('can be followed under one id on both nodes, although nothing stands in front of it', () => {
    const { a, b } = tappedPair(PLAIN)
    const [out, back] = [recordSteps(a), recordSteps(b)]
    a.sendFromTun(fromTun(icmpEcho()))
    b.receive()
    expect(out.find((step) => step.kind === 'encap')).toMatchObject({ headerLength: 0 })
    expect(new Set([...out, ...back].flatMap((step) => ('id' in step ? [step.id] : []))).size).toBe(1)
  })
})

describe('the last hop', () => {
  const ANSWER_4 = { type: 11, icmpAt: 20, quoteAt: 28 }
  const ANSWER_6 = { type: 3, icmpAt: 40, quoteAt: 48 }
  it.each([
    ['TTL 1', udpPacket({ ttl: 1 }), ANSWER_4],
    ['TTL 0', udpPacket({ ttl: 0 }), ANSWER_4],
    ['an echo request', icmpEcho({ ttl: 1 }), ANSWER_4],
    ['hop limit 1', udpPacket({ ...IPV6, ttl: 1 }), ANSWER_6],
    ['an echo request of IPv6', icmpEcho({ ...IPV6, ttl: 1 }), ANSWER_6],
  ])('on the way out is answered with time exceeded, code 0, the packet quoted as it was: %s', (_, packet, answer) => {
    const { a, tap, answers } = send(fromTun(packet))
    expect(tap.messages).toEqual([])
    expect(a.counters.dropped('outbound', 'ttl-expired')).toEqual({ packets: 1, bytes: packet.length })
    expect(answers).toHaveLength(1)
    const [told] = answers
    expect([...told!.slice(answer.icmpAt, answer.icmpAt + 2)]).toEqual([answer.type, 0])
    expect([...told!.slice(answer.icmpAt + 4, answer.icmpAt + 8)]).toEqual([0, 0, 0, 0])
    expect(told!.slice(answer.quoteAt)).toEqual(packet.slice(0, told!.length - answer.quoteAt))
  })

  it('of a super-packet on the way out is answered once', () => {
    const { a, answers } = send(
      superFromTun(tcpPacket({ payload: countingBytes(3000), ttl: 1, checksum: 'partial' }), 100),
    )
    expect(answers).toHaveLength(1)
    expect(a.counters.dropped('outbound', 'ttl-expired').packets).toBe(1)
  })

  it.each([
    ['TTL 1', udpPacket({ ttl: 1 })],
    ['TTL 0', udpPacket({ ttl: 0 })],
    ['hop limit 1', udpPacket({ ...IPV6, ttl: 1 })],
  ])('on the way in ends the packet without a word: %s', (_, packet) => {
    const { b, written } = receiveDatagrams([packet], {}, PLAIN)
    expect(written).toEqual([])
    expect(b.counters.dropped('inbound', 'ttl-expired')).toEqual({ packets: 1, bytes: packet.length })
    expect(b.counters.get('icmp.sent')).toBe(0)
  })

  it('TTL 2 reaches the wire with 1 and ends there; TTL 3 reaches the pod with 1', () => {
    const { tap, written, b } = send(fromTun(udpPacket({ ttl: 2 })), fromTun(udpPacket({ ttl: 3 })))
    expect(tap.takePackets()).toEqual([udpPacket({ ttl: 1 }), udpPacket({ ttl: 2 })])
    expect(written.map(({ packet }) => packet)).toEqual([udpPacket({ ttl: 1 })])
    expect(b.counters.dropped('inbound', 'ttl-expired').packets).toBe(1)
  })
})

describe('a destination that no lease covers', () => {
  it.each<[string, Uint8Array]>([
    ['UDP', udpPacket({ destination: '10.244.9.9' })],
    ['an echo request', icmpEcho({ destination: '10.244.9.9' })],
  ])('is answered with net unreachable, TTL not yet taken: %s', (_, packet) => {
    const [answer] = send(fromTun(packet)).answers
    expect(ipv4.parse(answer!, 0, answer!.length)).toMatchObject({
      dscp: 0,
      identification: 0,
      flags: 0,
      ttl: 8,
      protocol: 1,
      source: ip(NODE_A.subnet),
      destination: ip('10.244.1.2'),
    })
    expect([...answer!.slice(20, 22), ...answer!.slice(24, 28)]).toEqual([3, 0, 0, 0, 0, 0])
    expect(answer!.slice(28)).toEqual(packet.slice(0, 28))
    expect(finish(sumWords(answer!, 20, answer!.length))).toBe(0)
  })

  it('is answered with no route over IPv6', () => {
    const [answer] = send(fromTun(icmpEcho({ ...IPV6, destination: 'fd00:10:244:9::9' }))).answers
    expect([...answer!.slice(40, 42)]).toEqual([1, 0])
    expect(ipv6.getSource(viewOf(answer!), 0)).toBe(ip6(NODE_A.ipv6Subnet))
  })
})

describe('offloads', () => {
  it.each<[string, IpOptions]>([
    ['IPv4', {}],
    ['IPv6', IPV6],
  ])('super-packets are cut, each piece with its hop taken, and joined again: %s', (_, options) => {
    const ttls = (ttl: number) => ({ ...options, ttl, payload: countingBytes(20_000), checksum: 'partial' }) as const
    for (const build of [tcpPacket, udpPacket]) {
      const { tap, written } = send(superFromTun(build(ttls(63)), 1400))
      expect(tap.messages).toHaveLength(1)
      expect(tap.takePackets()).toEqual(packetsOf(superFromTun(build(ttls(62)), 1400)))
      expect(written.map(({ packet }) => packet)).toEqual([build(ttls(61))])
    }
  })

  it('an open checksum is completed: the TTL has no part in it', () => {
    const open = (ttl: number) => tcpPacket({ payload: countingBytes(99), ttl, checksum: 'partial' })
    expect(send(openFromTun(open(63))).tap.takePackets()).toEqual([withChecksums(open(62))])
  })

  it('small packets of one size share a send, although a virtio-net header lies between them in memory', () => {
    const packets = (ttl: number, options: UdpOptions = {}) =>
      Array.from({ length: 40 }, (_, n) =>
        udpPacket({ ...options, payload: countingBytes(18, n), identification: n, ttl }),
      )
    for (const options of [{}, IPV6]) {
      const { tap, written } = send(...packets(63, options).map((packet) => fromTun(packet)))
      expect(tap.messages.map(({ frames }) => frames)).toEqual([packets(62, options)])
      expect(written).toHaveLength(1)
      expect(written.flatMap(resplit)).toEqual(packets(61, options))
    }
  })

  it('trains are cut into their packets, and those joined', () => {
    const packets = (ttl: number) =>
      Array.from({ length: 11 }, (_, n) =>
        udpPacket({ payload: countingBytes(n < 10 ? 1400 : 200, n), identification: n, ttl }),
      )
    const { written, b } = receiveTrain(packets(62), PLAIN)
    expect(b.counters.get('inbound.packets.passed')).toBe(11)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(packets(61))
  })

  it('packets whose hops differ are not joined', () => {
    const given = [0, 1].map((n) => udpPacket({ payload: countingBytes(99, n), identification: n, ttl: 50 + n }))
    expect(receivePackets(given, PLAIN).written).toHaveLength(2)
  })
})

describe('a datagram that is no packet of ours', () => {
  const damaged = icmpEcho()
  damaged[10]! ^= 1
  it.each<[DropReason, Uint8Array, string?]>([
    ['truncated', new Uint8Array(0)],
    ['truncated', icmpEcho().slice(0, 19)],
    ['truncated', icmpEcho().slice(0, 83)],
    ['truncated', icmpEcho(IPV6).slice(0, 39)],
    ['not-ip', new Uint8Array(40)],
    ['bad-header-length', Uint8Array.from([0x44, ...icmpEcho().slice(1)])],
    ['bad-checksum', damaged],
    ['unknown-peer', icmpEcho(), '192.0.2.99'],
    ['inner-source-spoofed', icmpEcho({ source: '10.244.3.4' })],
    ['inner-destination-foreign', icmpEcho({ destination: '10.244.3.4' })],
  ])('is dropped as %s', (reason, datagram, from = NODE_A.underlay) => {
    const { written, b } = receiveDatagrams([datagram], { from }, PLAIN)
    expect(written).toEqual([])
    expect(b.counters.dropped('inbound', reason)).toEqual({ packets: 1, bytes: datagram.length })
  })

  it('bytes behind the packet are cut off', () => {
    const { written } = receiveDatagrams([Uint8Array.from([...icmpEcho(), 1, 2, 3])], {}, PLAIN)
    expect(written.map(({ packet }) => packet)).toEqual([icmpEcho({ ttl: 62 })])
  })

  it('fragments cross with their hops taken', () => {
    const fragment = (ttl: number) =>
      ipv4Packet(17, countingBytes(100), { fragmentWord: ipv4.MORE_FRAGMENTS | 40, ttl })
    expect(send(fromTun(fragment(9))).written.map(({ packet }) => packet)).toEqual([fragment(7)])
  })
})

describe('any run over plain UDP', () => {
  const read = fc.record({
    isTcp: fc.boolean(),
    isIpv6: fc.boolean(),
    bytes: fc.oneof(fc.constantFrom(1, 100, 1400), fc.integer({ min: 1, max: 60_000 })),
  })

  it('puts every packet on the wire once, whole, in order, one hop less', () => {
    const property = fc.property(fc.array(read, { maxLength: 12 }), (plan) => {
      const superPacket = (ttl: number) =>
        plan.map(({ isTcp, isIpv6, bytes }, n) => {
          const options = {
            ...(isIpv6 ? IPV6 : {}),
            ttl,
            payload: countingBytes(bytes, n),
            checksum: 'partial',
          } as const
          return superFromTun(isTcp ? tcpPacket(options) : udpPacket(options), 1400)
        })
      const expected = superPacket(62).flatMap(packetsOf)
      const { a, tap } = tappedPair({ ...PLAIN, queueLength: 256 })
      a.sendFromTun(...superPacket(63))
      expect(sameBytes(tap.takePackets(), expected)).toBe(true)
    })
    fc.assert(property, { numRuns: 25 })
  })
})
