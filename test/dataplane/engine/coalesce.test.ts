// Merging of packets towards the TUN: what may be joined, what must never be, and how far.
import { describe, expect, it } from 'vitest'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { receivePackets, receiveTrain } from '../../support/arrival.ts'
import { isPlain, type Written } from '../../support/engine-pair.ts'
import { countingBytes, type TcpOptions, tcpPacket, type UdpOptions, udpPacket, viewOf } from '../../support/packets.ts'
import { resplit } from '../../support/resplit.ts'

const { FLAG_ACK, FLAG_PSH, FLAG_FIN, FLAG_SYN, FLAG_RST, FLAG_URG, FLAG_ECE, FLAG_CWR } = tcp

const SIZE = 100

/** Segment `n` of a flow: follows segment n − 1 in every respect, unless told otherwise. */
function segment(n: number, options: TcpOptions = {}): Uint8Array {
  const payload = options.payload ?? countingBytes(SIZE, n * SIZE)
  return tcpPacket({ sequence: 1000 + n * SIZE, identification: 50 + n, ...options, payload })
}

const datagram = (n: number, options: UdpOptions = {}): Uint8Array =>
  udpPacket({ payload: countingBytes(SIZE, n), identification: 50 + n, ...options })

const gsoTypes = (written: readonly Written[]) => written.map(({ vnet }) => vnet.gsoType)
const payloadsOf = (written: readonly Written[]) => written.map(({ packet }) => packet.length)

describe('consecutive segments of a flow', () => {
  const segments = [segment(0), segment(1), segment(2)]

  it('become one super-packet that stands for just these', () => {
    const { written } = receivePackets(segments)
    expect(written).toHaveLength(1)
    expect(written[0]!.vnet).toEqual({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_TCPV4,
      headerLength: 40,
      gsoSize: SIZE,
      checksumStart: 20,
      checksumOffset: tcp.CHECKSUM_OFFSET,
    })
    expect(written.flatMap(resplit)).toEqual(segments)
  })

  it('carry a whole IPv4 header of their own: total length and checksum', () => {
    const [joined] = receivePackets(segments).written
    const header = ipv4.parse(joined!.packet, 0, joined!.packet.length)
    expect(header).toMatchObject({ totalLength: 40 + 3 * SIZE, identification: 50 })
  })

  it('are counted one by one, and the write as one', () => {
    const { b } = receivePackets(segments)
    expect(b.counters.get('inbound.packets.passed')).toBe(3)
    expect(b.counters.get('inbound.calls.write')).toBe(1)
    expect(b.counters.get('inbound.super-packets')).toBe(1)
  })

  it('may cross the wrap of the sequence number', () => {
    const wrapping = [0, 1, 2].map((n) => segment(n, { sequence: (2 ** 32 - 150 + n * SIZE) >>> 0 }))
    const { written } = receivePackets(wrapping)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(wrapping)
  })

  it('may carry the same options, ECE and reserved bits', () => {
    const options = { tcpOptions: countingBytes(12), flags: FLAG_ACK | FLAG_ECE }
    const given = [0, 1, 2].map((n) => segment(n, options))
    const { written } = receivePackets(given)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(given)
  })

  it('end with a shorter one: what follows starts anew', () => {
    const given = [segment(0), segment(1, { payload: countingBytes(60) }), segment(2, { sequence: 1160 })]
    const { written } = receivePackets(given)
    expect(payloadsOf(written)).toEqual([40 + 160, 40 + SIZE])
    expect(written.flatMap(resplit)).toEqual(given)
  })

  it('do not take in a longer one', () => {
    const given = [segment(0), segment(1, { payload: countingBytes(SIZE + 1) })]
    const { written } = receivePackets(given)
    expect(gsoTypes(written)).toEqual([0, 0])
    expect(written.map(({ packet }) => packet)).toEqual(given)
  })

  it('with DF may have any identification, as it means nothing there', () => {
    const given = [segment(0), segment(1, { identification: 9 }), segment(2, { identification: 0 })]
    expect(receivePackets(given).written).toHaveLength(1)
  })

  it('without DF need identifications that follow each other, also over the wrap', () => {
    const clear = (n: number, identification: number) => segment(n, { fragmentWord: 0, identification })
    const following = [clear(0, 0xfffe), clear(1, 0xffff), clear(2, 0)]
    const { written } = receivePackets(following)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(following)
    expect(receivePackets([clear(0, 5), clear(1, 7)]).written).toHaveLength(2)
    expect(receivePackets([clear(0, 5), clear(1, 5)]).written).toHaveLength(2)
  })
})

