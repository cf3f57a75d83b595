// Inner checksums on arrival, and the two things that only a kernel VTEP next door sends: checksums left open, and
// super-packets in one datagram.
import { describe, expect, it } from 'vitest'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { receiveDatagrams, receivePackets } from '../../support/arrival.ts'
import { MTU } from '../../support/engine-pair.ts'
import { countingBytes, icmpEcho, ipv4Packet, tcpPacket, udpPacket } from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

const payload = countingBytes(100)
const plain = { flags: 0, gsoType: 0, headerLength: 0, gsoSize: 0, checksumStart: 0, checksumOffset: 0 }

describe('a bad transport checksum', () => {
  it.each([
    ['TCP', tcpPacket({ payload, checksum: 'bad' })],
    ['UDP', udpPacket({ payload, checksum: 'bad' })],
  ])('passes as it is, alone, and is counted: %s', (_, packet) => {
    const { written, b } = receivePackets([packet])
    expect(written).toEqual([{ vnet: plain, packet }])
    expect(b.counters.get('inbound.checksum.bad')).toBe(1)
  })

  it('is not healed by joining it to good ones', () => {
    const segment = (n: number, checksum: 'good' | 'bad') =>
      tcpPacket({ payload, sequence: n * 100, identification: n, checksum })
    const given = [segment(0, 'good'), segment(1, 'good'), segment(2, 'bad'), segment(3, 'good'), segment(4, 'good')]
    const { written } = receivePackets(given)
    expect(written).toHaveLength(3)
    expect(written[1]).toEqual({ vnet: plain, packet: given[2] })
    expect(written.flatMap(resplit)).toEqual(given)
  })
})

describe('no UDP checksum', () => {
  it('passes as it is, is never joined and never called bad', () => {
    const given = [0, 1].map((n) => udpPacket({ payload, identification: n, checksum: 'unused' }))
    const { written, b } = receivePackets(given)
    expect(written).toEqual(given.map((packet) => ({ vnet: plain, packet })))
    expect(b.counters.get('inbound.checksum.bad')).toBe(0)
  })
})

describe('a checksum that a kernel next door left open', () => {
  it.each([
    ['TCP', tcpPacket({ payload, checksum: 'partial' }), tcp.CHECKSUM_OFFSET],
    ['TCP without payload', tcpPacket({ checksum: 'partial' }), tcp.CHECKSUM_OFFSET],
    ['TCP with IP options', tcpPacket({ payload, options: countingBytes(8), checksum: 'partial' }), 16],
    ['UDP', udpPacket({ payload, checksum: 'partial' }), 6],
  ])('is handed on as open: %s', (_, packet, checksumOffset) => {
    const { written, b } = receivePackets([packet])
    expect(written).toHaveLength(1)
    const ipBytes = (packet[0]! & 15) * 4
    expect(written[0]!.packet).toEqual(packet)
    expect(written[0]!.vnet).toMatchObject({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_NONE,
      gsoSize: 0,
      checksumStart: ipBytes,
      checksumOffset,
    })
    expect(b.counters.get('inbound.checksum.partial')).toBe(1)
    expect(b.counters.get('inbound.checksum.bad')).toBe(0)
  })

  it('joins with others, open or complete', () => {
    const segment = (n: number, checksum: 'good' | 'partial') =>
      tcpPacket({ payload, sequence: n * 100, identification: n, checksum })
    const given = [segment(0, 'partial'), segment(1, 'good'), segment(2, 'partial')]
    const { written } = receivePackets(given)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(given.map(withChecksums))
  })

  it('of UDP joins too', () => {
    const given = [0, 1].map((n) => udpPacket({ payload, identification: n, checksum: 'partial' }))
    const { written } = receivePackets(given)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(given.map(withChecksums))
  })

  it('is not looked for in fragments', () => {
    const packet = udpPacket({ payload, checksum: 'partial', fragmentWord: ipv4.MORE_FRAGMENTS })
    expect(receivePackets([packet]).written).toEqual([{ vnet: plain, packet }])
  })
})

