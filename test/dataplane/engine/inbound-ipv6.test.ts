// IPv6 frames that arrive: faults by name, who may send, congestion marks, checksums, and what a kernel VTEP next door
// sends.
import { describe, expect, it } from 'vitest'
import type { DropReason } from '../../../dataplane/drop-reason.ts'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { DESTINATION_OPTIONS, FRAGMENT } from '../../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { passes, receiveDatagrams, receivePackets, receiveTrain } from '../../support/arrival.ts'
import { enginePair, entriesFor, MTU, NODE_A } from '../../support/engine-pair.ts'
import {
  countingBytes,
  type Extension,
  IPV6,
  type IpOptions,
  icmpEcho,
  ip,
  ipv6Packet,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'
import { ENCAP_BYTES, vxlanFrame } from '../../support/vxlan-frame.ts'

const ping = icmpEcho(IPV6)
const payload = countingBytes(100)
const plain = { flags: 0, gsoType: 0, headerLength: 0, gsoSize: 0, checksumStart: 0, checksumOffset: 0 }
const padding: Extension = [DESTINATION_OPTIONS, Uint8Array.from([1, 4, 0, 0, 0, 0])]

/** Asserts that a datagram is not passed on, and counted under exactly that reason. */
function expectDrop(datagram: Uint8Array, reason: DropReason, from = NODE_A.underlay): void {
  const { written, b } = receiveDatagrams([datagram], { from })
  expect(written).toEqual([])
  expect(b.counters.dropped('inbound', reason)).toEqual({ packets: 1, bytes: datagram.length })
}

describe('an inner IPv6 packet that is not whole', () => {
  it('is refused at every length below its own', () => {
    for (const inner of [ping, udpPacket({ ...IPV6, extensions: [padding, padding] })]) {
      const frame = vxlanFrame(inner)
      for (let length = ENCAP_BYTES; length < frame.length; length++) expectDrop(frame.slice(0, length), 'truncated')
    }
  })

  it('is refused when an extension header leads beyond its end', () => {
    const bent = udpPacket({ ...IPV6, extensions: [padding] })
    bent[41] = 2
    expectDrop(vxlanFrame(bent), 'truncated')
  })

  it('is refused when it is not what the EtherType says', () => {
    expectDrop(vxlanFrame(ping, { etherType: 0x0800 }), 'bad-version')
    expectDrop(vxlanFrame(icmpEcho(), { etherType: 0x86dd }), 'bad-version')
  })

  it('is refused with more extension headers than any host sends', () => {
    expectDrop(vxlanFrame(udpPacket({ ...IPV6, extensions: Array(9).fill(padding) })), 'too-many-extensions')
  })
})

describe('padding behind an inner IPv6 packet', () => {
  it('is cut off, however long', () => {
    for (const bytes of [1, 18, 1000]) {
      const { written } = receiveDatagrams([vxlanFrame(ping, { padding: bytes })])
      expect(written.map(({ packet }) => packet)).toEqual([ping])
    }
  })
})

describe('who may send IPv6', () => {
  const STRANGER = '192.0.2.99'
  const from = (options: IpOptions) => vxlanFrame(icmpEcho({ ...IPV6, ...options }))
  const spoofed = from({ source: 'fd00:10:244:3::4' })

  it('strict: a lease holder, for its own subnet', () => {
    expect(passes(vxlanFrame(ping), 'strict')).toBe(true)
    expect(passes(from({ source: 'fd00:10:244:1::' }), 'strict')).toBe(true)
    expect(passes(from({ source: 'fd00:10:244:1:ffff:ffff:ffff:ffff' }), 'strict')).toBe(true)
    expect(passes(vxlanFrame(ping), 'strict', STRANGER)).toBe(false)
    expect(passes(spoofed, 'strict')).toBe(false)
  })

  it('peer: a lease holder, for any source', () => {
    expect(passes(spoofed, 'peer')).toBe(true)
    expect(passes(vxlanFrame(ping), 'peer', STRANGER)).toBe(false)
  })

  it('off: anybody', () => {
    expect(passes(spoofed, 'off', STRANGER)).toBe(true)
  })

  it('is told by name', () => {
    expectDrop(vxlanFrame(ping), 'unknown-peer', STRANGER)
    for (const source of [
      'fd00:10:244:3::4',
      'fd00:10:244::ffff',
      'fd00:10:244:2::3',
      'fe80::1',
      '::',
      '::1',
      'ff02::1',
    ]) {
      expectDrop(from({ source }), 'inner-source-spoofed')
    }
  })

  it('and for whom: only for our own subnet', () => {
    for (const destination of ['fd00:10:244:1::2', 'fd00:10:244:3::', 'fd00:10:244:1:ffff::', 'ff02::1', 'fe80::1']) {
      expectDrop(from({ destination }), 'inner-destination-foreign')
    }
    expect(passes(from({ destination: 'fd00:10:244:2:ffff:ffff:ffff:ffff' }), 'strict')).toBe(true)
    expect(passes(from({ destination: 'fd00:10:244:3::4' }), 'peer')).toBe(false)
  })

  it('nobody where the node has no IPv6 subnet of its own', () => {
    const { written, b } = receiveDatagrams([vxlanFrame(ping)], {}, { settings: { ipv6Subnet: null } })
    expect(written).toEqual([])
    expect(b.counters.dropped('inbound', 'inner-destination-foreign').packets).toBe(1)
  })

  it('a sender that was right once is not right for sources that differ in any word', () => {
    for (const source of ['fd00:10:244:3::2', 'fd01:10:244:1::2', 'fd00:10:245:1::2']) {
      const { written, b } = receiveDatagrams([vxlanFrame(ping), from({ source }), vxlanFrame(ping)])
      expect(written).toHaveLength(2)
      expect(b.counters.dropped('inbound', 'inner-source-spoofed').packets, source).toBe(1)
    }
  })

  it('a lease that moved is looked at anew', () => {
    const { b } = enginePair()
    b.socket.deliver(vxlanFrame(ping), ip(NODE_A.underlay))
    expect(b.receive()).toHaveLength(1)
    b.learn(...entriesFor({ ...NODE_A, underlay: STRANGER }))
    b.socket.deliver(vxlanFrame(ping), ip(NODE_A.underlay))
    b.socket.deliver(vxlanFrame(ping), ip(STRANGER))
    expect(b.receive()).toHaveLength(1)
    expect(b.counters.dropped('inbound', 'unknown-peer').packets).toBe(1)
  })
})

describe('congestion marks over IPv6', () => {
  const CE = 3
  const EXPECTED: Readonly<Record<number, readonly (number | null)[]>> = {
    0: [0, 0, 0, null],
    1: [1, 1, 1, CE],
    2: [2, 1, 2, CE],
    3: [CE, CE, CE, CE],
  }
  const all = [0, 1, 2, 3].flatMap((inner) => [0, 1, 2, 3].map((outer) => [inner, outer] as const))

  it.each(all)('inner %i and outer %i combine as in the kernel', (inner, outer) => {
    const packet = (ecn: number) => udpPacket({ ...IPV6, tos: (0x2e << 2) | ecn, payload })
    const { written, b } = receiveDatagrams([vxlanFrame(packet(inner))], { tos: 0x40 | outer })
    const expected = EXPECTED[inner]![outer]!
    expect(written.map((one) => one.packet)).toEqual(expected === null ? [] : [packet(expected)])
    expect(b.counters.dropped('inbound', 'ecn-illegal').packets).toBe(expected === null ? 1 : 0)
  })

  it('of a train go to every packet of it, which is then joined', () => {
    const packets = [0, 1, 2].map((n) => udpPacket({ ...IPV6, tos: 2, payload: countingBytes(50, n) }))
    const datagram = Uint8Array.from(Buffer.concat(packets.map((packet) => vxlanFrame(packet))))
    const { written } = receiveDatagrams([datagram], { tos: CE, segmentSize: ENCAP_BYTES + 98 })
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit).map((packet) => ipv6.getTrafficClass(viewOf(packet), 0))).toEqual([CE, CE, CE])
  })
})