describe('segments that differ are not joined', () => {
  const ipOptions = Uint8Array.from([1, 1, 1, 0])
  const timestamps = (value: number) => Uint8Array.from([1, 1, 8, 10, 0, 0, 0, value, 0, 0, 0, 1])

  it.each<[string, TcpOptions, TcpOptions?]>([
    ['source address', { source: '10.244.1.9' }],
    ['destination address', { destination: '10.244.2.9' }],
    ['source port', { sourcePort: 40001 }],
    ['destination port', { destinationPort: 81 }],
    ['TTL', { ttl: 62 }],
    ['DSCP', { tos: 4 }],
    ['ECN', { tos: 2 }],
    ['DF', { fragmentWord: 0 }],
    ['reserved IP flag', { fragmentWord: ipv4.DONT_FRAGMENT | 0x8000 }],
    ['IP options on the later', { options: ipOptions }],
    ['IP options on both', { options: ipOptions }, { options: ipOptions }],
    ['acknowledgment', { acknowledgment: 8 }],
    ['window', { window: 501 }],
    ['option bytes', { tcpOptions: timestamps(2) }, { tcpOptions: timestamps(1) }],
    ['option length', { tcpOptions: timestamps(1) }],
    ['urgent pointer', { urgentPointer: 5 }],
    ['ECE', { flags: FLAG_ACK | FLAG_ECE }],
    ['sequence, a gap', { sequence: 1001 + SIZE }],
    ['sequence, an overlap', { sequence: 999 + SIZE }],
    ['sequence, a repetition', { sequence: 1000 }],
    ['missing ACK', { flags: 0 }],
    ['missing ACK on both', { flags: 0 }, { flags: 0 }],
    ['AE bit', { accurateEcn: 1 }],
    ['AE bit on both', { accurateEcn: 1 }, { accurateEcn: 1 }],
    ...[FLAG_SYN, FLAG_RST, FLAG_FIN, FLAG_URG, FLAG_CWR].flatMap((flag): [string, TcpOptions, TcpOptions?][] => [
      [`flag ${flag} on the later`, { flags: FLAG_ACK | flag }],
      [`flag ${flag} on the first`, {}, { flags: FLAG_ACK | flag }],
      [`flag ${flag} on both`, { flags: FLAG_ACK | flag }, { flags: FLAG_ACK | flag }],
    ]),
  ])('%s', (_, second, first = {}) => {
    const given = [segment(0, first), segment(1, second)]
    const { written } = receivePackets(given)
    expect(written.map(({ packet }) => packet)).toEqual(given)
    expect(written.every(isPlain)).toBe(true)
  })

  it('reserved TCP bits', () => {
    const odd = segment(1)
    odd[32]! ^= 0x04
    // The checksum follows by hand: the bit adds 0x0400 to the sum.
    const sum = tcp.getChecksum(viewOf(odd), 20) - 0x0400
    tcp.setChecksum(viewOf(odd), 20, sum < 0 ? sum - 1 + 0x10000 : sum)
    const { written, b } = receivePackets([segment(0), odd])
    expect(b.counters.get('inbound.checksum.bad')).toBe(0)
    expect(written.map(({ packet }) => packet)).toEqual([segment(0), odd])
  })

  it('more-fragments flag or a fragment offset', () => {
    for (const fragmentWord of [ipv4.MORE_FRAGMENTS, 1, ipv4.MORE_FRAGMENTS | 185]) {
      const given = [segment(0, { fragmentWord }), segment(1, { fragmentWord })]
      const { written } = receivePackets(given)
      expect(written.map(({ packet }) => packet)).toEqual(given)
      expect(written.every(isPlain)).toBe(true)
    }
  })

  it('a TCP and a UDP flow with the same ports', () => {
    const ports = { sourcePort: 7, destinationPort: 7 }
    const given = [segment(0, ports), udpPacket({ ...ports, payload: countingBytes(SIZE + 12) }), segment(1, ports)]
    const { written } = receivePackets(given)
    expect(gsoTypes(written).sort()).toEqual([0, virtioNet.GSO_TCPV4])
    expect(written.flatMap(resplit)).toHaveLength(3)
  })

  it('pure acknowledgments, which pass in order', () => {
    const bare = tcpPacket({ sequence: 1100, acknowledgment: 9 })
    const given = [segment(0), bare, segment(1)]
    const { written } = receivePackets(given)
    expect(written.map(({ packet }) => packet)).toEqual(given)
  })
})

describe('PSH', () => {
  const pushed = (n: number) => segment(n, { flags: FLAG_ACK | FLAG_PSH })

  it('ends a run, and is seen on its last packet only', () => {
    const given = [segment(0), segment(1), pushed(2), segment(3)]
    const { written } = receivePackets(given)
    expect(payloadsOf(written)).toEqual([40 + 3 * SIZE, 40 + SIZE])
    expect(tcp.getFlags(viewOf(written[0]!.packet), 20)).toBe(FLAG_ACK | FLAG_PSH)
    expect(written.flatMap(resplit)).toEqual(given)
  })

  it('never starts a run', () => {
    const given = [pushed(0), segment(1)]
    const { written } = receivePackets(given)
    expect(written.every(isPlain)).toBe(true)
    expect(written.map(({ packet }) => packet)).toEqual(given)
  })

  it('on every packet joins pairs of nothing', () => {
    const given = [pushed(0), pushed(1), pushed(2)]
    expect(receivePackets(given).written.map(({ packet }) => packet)).toEqual(given)
  })
})