describe('a TCP super-packet in one datagram', () => {
  const options = { payload: countingBytes(20_000), tcpOptions: countingBytes(12), identification: 7 }
  const packet = tcpPacket({ ...options, flags: tcp.FLAG_ACK | tcp.FLAG_PSH, checksum: 'partial' })

  it('is handed on to be cut at what fits the MTU', () => {
    const { written, b } = receivePackets([packet])
    expect(written).toHaveLength(1)
    expect(written[0]!.packet).toEqual(packet)
    expect(written[0]!.vnet).toEqual({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_TCPV4,
      headerLength: 52,
      gsoSize: MTU - 52,
      checksumStart: 20,
      checksumOffset: tcp.CHECKSUM_OFFSET,
    })
    for (const piece of written.flatMap(resplit)) expect(piece.length).toBeLessThanOrEqual(MTU)
    expect(b.counters.get('inbound.packets.passed')).toBe(1)
  })

  it('keeps its place among the other segments of its flow', () => {
    const before = tcpPacket({ payload: countingBytes(50), sequence: 1, identification: 1 })
    const late = tcpPacket({ ...options, sequence: 51, identification: 2, checksum: 'partial' })
    const { written } = receivePackets([before, late])
    expect(written.map((one) => one.packet)).toEqual([before, late])
  })

  it('may be as large as a datagram allows', () => {
    const largest = tcpPacket({ payload: countingBytes(65507 - 22 - 40), checksum: 'partial' })
    const { written } = receivePackets([largest])
    expect(written.map((one) => one.packet)).toEqual([largest])
  })
})

describe('a UDP super-packet in one datagram', () => {
  const packet = udpPacket({ payload: countingBytes(6000), checksum: 'partial' })

  it('with the size of its segments is not cut there, but handed on as a super-packet of that size', () => {
    const { written, b } = receiveDatagrams([vxlanFrame(packet)], { segmentSize: 1200 })
    expect(written).toHaveLength(1)
    expect(written[0]!.packet).toEqual(packet)
    expect(written[0]!.vnet).toMatchObject({ gsoType: virtioNet.GSO_UDP_L4, gsoSize: 1200, checksumOffset: 6 })
    expect(written.flatMap(resplit)).toHaveLength(5)
    expect(b.counters.get('inbound.packets.read')).toBe(1)
  })

  it('that would fit the MTU is several datagrams all the same', () => {
    const small = udpPacket({ payload: countingBytes(250), checksum: 'partial' })
    const { written } = receiveDatagrams([vxlanFrame(small)], { segmentSize: 100 })
    expect(written).toHaveLength(1)
    expect(written[0]!.vnet).toMatchObject({ gsoType: virtioNet.GSO_UDP_L4, gsoSize: 100 })
    expect(written.flatMap(resplit).map((piece) => piece.length - 28)).toEqual([100, 100, 50])
  })

  it('without a size is one large datagram, and stays one', () => {
    const { written } = receivePackets([packet])
    expect(written).toHaveLength(1)
    expect(written[0]!.packet).toEqual(packet)
    expect(written[0]!.vnet).toMatchObject({ flags: virtioNet.FLAG_NEEDS_CSUM, gsoType: 0, gsoSize: 0 })
  })
})

describe('packets larger than the MTU with a complete checksum', () => {
  it('pass as they are', () => {
    const packet = udpPacket({ payload: countingBytes(9000) })
    expect(receivePackets([packet]).written).toEqual([{ vnet: plain, packet }])
  })
})

describe('headers that make no sense behind a good IP header', () => {
  const bend = (packet: Uint8Array, at: number, value: number): Uint8Array => {
    packet[at] = value
    return packet
  }
  it.each([
    ['a TCP header longer than the packet', bend(tcpPacket({ payload }), 32, 0xf0).slice()],
    ['a TCP header shorter than it may be', bend(tcpPacket({ payload }), 32, 0x40)],
    ['a UDP length that is not that of the packet', bend(udpPacket({ payload }), 25, 9)],
    ['a protocol without ports', icmpEcho({ protocol: 47 })],
  ])('pass alone for the pod to judge: %s', (_, packet) => {
    const neighbours = [udpPacket({ payload }), packet, udpPacket({ payload })]
    const { written } = receivePackets(neighbours)
    expect(written.map((one) => one.packet)).toContainEqual(packet)
    expect(written.flatMap(resplit)).toHaveLength(3)
  })

  it('and transport parts too short for a header as well', () => {
    for (const protocol of [ipv4.PROTOCOL_TCP, ipv4.PROTOCOL_UDP]) {
      for (let bytes = 0; bytes < 8; bytes++) {
        const short = ipv4Packet(protocol, countingBytes(bytes, 1))
        expect(receivePackets([short]).written).toEqual([{ vnet: plain, packet: short }])
      }
    }
  })
})
