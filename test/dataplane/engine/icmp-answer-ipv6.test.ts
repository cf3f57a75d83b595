// What a pod is told over ICMPv6 when its packet is not forwarded: exact bytes, and when it is better told nothing.
import { describe, expect, it } from 'vitest'
import * as icmpv6 from '../../../dataplane/wire/icmpv6.ts'
import { finish, sumPseudoHeader6, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { DESTINATION_OPTIONS, FRAGMENT } from '../../../dataplane/wire/ipv6-extension.ts'
import { describeLayers } from '../../../dataplane/wire/layers.ts'
import { MTU, type NodeOptions } from '../../support/engine-pair.ts'
import {
  countingBytes,
  type Extension,
  fromTun,
  IPV6,
  icmpEcho,
  ip6,
  ipv6Packet,
  superFromTun,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { tappedPair } from '../../support/underlay-tap.ts'

const NOWHERE = { ...IPV6, destination: 'fd00:10:244:9::9' }
const US = ip6('fd00:10:244:1::')
const POD = ip6(IPV6.source)
const tooBig = udpPacket({ ...IPV6, payload: countingBytes(MTU + 1 - 48) })

/** What the pod reads back for one thing read from the TUN. */
function answersTo(fromTheTun: Uint8Array, options: NodeOptions = {}) {
  const pair = tappedPair(options)
  pair.a.sendFromTun(fromTheTun)
  expect(pair.tap.messages).toEqual([])
  expect(pair.a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return { ...pair, answers: pair.a.takeWritten() }
}

/** 0 when the checksum of the ICMPv6 message in the packet is right. */
const checksumError = (packet: Uint8Array): number =>
  finish(sumWords(packet, 40, packet.length, sumPseudoHeader6(US, POD, ipv6.PROTOCOL_ICMPV6, packet.length - 40)))

describe('an IPv6 packet one byte larger than the MTU', () => {
  const { answers, a } = answersTo(fromTun(tooBig))
  const { packet, vnet } = answers[0]!
  const icmp = packet.slice(40)

  it('is answered once, as a plain packet', () => {
    expect(answers).toHaveLength(1)
    expect(Object.values(vnet).every((value) => value === 0)).toBe(true)
    expect(a.counters.dropped('outbound', 'too-big')).toEqual({ packets: 1, bytes: MTU + 1 })
  })

  it('comes from our overlay address, to the sender', () => {
    expect(ipv6.parse(packet, 0, packet.length)).toMatchObject({
      source: US,
      destination: POD,
      nextHeader: ipv6.PROTOCOL_ICMPV6,
      payloadLength: packet.length - 40,
      hopLimit: 8,
    })
  })

  it('says type 2, code 0, and the MTU in 32 bits', () => {
    expect([icmp[0], icmp[1]]).toEqual([2, 0])
    expect([...icmp.slice(4, 8)]).toEqual([0, 0, MTU >> 8, MTU & 0xff])
  })

  it('quotes as much as fits into 1280 bytes in all, untouched', () => {
    expect(packet).toHaveLength(1280)
    expect(icmp.slice(8)).toEqual(tooBig.slice(0, 1232))
  })

  it('has a right checksum, and is understood by a reader', () => {
    expect(checksumError(packet)).toBe(0)
    const notes = describeLayers(packet, 0, packet.length, 'ipv6')
    expect(notes.filter((note) => note.problem !== undefined)).toEqual([])
  })

  it('is not given for what fits', () => {
    const { a: sender, tap } = tappedPair()
    sender.sendFromTun(fromTun(tooBig.slice(0)), fromTun(udpPacket({ ...IPV6, payload: countingBytes(MTU - 48) })))
    expect(sender.takeWritten()).toHaveLength(1)
    expect(tap.takePackets().map((one) => one.length)).toEqual([MTU])
  })
})

describe('an IPv6 super-packet', () => {
  const packet = tcpPacket({ ...IPV6, payload: countingBytes(4000), checksum: 'partial' })

  it('whose pieces would exceed the MTU is answered once', () => {
    const { answers, a } = answersTo(superFromTun(packet, MTU - 59))
    expect(answers.map((one) => one.packet[40])).toEqual([icmpv6.TYPE_PACKET_TOO_BIG])
    expect(a.counters.dropped('outbound', 'too-big').packets).toBe(1)
  })

  it('whose pieces fill the MTU exactly passes', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(superFromTun(packet, MTU - 60))
    expect(tap.takePackets().map((one) => one.length)).toEqual([MTU, MTU, 4000 - 2 * (MTU - 60) + 60])
  })
})

describe('an IPv6 packet that no lease covers', () => {
  const firstFragment: Extension = [FRAGMENT, Uint8Array.from([0, 1, 0, 0, 0, 7])]
  it.each([
    ['UDP', udpPacket(NOWHERE)],
    ['TCP', tcpPacket(NOWHERE)],
    ['an echo request', icmpEcho(NOWHERE)],
    ['another protocol', ipv6Packet(47, countingBytes(30), NOWHERE)],
    ['a bare header', ipv6Packet(59, new Uint8Array(0), NOWHERE)],
    ['a first fragment', udpPacket({ ...NOWHERE, extensions: [firstFragment] })],
    ['one with extension headers', udpPacket({ ...NOWHERE, extensions: [[DESTINATION_OPTIONS, countingBytes(22)]] })],
    ['a large one', udpPacket({ ...NOWHERE, payload: countingBytes(1400) })],
  ])('is answered with type 1 code 0: %s', (_, given) => {
    const { answers, a } = answersTo(fromTun(given))
    expect(answers).toHaveLength(1)
    const { packet } = answers[0]!
    expect([...packet.slice(40, 42)]).toEqual([1, 0])
    expect([...packet.slice(44, 48)]).toEqual([0, 0, 0, 0])
    expect(packet.slice(48)).toEqual(given.slice(0, 1232))
    expect(checksumError(packet)).toBe(0)
    expect(a.counters.dropped('outbound', 'no-route').packets).toBe(1)
  })
})

describe('no ICMPv6 error is sent', () => {
  const messageOf = (type: number) => {
    const transport = new Uint8Array(8)
    icmpv6.write(viewOf(transport), 0, type, 0, 0)
    return ipv6Packet(ipv6.PROTOCOL_ICMPV6, transport, NOWHERE)
  }
  const later: Extension = [FRAGMENT, Uint8Array.from([0, 8, 0, 0, 0, 7])]
  const behindOptions = ipv6Packet(ipv6.PROTOCOL_ICMPV6, Uint8Array.from([1, 0, 0, 0, 0, 0, 0, 0]), {
    ...NOWHERE,
    extensions: [[DESTINATION_OPTIONS, new Uint8Array(6)]],
  })
  it.each([
    ['about an unreachable', messageOf(1)],
    ['about a packet too big', messageOf(2)],
    ['about a time exceeded', messageOf(3)],
    ['about a parameter problem', messageOf(4)],
    ['about an error of a type to come', messageOf(127)],
    ['about an error behind an extension header', behindOptions],
    ['about ICMPv6 too short to tell', ipv6Packet(58, new Uint8Array(7), NOWHERE)],
    ['about a later fragment', udpPacket({ ...NOWHERE, extensions: [later] })],
    ['to ::', udpPacket({ ...NOWHERE, source: '::' })],
    ['to ::1', udpPacket({ ...NOWHERE, source: '::1' })],
    ['to a group', udpPacket({ ...NOWHERE, source: 'ff02::5' })],
    ['to the last group', udpPacket({ ...NOWHERE, source: 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff' })],
    [
      'about a packet that is too big from a group',
      udpPacket({ ...IPV6, payload: countingBytes(2000), source: 'ff0e::1' }),
    ],
  ])('%s', (_, packet) => {
    const { answers, a } = answersTo(fromTun(packet))
    expect(answers).toEqual([])
    expect([a.counters.get('icmp.suppressed'), a.counters.get('icmp.sent')]).toEqual([1, 0])
  })

  it('by a node without an IPv6 address', () => {
    const { answers, a } = answersTo(fromTun(tooBig), { settings: { overlayIpv6: null } })
    expect(answers).toEqual([])
    expect(a.counters.get('icmp.suppressed')).toBe(1)
  })
})

describe('informational ICMPv6 and errors of others', () => {
  it('cross unchanged, whatever their type', () => {
    const message = (type: number) => {
      const transport = new Uint8Array(56)
      icmpv6.write(viewOf(transport), 0, type, 0, 1400)
      return ipv6Packet(ipv6.PROTOCOL_ICMPV6, transport, IPV6)
    }
    const messages = [1, 2, 3, 4, 127, 128, 129, 200].map(message)
    const { a, b } = tappedPair()
    a.sendFromTun(...messages.map((packet) => fromTun(packet)))
    expect(b.receive().map(({ packet }) => packet)).toEqual(messages)
  })
})

describe('answers over ICMPv6 are limited', () => {
  it('to 50 at once and 100 a second, for each source', () => {
    let nowMs = 5000
    const { a } = tappedPair({ nowMs: () => nowMs })
    const flood = (count: number, source: string = IPV6.source): number => {
      a.sendFromTun(...Array.from({ length: count }, () => fromTun(udpPacket({ ...NOWHERE, source }))))
      return a.takeWritten().length
    }
    expect([flood(120), flood(120), flood(1, 'fd00:10:244:1::3')]).toEqual([50, 0, 1])
    nowMs += 100
    expect(flood(120)).toBe(10)
    expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })
})