describe('bounds', () => {
  it('at most 64 packets share a write', () => {
    const given = Array.from({ length: 130 }, (_, n) => segment(n))
    const { written } = receiveTrain(given)
    expect(payloadsOf(written)).toEqual([40 + 64 * SIZE, 40 + 64 * SIZE, 40 + 2 * SIZE])
    expect(written.flatMap(resplit)).toEqual(given)
  })

  it('a joined packet is at most 65,535 bytes long', () => {
    const many = Array.from({ length: 14 }, (_, n) =>
      segment(n, { sequence: n * 5000, payload: countingBytes(5000, n) }),
    )
    const large = receivePackets(many)
    expect(payloadsOf(large.written)).toEqual([40 + 13 * 5000, 40 + 5000])
    expect(large.written.flatMap(resplit)).toEqual(many)
  })

  it('16 flows may be open at once; a seventeenth closes the oldest, and no packet is lost', () => {
    const flow = (n: number, part: number) => segment(part, { sourcePort: 100 + n })
    const given = Array.from({ length: 17 }, (_, n) => flow(n, 0)).concat(flow(0, 1), flow(16, 1))
    const { written } = receiveTrain(given)
    expect(written).toHaveLength(18)
    expect(written[0]!.packet).toEqual(flow(0, 0))
    expect(written.filter(({ vnet }) => vnet.gsoType === virtioNet.GSO_TCPV4)).toHaveLength(1)
  })

  it('nothing waits for the next batch', () => {
    const given = Array.from({ length: 20 }, (_, n) => segment(n))
    expect(payloadsOf(receivePackets(given).written)).toEqual([40 + 16 * SIZE, 40 + 4 * SIZE])
  })
})

describe('order', () => {
  it('of a flow is kept when one of its packets cannot be joined', () => {
    const given = [segment(0), segment(1), segment(2, { flags: FLAG_ACK | FLAG_FIN }), segment(3)]
    expect(receivePackets(given).written.flatMap(resplit)).toEqual(given)
  })

  it('of a flow is kept when one of its packets is a fragment', () => {
    const given = [segment(0), segment(1), segment(2, { fragmentWord: ipv4.MORE_FRAGMENTS }), segment(3)]
    const { written } = receivePackets(given)
    expect(written.flatMap(resplit)).toEqual(given)
  })

  it('of a flow is kept when another flow is interleaved, and both are joined', () => {
    const other = (n: number) => segment(n, { sourcePort: 41000 })
    const { written } = receivePackets([segment(0), other(0), segment(1), other(1), segment(2), other(2)])
    expect(written).toHaveLength(2)
    expect(written.flatMap(resplit)).toEqual([segment(0), segment(1), segment(2), other(0), other(1), other(2)])
  })
})

describe('datagrams of a UDP flow', () => {
  it('of equal size become one super-packet, a shorter one ends it', () => {
    const given = [datagram(0), datagram(1), datagram(2, { payload: countingBytes(10) }), datagram(3)]
    const { written } = receivePackets(given)
    expect(written[0]!.vnet).toEqual({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_UDP_L4,
      headerLength: 28,
      gsoSize: SIZE,
      checksumStart: 20,
      checksumOffset: 6,
    })
    expect(payloadsOf(written)).toEqual([28 + 210, 28 + SIZE])
    expect(written.flatMap(resplit)).toEqual(given)
  })

  it('are at most 64', () => {
    const given = Array.from({ length: 65 }, (_, n) => datagram(n))
    expect(payloadsOf(receiveTrain(given).written)).toEqual([28 + 64 * SIZE, 28 + SIZE])
  })

  it('are left alone when merging of UDP is switched off', () => {
    const given = [datagram(0), datagram(1)]
    const { written } = receivePackets(given, { settings: { mergeUdp: false } })
    expect(written.every(isPlain)).toBe(true)
    expect(written.map(({ packet }) => packet)).toEqual(given)
  })

  it.each<[string, UdpOptions]>([
    ['source address', { source: '10.244.1.9' }],
    ['destination address', { destination: '10.244.2.9' }],
    ['source port', { sourcePort: 4001 }],
    ['destination port', { destinationPort: 5001 }],
    ['TTL', { ttl: 62 }],
    ['TOS', { tos: 1 }],
    ['DF', { fragmentWord: 0 }],
    ['a longer payload', { payload: countingBytes(SIZE + 1) }],
    ['an empty payload', { payload: new Uint8Array(0) }],
    ['no checksum', { checksum: 'unused' }],
    ['a bad checksum', { checksum: 'bad' }],
    ['IP options', { options: Uint8Array.from([1, 1, 1, 0]) }],
  ])('that differ are not joined: %s', (_, second) => {
    const given = [datagram(0), datagram(1, second)]
    const { written } = receivePackets(given)
    expect(written.map(({ packet }) => packet)).toEqual(given)
    expect(written.every(isPlain)).toBe(true)
  })
})
