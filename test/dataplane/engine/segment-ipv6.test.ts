// IPv6 super-packets cut into the packets that they stand for.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { AUTHENTICATION, DESTINATION_OPTIONS, HOP_BY_HOP, ROUTING } from '../../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as udp from '../../../dataplane/wire/udp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { MTU } from '../../support/engine-pair.ts'
import {
  bytesOfIpv6,
  countingBytes,
  type Extension,
  fromTun,
  IPV6,
  ip6,
  sameBytes,
  superFromTun,
  type TcpOptions,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { packetsOf, withChecksums } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'

const { FLAG_ACK, FLAG_PSH, FLAG_FIN, FLAG_CWR, FLAG_ECE } = tcp

/** Inner packets that leave for one thing read from the TUN. */
function cut(fromTheTun: Uint8Array): Uint8Array[] {
  const { a, tap } = tappedPair()
  a.sendFromTun(fromTheTun)
  expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return tap.takePackets()
}

const cutTcp = (options: TcpOptions, gsoSize: number, gsoFlags = 0) =>
  cut(superFromTun(tcpPacket({ ...IPV6, checksum: 'partial', ...options }), gsoSize, gsoFlags))

describe('a TCPv6 super-packet of 3000 bytes cut at 1380', () => {
  const payload = countingBytes(3000)
  const options = {
    payload,
    sequence: 2 ** 32 - 1400,
    flags: FLAG_ACK | FLAG_PSH | FLAG_FIN,
    tos: 0x2a,
    ttl: 61,
    flowLabel: 0xfedcb,
  }
  const pieces = cutTcp(options, 1380)
  const views = pieces.map(viewOf)

  it('becomes three packets whose payload lengths are their own', () => {
    expect(pieces.map((piece) => piece.length - 60)).toEqual([1380, 1380, 240])
    expect(views.map((view) => ipv6.getPayloadLength(view, 0))).toEqual([1400, 1400, 260])
    expect(Buffer.concat(pieces.map((piece) => piece.slice(60)))).toEqual(Buffer.from(payload))
  })

  it('counts the sequence up, over the wrap, and has PSH and FIN on the third packet only', () => {
    expect(views.map((view) => tcp.getSequence(view, 40))).toEqual([2 ** 32 - 1400, 2 ** 32 - 20, 1360])
    expect(views.map((view) => tcp.getFlags(view, 40))).toEqual([FLAG_ACK, FLAG_ACK, FLAG_ACK | FLAG_PSH | FLAG_FIN])
  })

  it('copies all else: nothing of the fixed header changes but the length', () => {
    const fixed = (bytes: Uint8Array) => [...bytes.slice(0, 4), ...bytes.slice(6, 40)]
    const given = tcpPacket({ ...IPV6, ...options })
    for (const piece of pieces) expect(fixed(piece)).toEqual(fixed(given))
  })

  it('has right checksums in each', () => {
    for (const piece of pieces) expect(withChecksums(piece)).toEqual(piece)
  })

  it('has CWR on the first packet only and ECE on all', () => {
    const flags = FLAG_ACK | FLAG_CWR | FLAG_ECE
    const marked = cutTcp({ payload, flags }, 1380, virtioNet.GSO_ECN)
    expect(marked.map((piece) => tcp.getFlags(viewOf(piece), 40))).toEqual([
      flags,
      flags & ~FLAG_CWR,
      flags & ~FLAG_CWR,
    ])
  })
})

describe('extension headers', () => {
  const padding = Uint8Array.from([1, 4, 0, 0, 0, 0])
  const payload = countingBytes(500)
  const chain = (count: number): Extension[] => Array.from({ length: count }, () => [DESTINATION_OPTIONS, padding])

  it.each<[string, Extension[]]>([
    ['hop-by-hop options', [[HOP_BY_HOP, padding]]],
    ['destination options', chain(1)],
    ['a routing header at its end', [[ROUTING, Uint8Array.from([4, 0, 0, 0, 0, 0])]]],
    ['an authentication header, a multiple of 4 bytes', [[AUTHENTICATION, countingBytes(10)]]],
    ['several', [[HOP_BY_HOP, countingBytes(14)], ...chain(2)]],
  ])('are copied into each packet: %s', (_, extensions) => {
    const ipBytes = 40 + extensions.reduce((sum, [, data]) => sum + 2 + data.length, 0)
    for (const [packet, headerBytes] of [
      [tcpPacket({ ...IPV6, payload, extensions, checksum: 'partial' }), ipBytes + 20],
      [udpPacket({ ...IPV6, payload, extensions, checksum: 'partial' }), ipBytes + 8],
    ] as const) {
      const pieces = cut(superFromTun(packet, 200))
      expect(pieces.map((piece) => piece.length - headerBytes)).toEqual([200, 200, 100])
      for (const piece of pieces) {
        expect(ipv6.getPayloadLength(viewOf(piece), 0)).toBe(piece.length - 40)
        expect(piece.slice(40, ipBytes)).toEqual(packet.slice(40, ipBytes))
        expect(withChecksums(piece)).toEqual(piece)
      }
    }
  })

  it('may hold the destination that the checksum is about: a routing header with a segment left', () => {
    const last = bytesOfIpv6(ip6('fd00:10:244:7::7'))
    const extensions: Extension[] = [[ROUTING, Uint8Array.from([4, 1, 0, 0, 0, 0, ...last])]]
    const packet = tcpPacket({ ...IPV6, destination: 'fd00:10:244:7::7', payload, extensions, checksum: 'partial' })
    packet.set(bytesOfIpv6(ip6(IPV6.destination)), ipv6.DESTINATION_OFFSET)
    const pieces = cut(superFromTun(packet, 200))
    expect(pieces).toHaveLength(3)
    for (const piece of pieces) {
      expect(piece.slice(24, 40)).toEqual(bytesOfIpv6(ip6(IPV6.destination)))
      piece.set(last, ipv6.DESTINATION_OFFSET)
      expect(withChecksums(piece)).toEqual(piece)
    }
  })

  it('are cut with headers of up to 120 bytes; longer ones are refused by name, nothing is sent in part', () => {
    expect(cutTcp({ payload, extensions: chain(7), tcpOptions: new Uint8Array(4) }, 200)).toHaveLength(3)
    const { a, tap } = tappedPair()
    const long = tcpPacket({
      ...IPV6,
      payload,
      extensions: chain(7),
      tcpOptions: new Uint8Array(8),
      checksum: 'partial',
    })
    a.sendFromTun(superFromTun(long, 200))
    expect(tap.messages).toEqual([])
    expect(a.counters.dropped('outbound', 'headers-too-long')).toEqual({ packets: 1, bytes: long.length })
  })

  it('of any length are no matter for a packet that is not cut', () => {
    const long = udpPacket({ ...IPV6, payload, extensions: [[DESTINATION_OPTIONS, countingBytes(510)]] })
    expect(cut(fromTun(long))).toEqual([long])
  })
})

describe('a UDPv6 super-packet', () => {
  it('has lengths and checksums of its own in each datagram', () => {
    const packet = udpPacket({ ...IPV6, payload: countingBytes(2500), checksum: 'partial' })
    const pieces = cut(superFromTun(packet, 1200))
    expect(pieces.map((piece) => udp.getLength(viewOf(piece), 40))).toEqual([1208, 1208, 108])
    for (const piece of pieces) expect(withChecksums(piece)).toEqual(piece)
  })

  it('never has a checksum of zero', () => {
    const field = udp.getChecksum(viewOf(udpPacket({ ...IPV6, payload: new Uint8Array(2) })), 40)
    const payload = Uint8Array.from([field >> 8, field & 0xff, field >> 8, field & 0xff])
    const pieces = cut(superFromTun(udpPacket({ ...IPV6, payload, checksum: 'partial' }), 2))
    expect(pieces.map((piece) => udp.getChecksum(viewOf(piece), 40))).toEqual([0xffff, 0xffff])
  })
})

describe('a virtio-net header that contradicts an IPv6 packet', () => {
  const right = { flags: virtioNet.FLAG_NEEDS_CSUM, gsoSize: 200, checksumStart: 40, checksumOffset: 16 }
  const packet = tcpPacket({ ...IPV6, payload: countingBytes(500), checksum: 'partial' })
  it.each([
    ['TCPv4', packet, { gsoType: virtioNet.GSO_TCPV4 }],
    ['UDP on a TCP packet', packet, { gsoType: virtioNet.GSO_UDP_L4 }],
    ['TCPv6 on a UDP packet', udpPacket({ ...IPV6, payload: countingBytes(500) }), { gsoType: virtioNet.GSO_TCPV6 }],
    ['no segment size', packet, { gsoType: virtioNet.GSO_TCPV6, gsoSize: 0 }],
    ['a fragment', tcpPacket({ ...IPV6, extensions: [[44, new Uint8Array(6)]] }), { gsoType: virtioNet.GSO_TCPV6 }],
    ['no payload', tcpPacket(IPV6), { gsoType: virtioNet.GSO_TCPV6 }],
    ['a payload length of zero, as of a jumbogram', jumbogram(packet), { gsoType: virtioNet.GSO_TCPV6 }],
  ])('is refused: %s', (_, given, vnet) => {
    const { a, tap } = tappedPair()
    a.sendFromTun(fromTun(given, { ...right, ...vnet }))
    expect(tap.messages).toEqual([])
    expect(a.counters.dropped('outbound', 'vnet-inconsistent')).toEqual({ packets: 1, bytes: given.length })
  })
})

function jumbogram(packet: Uint8Array): Uint8Array {
  const changed = packet.slice()
  ipv6.setPayloadLength(viewOf(changed), 0, 0)
  return changed
}

describe('cutting IPv6 agrees with its slow twin', () => {
  const superPacket = fc.record({
    isTcp: fc.boolean(),
    payload: fc.uint8Array({ minLength: 1, maxLength: 6000, size: 'max' }),
    gsoSize: fc.integer({ min: 1, max: 1300 }),
    extensions: fc.array(
      fc
        .tuple(fc.constantFrom(HOP_BY_HOP, DESTINATION_OPTIONS), fc.constantFrom(6, 14))
        .map(([kind, length]): Extension => [kind, countingBytes(length)]),
      { maxLength: 2 },
    ),
    tcpOptions: fc.integer({ min: 0, max: 5 }).map((words) => countingBytes(words * 4, 9)),
    sequence: fc.nat(0xffffffff),
    flags: fc.nat(0xff).map((flags) => flags & ~tcp.FLAG_SYN & ~tcp.FLAG_RST),
    tos: fc.nat(0xff),
    ttl: fc.integer({ min: 1, max: 255 }),
    flowLabel: fc.nat(0xfffff),
  })

  it('for TCP and UDP of any shape', () => {
    fc.assert(
      fc.property(superPacket, ({ isTcp, gsoSize, ...options }) => {
        const given = { ...IPV6, ...options, checksum: 'partial' } as const
        const packet = isTcp ? tcpPacket(given) : udpPacket(given)
        const read = superFromTun(packet, Math.min(gsoSize, MTU - 120))
        expect(sameBytes(cut(read), packetsOf(read))).toBe(true)
      }),
      { numRuns: 60 },
    )
  })
})
