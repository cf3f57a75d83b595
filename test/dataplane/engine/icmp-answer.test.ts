// What a pod is told when its packet is not forwarded: exact bytes, and when it is better told nothing.
import { describe, expect, it } from 'vitest'
import * as icmpv4 from '../../../dataplane/wire/icmpv4.ts'
import { finish, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import { MTU, type NodeOptions } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  icmpEcho,
  ip,
  ipv4Packet,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { tappedPair } from '../../support/underlay-tap.ts'

const NOWHERE = '10.244.9.9'
const tooBig = udpPacket({ payload: countingBytes(MTU + 1 - 28), identification: 4711 })

/** What the pod reads back for one packet. */
function answersTo(packet: Uint8Array, options: NodeOptions = {}) {
  const pair = tappedPair(options)
  pair.a.sendFromTun(fromTun(packet))
  expect(pair.tap.messages).toEqual([])
  expect(pair.a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return { ...pair, answers: pair.a.takeWritten() }
}

describe('a DF packet one byte larger than the MTU', () => {
  const { answers, a } = answersTo(tooBig)
  const { packet, vnet } = answers[0]!
  const icmp = packet.slice(20)

  it('is answered once, as a plain packet', () => {
    expect(answers).toHaveLength(1)
    expect(Object.values(vnet).every((value) => value === 0)).toBe(true)
    expect(a.counters.get('icmp.sent')).toBe(1)
    expect(a.counters.dropped('outbound', 'too-big')).toEqual({ packets: 1, bytes: MTU + 1 })
  })

  it('comes from our overlay address, to the sender', () => {
    expect(ipv4.parse(packet, 0, packet.length)).toMatchObject({
      source: ip('10.244.1.0'),
      destination: ip('10.244.1.2'),
      protocol: ipv4.PROTOCOL_ICMP,
      totalLength: 20 + 8 + 28,
      ttl: 8,
    })
  })

  it('says type 3, code 4, the MTU in bytes 6 and 7 and zero in bytes 4 and 5', () => {
    expect([icmp[0], icmp[1]]).toEqual([3, 4])
    expect([...icmp.slice(4, 8)]).toEqual([0, 0, MTU >> 8, MTU & 0xff])
  })

  it('quotes the IP header and eight bytes behind it, untouched', () => {
    expect(icmp.slice(8)).toEqual(tooBig.slice(0, 28))
  })

  it('has right checksums', () => {
    expect(finish(sumWords(packet, 0, 20))).toBe(0)
    expect(finish(sumWords(icmp, 0, icmp.length))).toBe(0)
  })

  it('is understood by a reader of ICMP', () => {
    expect(icmpv4.describe(icmp, 0, icmp.length).filter((note) => note.problem !== undefined)).toEqual([])
  })
})

describe('a packet that no lease covers', () => {
  it.each([
    ['UDP', udpPacket({ destination: NOWHERE })],
    ['TCP', tcpPacket({ destination: NOWHERE })],
    ['an echo request', icmpEcho({ destination: NOWHERE })],
    ['another protocol', ipv4Packet(47, countingBytes(30), { destination: NOWHERE })],
    ['a first fragment', udpPacket({ destination: NOWHERE, fragmentWord: ipv4.MORE_FRAGMENTS })],
    ['one with IP options', udpPacket({ destination: NOWHERE, options: countingBytes(40) })],
  ])('is answered with type 3 code 0: %s', (_, given) => {
    const { answers, a } = answersTo(given)
    expect(answers).toHaveLength(1)
    const icmp = answers[0]!.packet.slice(20)
    expect([...icmp.slice(0, 2)]).toEqual([3, 0])
    expect([...icmp.slice(4, 8)]).toEqual([0, 0, 0, 0])
    const headerBytes = ipv4.getHeaderBytes(viewOf(given), 0)
    expect(icmp.slice(8)).toEqual(given.slice(0, headerBytes + 8))
    expect(finish(sumWords(icmp, 0, icmp.length))).toBe(0)
    expect(a.counters.dropped('outbound', 'no-route').packets).toBe(1)
  })

  it('is quoted only as far as it goes', () => {
    const bare = ipv4Packet(47, new Uint8Array(3), { destination: NOWHERE })
    expect(answersTo(bare).answers[0]!.packet.slice(28)).toEqual(bare)
  })
})

describe('no error is sent', () => {
  const icmpOf = (type: number) => {
    const transport = new Uint8Array(8)
    icmpv4.write(viewOf(transport), 0, type, 0, 0)
    return ipv4Packet(ipv4.PROTOCOL_ICMP, transport, { destination: NOWHERE })
  }
  it.each([
    ['about an ICMP unreachable', icmpOf(3)],
    ['about an ICMP source quench', icmpOf(4)],
    ['about an ICMP redirect', icmpOf(5)],
    ['about an ICMP time exceeded', icmpOf(11)],
    ['about an ICMP parameter problem', icmpOf(12)],
    ['about ICMP too short to tell', ipv4Packet(1, new Uint8Array(7), { destination: NOWHERE })],
    ['about a later fragment', udpPacket({ destination: NOWHERE, fragmentWord: 1 })],
    ['about the last fragment', udpPacket({ destination: NOWHERE, fragmentWord: 0x1fff })],
    ['to 0.0.0.0', udpPacket({ destination: NOWHERE, source: '0.0.0.0' })],
    ['to a group', udpPacket({ destination: NOWHERE, source: '224.0.0.5' })],
    ['to everybody', udpPacket({ destination: NOWHERE, source: '255.255.255.255' })],
    ['to ourselves', udpPacket({ destination: NOWHERE, source: '127.0.0.1' })],
    ['about a DF packet that is too big from 0.0.0.0', udpPacket({ payload: countingBytes(2000), source: '0.0.0.0' })],
  ])('%s', (_, packet) => {
    const { answers, a } = answersTo(packet)
    expect(answers).toEqual([])
    expect(a.counters.get('icmp.suppressed')).toBe(1)
    expect(a.counters.get('icmp.sent')).toBe(0)
  })
})

describe('answers are limited', () => {
  it('to 50 at once and 100 a second, for each source', () => {
    let nowMs = 5000
    const { a } = tappedPair({ nowMs: () => nowMs })
    const flood = (count: number, source = '10.244.1.2'): number => {
      a.sendFromTun(...Array.from({ length: count }, () => fromTun(udpPacket({ source, destination: NOWHERE }))))
      return a.takeWritten().length
    }
    expect(flood(300)).toBe(50)
    expect(a.counters.get('icmp.suppressed')).toBe(250)
    expect(flood(10)).toBe(0)
    expect(flood(1, '10.244.1.3')).toBe(1)
    nowMs += 100
    expect(flood(300)).toBe(10)
    nowMs += 3_600_000
    expect(flood(300)).toBe(50)
    expect(a.counters.dropped('outbound', 'no-route').packets).toBe(911)
    expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })
})

describe('an answer that the TUN does not take', () => {
  it('is counted as failed and nothing else suffers', () => {
    const { a, tap } = tappedPair()
    a.writeErrno = 5
    a.sendFromTun(fromTun(udpPacket({ destination: NOWHERE })), fromTun(icmpEcho()))
    expect(a.counters.get('icmp.failed')).toBe(1)
    expect(a.counters.get('icmp.sent')).toBe(0)
    expect(tap.takePackets()).toEqual([icmpEcho()])
  })
})