describe('a transport checksum over IPv6', () => {
  it.each([
    ['TCP', tcpPacket({ ...IPV6, payload, checksum: 'bad' })],
    ['UDP', udpPacket({ ...IPV6, payload, checksum: 'bad' })],
    ['UDP with none, which IPv6 does not allow', udpPacket({ ...IPV6, payload, checksum: 'unused' })],
    ['TCP behind an extension header', tcpPacket({ ...IPV6, payload, extensions: [padding], checksum: 'bad' })],
  ])('that is bad passes as it is, alone, and is counted: %s', (_, packet) => {
    const { written, b } = receivePackets([packet])
    expect(written).toEqual([{ vnet: plain, packet }])
    expect(b.counters.get('inbound.checksum.bad')).toBe(1)
  })

  it.each([
    ['TCP', tcpPacket({ ...IPV6, payload, checksum: 'partial' }), 40, tcp.CHECKSUM_OFFSET],
    ['TCP without payload', tcpPacket({ ...IPV6, checksum: 'partial' }), 40, tcp.CHECKSUM_OFFSET],
    [
      'TCP behind an extension header',
      tcpPacket({ ...IPV6, payload, extensions: [padding], checksum: 'partial' }),
      48,
      16,
    ],
    ['UDP', udpPacket({ ...IPV6, payload, checksum: 'partial' }), 40, 6],
  ])('that a kernel next door left open is handed on as open: %s', (_, packet, checksumStart, checksumOffset) => {
    const { written, b } = receivePackets([packet])
    expect(written.map((one) => one.packet)).toEqual([packet])
    const { flags, gsoType, gsoSize } = written[0]!.vnet
    expect([flags, gsoType, gsoSize]).toEqual([virtioNet.FLAG_NEEDS_CSUM, virtioNet.GSO_NONE, 0])
    expect(written[0]!.vnet).toMatchObject({ checksumStart, checksumOffset })
    expect(b.counters.get('inbound.checksum.partial')).toBe(1)
    expect(b.counters.get('inbound.checksum.bad')).toBe(0)
  })

  it('left open joins with others, open or complete', () => {
    const segment = (n: number, checksum: 'good' | 'partial') =>
      tcpPacket({ ...IPV6, payload, sequence: n * 100, checksum })
    const given = [segment(0, 'partial'), segment(1, 'good'), segment(2, 'partial')]
    const { written } = receivePackets(given)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(given.map(withChecksums))
  })

  it('is not looked for in fragments', () => {
    const extensions: Extension[] = [[FRAGMENT, Uint8Array.from([0, 1, 0, 0, 0, 7])]]
    const packet = udpPacket({ ...IPV6, payload, checksum: 'bad', extensions })
    const { written, b } = receivePackets([packet])
    expect(written).toEqual([{ vnet: plain, packet }])
    expect(b.counters.get('inbound.checksum.bad')).toBe(0)
  })
})

