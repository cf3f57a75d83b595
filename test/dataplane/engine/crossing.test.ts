// Packets from one node's TUN to the other's: what goes in comes out, one by one and in bulk.
import { describe, expect, it } from 'vitest'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { enginePair, recordSteps } from '../../support/engine-pair.ts'
import { countingBytes, fromTun, icmpEcho, superFromTun, tcpPacket, udpPacket } from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'

describe('a packet from pod to pod', () => {
  it('arrives as it was sent', () => {
    const { a, b } = enginePair()
    const ping = icmpEcho()
    a.sendFromTun(fromTun(ping))
    const [written, ...more] = b.receive()
    expect(more).toEqual([])
    expect(written?.packet).toEqual(ping)
    expect(Object.values(written!.vnet).every((value) => value === 0)).toBe(true)
  })

  it('leaves the inner TTL alone on both sides', () => {
    const { a, b } = enginePair()
    const packet = udpPacket({ ttl: 63 })
    a.sendFromTun(fromTun(packet))
    expect(b.receive()[0]?.packet).toEqual(packet)
  })

  it('has its open checksum completed before it leaves', () => {
    const { a, b } = enginePair()
    const open = tcpPacket({ payload: countingBytes(101), checksum: 'partial' })
    const needs = { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 20, checksumOffset: tcp.CHECKSUM_OFFSET }
    a.sendFromTun(fromTun(open, needs))
    expect(b.receive()[0]?.packet).toEqual(withChecksums(open))
  })

  it('counts what it read as passed, on both nodes', () => {
    const { a, b } = enginePair()
    a.sendFromTun(fromTun(icmpEcho()), fromTun(udpPacket()))
    b.receive()
    expect(a.counters.get('outbound.packets.passed')).toBe(2)
    expect(b.counters.get('inbound.packets.passed')).toBe(2)
    for (const node of [a, b]) expect(node.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  it('can be followed step by step under one id on both nodes', () => {
    const { a, b } = enginePair()
    const [out, back] = [recordSteps(a), recordSteps(b)]
    a.sendFromTun(fromTun(icmpEcho()))
    b.receive()
    expect(out.map((step) => step.kind)).toEqual(['tun-read', 'lookup', 'fit', 'encap', 'send'])
    expect(back.map((step) => step.kind)).toEqual(['receive', 'decap', 'source-check', 'ecn', 'tun-write'])
    const ids = new Set([...out, ...back].flatMap((step) => ('id' in step ? [step.id] : [])))
    expect(ids.size).toBe(1)
  })
})

describe('a TCP super-packet', () => {
  const payload = countingBytes(40_000)
  const given = () => tcpPacket({ payload, checksum: 'partial', flags: tcp.FLAG_ACK | tcp.FLAG_PSH })

  it('is cut on the way, joined on arrival, and stands for the same packets', () => {
    const { a, b } = enginePair()
    a.sendFromTun(superFromTun(given(), 1398))
    const written = b.receive()
    expect(written).toHaveLength(1)
    expect(written[0]!.vnet.gsoType).toBe(virtioNet.GSO_TCPV4)
    expect(written[0]!.vnet.gsoSize).toBe(1398)
    const sent = { vnet: { ...written[0]!.vnet, gsoSize: 1398 }, packet: given() }
    expect(written.flatMap(resplit)).toEqual(resplit(sent))
  })

  it('is the same when the receiver gets datagram by datagram', () => {
    const { a, b } = enginePair({ receivesMerged: false })
    a.sendFromTun(superFromTun(given(), 1398))
    const pieces = b.receive().flatMap(resplit)
    expect(pieces).toHaveLength(Math.ceil(payload.length / 1398))
    expect(Buffer.concat(pieces.map((piece) => piece.subarray(40)))).toEqual(Buffer.from(payload))
  })

  it('counts as the packets it stands for', () => {
    const { a } = enginePair()
    a.sendFromTun(superFromTun(given(), 1398))
    const pieces = Math.ceil(payload.length / 1398)
    expect(a.counters.get('outbound.packets.read')).toBe(pieces)
    expect(a.counters.get('outbound.bytes.passed')).toBe(payload.length + pieces * 40)
  })

  it('with a tiny segment size leaves in as many sends as it takes', () => {
    const { a, b } = enginePair({ queueLength: 256 })
    const small = tcpPacket({ payload: countingBytes(3000), checksum: 'partial' })
    a.sendFromTun(superFromTun(small, 3))
    const pieces = b.receive().flatMap(resplit)
    expect(pieces).toHaveLength(1000)
    expect(Buffer.concat(pieces.map((piece) => piece.subarray(40)))).toEqual(Buffer.from(countingBytes(3000)))
  })
})

describe('a UDP super-packet', () => {
  it('is cut into datagrams with complete checksums and joined on arrival', () => {
    const { a, b } = enginePair()
    const packet = udpPacket({ payload: countingBytes(10_000), checksum: 'partial' })
    a.sendFromTun(superFromTun(packet, 1200))
    const written = b.receive()
    expect(written).toHaveLength(1)
    expect(written[0]!.vnet.gsoType).toBe(virtioNet.GSO_UDP_L4)
    const pieces = written.flatMap(resplit)
    expect(pieces.map((piece) => piece.length - 28)).toEqual([...Array(8).fill(1200), 400])
    for (const piece of pieces) expect(withChecksums(piece)).toEqual(piece)
  })
})

describe('small packets', () => {
  it('of one size to one peer leave in one send', () => {
    const { a, b } = enginePair()
    const packets = Array.from({ length: 40 }, (_, n) =>
      udpPacket({ payload: countingBytes(18, n), identification: n }),
    )
    a.sendFromTun(...packets.map((packet) => fromTun(packet)))
    expect(a.counters.get('outbound.messages.sent')).toBe(1)
    expect(b.receive().flatMap(resplit)).toEqual(packets)
  })

  it('of several flows keep their order within each flow', () => {
    const { a, b } = enginePair()
    const packets = Array.from({ length: 60 }, (_, n) =>
      udpPacket({ sourcePort: 4000 + (n % 3), payload: countingBytes(50, n), identification: Math.floor(n / 3) }),
    )
    a.sendFromTun(...packets.map((packet) => fromTun(packet)))
    const arrived = b.receive().flatMap(resplit)
    expect(arrived).toHaveLength(60)
    for (let flow = 0; flow < 3; flow++) {
      const ofFlow = (list: Uint8Array[]) => list.filter((packet) => packet[21] === ((4000 + flow) & 0xff))
      expect(ofFlow(arrived)).toEqual(ofFlow(packets))
    }
  })
})
