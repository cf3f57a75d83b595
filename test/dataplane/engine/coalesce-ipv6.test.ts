// Merging of IPv6 packets towards the TUN: what may be joined, and what must never be.
import { describe, expect, it } from 'vitest'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { DESTINATION_OPTIONS, FRAGMENT } from '../../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { receivePackets, receiveTrain } from '../../support/arrival.ts'
import type { Written } from '../../support/engine-pair.ts'
import {
  countingBytes,
  type Extension,
  IPV6,
  type TcpOptions,
  tcpPacket,
  type UdpOptions,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { resplit } from '../../support/resplit.ts'

const { FLAG_ACK, FLAG_PSH, FLAG_FIN, FLAG_SYN, FLAG_RST, FLAG_URG, FLAG_ECE, FLAG_CWR } = tcp
const SIZE = 100
const PADDED: readonly Extension[] = [[DESTINATION_OPTIONS, Uint8Array.from([1, 4, 0, 0, 0, 0])]]

/** Segment `n` of a flow: follows segment n − 1 in every respect, unless told otherwise. */
function segment(n: number, options: TcpOptions = {}): Uint8Array {
  const payload = options.payload ?? countingBytes(SIZE, n * SIZE)
  return tcpPacket({ ...IPV6, sequence: 1000 + n * SIZE, ...options, payload })
}

const datagram = (n: number, options: UdpOptions = {}): Uint8Array =>
  udpPacket({ ...IPV6, payload: countingBytes(SIZE, n), ...options })

const isPlain = ({ vnet }: Written) => Object.values(vnet).every((value) => value === 0)
const lengths = (written: readonly Written[]) => written.map(({ packet }) => packet.length)

describe('consecutive segments of a flow over IPv6', () => {
  const segments = [segment(0), segment(1), segment(2)]
  const { written } = receivePackets(segments)

  it('become one super-packet that stands for just these', () => {
    expect(written).toHaveLength(1)
    expect(written[0]!.vnet).toEqual({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_TCPV6,
      headerLength: 60,
      gsoSize: SIZE,
      checksumStart: 40,
      checksumOffset: tcp.CHECKSUM_OFFSET,
    })
    expect(written.flatMap(resplit)).toEqual(segments)
  })

  it('carry the payload length of all, and nothing else of the header changes', () => {
    const { packet } = written[0]!
    expect(ipv6.getPayloadLength(viewOf(packet), 0)).toBe(20 + 3 * SIZE)
    expect([...packet.slice(0, 4), ...packet.slice(6, 40)]).toEqual([
      ...segments[0]!.slice(0, 4),
      ...segments[0]!.slice(6, 40),
    ])
  })

  it('hold the pseudo-header sum of the whole in their checksum, not complemented', () => {
    const open = tcpPacket({ ...IPV6, sequence: 1000, payload: countingBytes(3 * SIZE), checksum: 'partial' })
    expect(written[0]!.packet.slice(0, 60)).toEqual(open.slice(0, 60))
  })

  it('end with PSH, or with a shorter one', () => {
    const pushed = [segment(0), segment(1, { flags: FLAG_ACK | FLAG_PSH }), segment(2)]
    const short = [segment(0), segment(1, { payload: countingBytes(60) }), segment(2, { sequence: 1160 })]
    for (const given of [pushed, short]) {
      const arrival = receivePackets(given)
      expect(arrival.written).toHaveLength(2)
      expect(arrival.written.flatMap(resplit)).toEqual(given)
    }
  })

  it('are at most 64 to a write and 65,535 bytes', () => {
    expect(lengths(receiveTrain(Array.from({ length: 65 }, (_, n) => segment(n))).written)).toEqual([
      60 + 64 * SIZE,
      60 + SIZE,
    ])
    const large = Array.from({ length: 14 }, (_, n) =>
      segment(n, { sequence: n * 5000, payload: countingBytes(5000, n) }),
    )
    expect(lengths(receivePackets(large).written)).toEqual([60 + 13 * 5000, 60 + 5000])
  })
})

describe('IPv6 segments that differ are not joined', () => {
  it.each<[string, TcpOptions, TcpOptions?]>([
    ['source address, first word', { source: 'fd00:11:244:1::2' }],
    ['source address, last bit', { source: 'fd00:10:244:1::3' }],
    ['source address, third word', { source: 'fd00:10:244:1:1::2' }],
    ['destination address', { destination: 'fd00:10:244:2::4' }],
    ['source port', { sourcePort: 40001 }],
    ['destination port', { destinationPort: 81 }],
    ['hop limit', { ttl: 62 }],
    ['flow label', { flowLabel: 0xabcdf }],
    ['flow label, upper bits', { flowLabel: 0xbbcde }],
    ['traffic class, DSCP', { tos: 4 }],
    ['traffic class, upper half', { tos: 0x10 }],
    ['traffic class, ECN', { tos: 2 }],
    ['extension headers on the later', { extensions: PADDED }],
    ['extension headers on both', { extensions: PADDED }, { extensions: PADDED }],
    ['acknowledgment', { acknowledgment: 8 }],
    ['window', { window: 501 }],
    ['option bytes', { tcpOptions: countingBytes(12, 1) }, { tcpOptions: countingBytes(12) }],
    ['option length', { tcpOptions: countingBytes(12) }],
    ['urgent pointer', { urgentPointer: 5 }],
    ['ECE', { flags: FLAG_ACK | FLAG_ECE }],
    ['sequence, a gap', { sequence: 1001 + SIZE }],
    ['sequence, a repetition', { sequence: 1000 }],
    ['missing ACK', { flags: 0 }],
    ['AE bit', { accurateEcn: 1 }],
    ['a longer payload', { payload: countingBytes(SIZE + 1) }],
    ['no payload', { payload: new Uint8Array(0) }],
    ['a bad checksum', { checksum: 'bad' }],
    ['a bad checksum on the first', {}, { checksum: 'bad' }],
    ...[FLAG_SYN, FLAG_RST, FLAG_FIN, FLAG_URG, FLAG_CWR].flatMap((flag): [string, TcpOptions, TcpOptions?][] => [
      [`flag ${flag} on the later`, { flags: FLAG_ACK | flag }],
      [`flag ${flag} on the first`, {}, { flags: FLAG_ACK | flag }],
    ]),
  ])('%s', (_, second, first = {}) => {
    const given = [segment(0, first), segment(1, second)]
    const { written } = receivePackets(given, { settings: { sourceCheck: 'off' } })
    expect(written.map(({ packet }) => packet)).toEqual(given)
    expect(written.every(isPlain)).toBe(true)
  })

  it('fragments, even atomic ones', () => {
    for (const word of [0, 1, 8, 9]) {
      const extensions: Extension[] = [[FRAGMENT, Uint8Array.from([0, word, 0, 0, 0, 7])]]
      const given = [segment(0, { extensions }), segment(1, { extensions })]
      const { written } = receivePackets(given)
      expect(written.map(({ packet }) => packet)).toEqual(given)
      expect(written.every(isPlain)).toBe(true)
    }
  })

  it('an IPv4 and an IPv6 flow with the same ports and numbers, each of which is joined by itself', () => {
    const four = (n: number) =>
      tcpPacket({ sequence: 1000 + n * SIZE, identification: n, payload: countingBytes(SIZE, n * SIZE) })
    const { written } = receivePackets([segment(0), four(0), segment(1), four(1)])
    expect(written.map(({ vnet }) => vnet.gsoType)).toEqual([virtioNet.GSO_TCPV6, virtioNet.GSO_TCPV4])
    expect(written.flatMap(resplit)).toEqual([segment(0), segment(1), four(0), four(1)])
  })
})

describe('datagrams of a UDP flow over IPv6', () => {
  it('of equal size become one super-packet, a shorter one ends it', () => {
    const given = [datagram(0), datagram(1), datagram(2, { payload: countingBytes(10) }), datagram(3)]
    const { written } = receivePackets(given)
    expect(written[0]!.vnet).toEqual({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_UDP_L4,
      headerLength: 48,
      gsoSize: SIZE,
      checksumStart: 40,
      checksumOffset: 6,
    })
    expect(lengths(written)).toEqual([48 + 210, 48 + SIZE])
    expect(written.flatMap(resplit)).toEqual(given)
  })

  it.each<[string, UdpOptions]>([
    ['hop limit', { ttl: 62 }],
    ['flow label', { flowLabel: 1 }],
    ['traffic class', { tos: 1 }],
    ['source port', { sourcePort: 4001 }],
    ['destination port', { destinationPort: 5001 }],
    ['source address', { source: 'fd00:10:244:1::9' }],
    ['destination address', { destination: 'fd00:10:244:2::9' }],
    ['a longer payload', { payload: countingBytes(SIZE + 1) }],
    ['an empty payload', { payload: new Uint8Array(0) }],
    ['no checksum', { checksum: 'unused' }],
    ['a bad checksum', { checksum: 'bad' }],
    ['extension headers', { extensions: PADDED }],
  ])('that differ are not joined: %s', (_, second) => {
    const given = [datagram(0), datagram(1, second)]
    const { written } = receivePackets(given)
    expect(written.map(({ packet }) => packet)).toEqual(given)
    expect(written.every(isPlain)).toBe(true)
  })
})

describe('order of a flow over IPv6', () => {
  it('is kept when one of its packets is a fragment or has extension headers', () => {
    const fragment: Extension[] = [[FRAGMENT, Uint8Array.from([0, 1, 0, 0, 0, 7])]]
    for (const extensions of [fragment, PADDED]) {
      const given = [segment(0), segment(1), segment(2, { extensions }), segment(3)]
      expect(receivePackets(given).written.flatMap(resplit)).toEqual(given)
    }
  })
})