describe('an IPv6 super-packet in one datagram, from a kernel next door', () => {
  const udpTrain = udpPacket({ ...IPV6, payload: countingBytes(6000), checksum: 'partial' })

  it('of TCP is handed on to be cut at what fits the MTU', () => {
    const packet = tcpPacket({
      ...IPV6,
      payload: countingBytes(20_000),
      tcpOptions: countingBytes(12),
      checksum: 'partial',
    })
    const { written, b } = receivePackets([packet])
    expect(written.map((one) => one.packet)).toEqual([packet])
    expect(written[0]!.vnet).toEqual({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_TCPV6,
      headerLength: 72,
      gsoSize: MTU - 72,
      checksumStart: 40,
      checksumOffset: tcp.CHECKSUM_OFFSET,
    })
    expect(b.counters.get('inbound.packets.passed')).toBe(1)
  })

  it('of TCP may be as large as a datagram allows', () => {
    const largest = tcpPacket({ ...IPV6, payload: countingBytes(65507 - ENCAP_BYTES - 60), checksum: 'partial' })
    expect(receivePackets([largest]).written.map(({ packet }) => Buffer.compare(packet, largest))).toEqual([0])
  })

  it('of UDP with the size of its segments is not cut there, but handed on as a super-packet of that size', () => {
    const { written, b } = receiveDatagrams([vxlanFrame(udpTrain)], { segmentSize: 1200 })
    expect(written.map((one) => one.packet)).toEqual([udpTrain])
    expect(written[0]!.vnet).toMatchObject({ gsoType: virtioNet.GSO_UDP_L4, gsoSize: 1200, checksumStart: 40 })
    expect(written.flatMap(resplit)).toHaveLength(5)
    expect(b.counters.get('inbound.packets.read')).toBe(1)
  })

  it('of UDP without a size is one large datagram, and stays one', () => {
    const { written } = receivePackets([udpTrain])
    expect(written.map((one) => one.packet)).toEqual([udpTrain])
    expect(written[0]!.vnet).toMatchObject({ flags: virtioNet.FLAG_NEEDS_CSUM, gsoType: 0, gsoSize: 0 })
  })

  it('with a complete checksum passes as it is', () => {
    const packet = udpPacket({ ...IPV6, payload: countingBytes(9000) })
    expect(receivePackets([packet]).written).toEqual([{ vnet: plain, packet }])
  })
})

describe('a train of IPv6 frames', () => {
  it('is as many packets as it has frames', () => {
    const packets = Array.from({ length: 11 }, (_, n) =>
      udpPacket({ ...IPV6, payload: countingBytes(n < 10 ? 1400 : 200, n) }),
    )
    const { written, b } = receiveTrain(packets)
    expect(b.counters.get('inbound.packets.passed')).toBe(11)
    expect(written.flatMap(resplit)).toEqual(packets)
  })
})

describe('headers that make no sense behind a good IPv6 header', () => {
  const bend = (packet: Uint8Array, at: number, value: number): Uint8Array => {
    packet[at] = value
    return packet
  }
  it.each([
    ['a TCP header longer than the packet', bend(tcpPacket({ ...IPV6, payload }), 52, 0xf0).slice(0, 60)],
    ['a TCP header shorter than it may be', bend(tcpPacket({ ...IPV6, payload }), 52, 0x40)],
    ['a UDP length that is not that of the packet', bend(udpPacket({ ...IPV6, payload }), 45, 9)],
    ['no next header, with bytes behind', ipv6Packet(59, payload)],
    ['a protocol without ports', ipv6Packet(47, payload)],
    ['no transport header at all', ipv6Packet(6, new Uint8Array(0))],
  ])('pass alone for the pod to judge: %s', (_, bent) => {
    const packet = bent.slice()
    ipv6.setPayloadLength(viewOf(packet), 0, packet.length - 40)
    const { written } = receivePackets([udpPacket({ ...IPV6, payload }), packet, udpPacket({ ...IPV6, payload })])
    expect(written).toContainEqual({ vnet: plain, packet })
    expect(written.flatMap(resplit)).toHaveLength(3)
  })
})
