// Super-packets cut into the packets that they stand for: exact numbers, wraps, flags, options, and the slow twin.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as udp from '../../../dataplane/wire/udp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import {
  countingBytes,
  fromTun,
  sameBytes,
  superFromTun,
  type TcpOptions,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { packetsOf, withChecksums } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'

const { FLAG_ACK, FLAG_PSH, FLAG_FIN, FLAG_CWR, FLAG_ECE, FLAG_URG } = tcp

/** Inner packets that leave for one thing read from the TUN. */
function cut(fromTheTun: Uint8Array): Uint8Array[] {
  const { a, tap } = tappedPair()
  a.sendFromTun(fromTheTun)
  expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return tap.takePackets()
}

const cutTcp = (options: TcpOptions, gsoSize: number, gsoFlags = 0) =>
  cut(superFromTun(tcpPacket({ checksum: 'partial', ...options }), gsoSize, gsoFlags))

const identifications = (packets: Uint8Array[]) => packets.map((packet) => ipv4.getIdentification(viewOf(packet), 0))
const sequences = (packets: Uint8Array[]) => packets.map((packet) => tcp.getSequence(viewOf(packet), 20))
const flagsOf = (packets: Uint8Array[]) => packets.map((packet) => tcp.getFlags(viewOf(packet), 20))
const totals = (packets: Uint8Array[]) => packets.map((packet) => ipv4.getTotalLength(viewOf(packet), 0))

describe('a TCP super-packet of 3000 bytes cut at 1400', () => {
  const options = {
    payload: countingBytes(3000),
    sequence: 5_000_000,
    identification: 777,
    flags: FLAG_ACK | FLAG_PSH | FLAG_FIN,
    tos: 0x2a,
    ttl: 61,
  }
  const pieces = cutTcp(options, 1400)

  it('becomes three packets of 1400, 1400 and 200 bytes', () => {
    expect(pieces.map((piece) => piece.length - 40)).toEqual([1400, 1400, 200])
    expect(totals(pieces)).toEqual([1440, 1440, 240])
    expect(Buffer.concat(pieces.map((piece) => piece.slice(40)))).toEqual(Buffer.from(options.payload))
  })

  it('counts sequence and identification up', () => {
    expect(sequences(pieces)).toEqual([5_000_000, 5_001_400, 5_002_800])
    expect(identifications(pieces)).toEqual([777, 778, 779])
  })

  it('has PSH and FIN on the third packet only', () => {
    expect(flagsOf(pieces)).toEqual([FLAG_ACK, FLAG_ACK, FLAG_ACK | FLAG_PSH | FLAG_FIN])
  })

  it('keeps DF, TTL and TOS on each', () => {
    for (const piece of pieces) {
      expect(ipv4.getFragmentWord(viewOf(piece), 0)).toBe(ipv4.DONT_FRAGMENT)
      expect(ipv4.getTtl(viewOf(piece), 0)).toBe(61)
      expect(ipv4.getTos(viewOf(piece), 0)).toBe(0x2a)
    }
  })

  it('has right checksums in each', () => {
    for (const piece of pieces) expect(withChecksums(piece)).toEqual(piece)
  })
})

describe('what is copied, and what counts', () => {
  const payload = countingBytes(500)

  it('keeps DF clear when it was clear', () => {
    const pieces = cutTcp({ payload, fragmentWord: 0 }, 200)
    expect(pieces.map((piece) => ipv4.getFragmentWord(viewOf(piece), 0))).toEqual([0, 0, 0])
  })

  it('wraps the identification at 2^16', () => {
    expect(identifications(cutTcp({ payload, identification: 0xffff }, 200))).toEqual([0xffff, 0, 1])
  })

  it('wraps the sequence number at 2^32', () => {
    const pieces = cutTcp({ payload, sequence: 2 ** 32 - 300 }, 200)
    expect(sequences(pieces)).toEqual([2 ** 32 - 300, 2 ** 32 - 100, 100])
    for (const piece of pieces) expect(withChecksums(piece)).toEqual(piece)
  })

  it('has CWR on the first packet only and ECE on all', () => {
    const flags = FLAG_ACK | FLAG_CWR | FLAG_ECE
    const pieces = cutTcp({ payload, flags }, 200, virtioNet.GSO_ECN)
    expect(flagsOf(pieces)).toEqual([flags, FLAG_ACK | FLAG_ECE, FLAG_ACK | FLAG_ECE])
  })

  it('keeps the urgent pointer as it was read', () => {
    const pieces = cutTcp({ payload, flags: FLAG_ACK | FLAG_URG, urgentPointer: 321 }, 200)
    expect(pieces.map((piece) => tcp.getUrgentPointer(viewOf(piece), 20))).toEqual([321, 321, 321])
  })

  it('copies TCP options of every length into each packet', () => {
    for (let length = 0; length <= 40; length += 4) {
      const tcpOptions = countingBytes(length, 3)
      const pieces = cutTcp({ payload, tcpOptions }, 200)
      expect(pieces).toHaveLength(3)
      for (const piece of pieces) {
        expect(piece.slice(40, 40 + length)).toEqual(tcpOptions)
        expect(withChecksums(piece)).toEqual(piece)
      }
    }
  })

  it('copies IP options into each packet', () => {
    const options = Uint8Array.from([148, 4, 0, 0, 1, 1, 1, 0])
    const pieces = cutTcp({ payload, options, tcpOptions: countingBytes(12) }, 200)
    expect(pieces.map((piece) => piece.length)).toEqual([28 + 32 + 200, 28 + 32 + 200, 28 + 32 + 100])
    for (const piece of pieces) {
      expect(piece.slice(20, 28)).toEqual(options)
      expect(withChecksums(piece)).toEqual(piece)
    }
  })

  it('gives one packet when the payload is not larger than the segment size', () => {
    for (const gsoSize of [500, 501, 1400]) {
      const [piece, ...more] = cutTcp({ payload, flags: FLAG_ACK | FLAG_PSH | FLAG_CWR }, gsoSize)
      expect(more).toEqual([])
      expect(piece).toEqual(withChecksums(tcpPacket({ payload, flags: FLAG_ACK | FLAG_PSH | FLAG_CWR })))
    }
  })

  it('cuts at the last byte: one byte left over is a packet of its own', () => {
    expect(cutTcp({ payload }, 499).map((piece) => piece.length - 40)).toEqual([499, 1])
  })

  it('cuts the largest super-packet there is', () => {
    const pieces = cutTcp({ payload: countingBytes(65535 - 40) }, 1408)
    expect(pieces).toHaveLength(Math.ceil((65535 - 40) / 1408))
    for (const piece of pieces) expect(withChecksums(piece)).toEqual(piece)
  })
})

describe('a UDP super-packet', () => {
  it('has lengths, identifications and checksums of its own in each datagram', () => {
    const packet = udpPacket({ payload: countingBytes(2500), identification: 0xfffe, checksum: 'partial' })
    const pieces = cut(superFromTun(packet, 1200))
    expect(pieces.map((piece) => udp.getLength(viewOf(piece), 20))).toEqual([1208, 1208, 108])
    expect(identifications(pieces)).toEqual([0xfffe, 0xffff, 0])
    for (const piece of pieces) expect(withChecksums(piece)).toEqual(piece)
  })

  it('writes a checksum that comes out as zero as 0xffff', () => {
    // The two payload bytes are chosen so that the sum of each datagram is all ones.
    const zero = udpPacket({ payload: new Uint8Array(2), checksum: 'good' })
    const field = udp.getChecksum(viewOf(zero), 20)
    const payload = Uint8Array.from([field >> 8, field & 0xff, field >> 8, field & 0xff])
    const pieces = cut(superFromTun(udpPacket({ payload, checksum: 'partial' }), 2))
    expect(pieces.map((piece) => udp.getChecksum(viewOf(piece), 20))).toEqual([0xffff, 0xffff])
  })
})

describe('what the virtio-net header says', () => {
  const packet = tcpPacket({ payload: countingBytes(500), checksum: 'partial' })
  const right = { flags: virtioNet.FLAG_NEEDS_CSUM, gsoSize: 200, checksumStart: 20, checksumOffset: 16 }

  it('about the header length is not believed', () => {
    const honest = cut(fromTun(packet, { ...right, gsoType: virtioNet.GSO_TCPV4, headerLength: 40 }))
    for (const headerLength of [0, 1, 20, 41, 540, 65535]) {
      expect(cut(fromTun(packet, { ...right, gsoType: virtioNet.GSO_TCPV4, headerLength }))).toEqual(honest)
    }
  })

  const udpOne = udpPacket({ payload: countingBytes(500), checksum: 'partial' })
  it.each([
    ['TCPv6 on an IPv4 packet', packet, { gsoType: virtioNet.GSO_TCPV6 }],
    ['UDP on a TCP packet', packet, { gsoType: virtioNet.GSO_UDP_L4 }],
    ['TCP on a UDP packet', udpOne, { gsoType: virtioNet.GSO_TCPV4 }],
    ['UDP fragments', udpOne, { gsoType: virtioNet.GSO_UDP }],
    ['a type that does not exist', packet, { gsoType: 9 }],
    ['TCP without a segment size', packet, { gsoType: virtioNet.GSO_TCPV4, gsoSize: 0 }],
    ['UDP without a segment size', udpOne, { gsoType: virtioNet.GSO_UDP_L4, gsoSize: 0 }],
    ['a checksum inside the IP header', udpOne, { checksumStart: 0 }],
    ['a checksum behind the packet', udpOne, { checksumStart: 20, checksumOffset: 508 }],
    [
      'TCP on a fragment',
      tcpPacket({ payload: countingBytes(500), fragmentWord: ipv4.MORE_FRAGMENTS }),
      {
        gsoType: virtioNet.GSO_TCPV4,
      },
    ],
    ['TCP without any payload', tcpPacket(), { gsoType: virtioNet.GSO_TCPV4 }],
  ])('is refused when it contradicts the packet: %s', (_, given, vnet) => {
    const { a, tap } = tappedPair()
    a.sendFromTun(fromTun(given, { ...right, ...vnet }))
    expect(tap.messages).toEqual([])
    expect(a.counters.dropped('outbound', 'vnet-inconsistent')).toEqual({ packets: 1, bytes: given.length })
    expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  it.each([3, 4, 16])('and a data offset of %i words that leads nowhere is refused', (words) => {
    const bent = tcpPacket({ payload: countingBytes(2), checksum: 'partial' })
    bent[32] = (words & 15) << 4
    const { a, tap } = tappedPair()
    a.sendFromTun(superFromTun(bent, 1))
    expect(tap.messages).toEqual([])
    expect(a.counters.dropped('outbound', 'vnet-inconsistent').packets).toBe(1)
  })
})

describe('cutting agrees with its slow twin', () => {
  const superPacket = fc.record({
    isTcp: fc.boolean(),
    payload: fc.uint8Array({ minLength: 1, maxLength: 6000, size: 'max' }),
    gsoSize: fc.integer({ min: 1, max: 1400 }),
    options: fc.integer({ min: 0, max: 10 }).map((words) => countingBytes(words * 4, words)),
    tcpOptions: fc.integer({ min: 0, max: 10 }).map((words) => countingBytes(words * 4, 9)),
    identification: fc.nat(0xffff),
    sequence: fc.nat(0xffffffff),
    acknowledgment: fc.nat(0xffffffff),
    flags: fc.nat(0xff).map((flags) => flags & ~tcp.FLAG_SYN & ~tcp.FLAG_RST),
    window: fc.nat(0xffff),
    tos: fc.nat(0xff),
    ttl: fc.integer({ min: 1, max: 255 }),
    fragmentWord: fc.constantFrom(0, ipv4.DONT_FRAGMENT),
  })

  it('for TCP and UDP of any shape', () => {
    fc.assert(
      fc.property(superPacket, ({ isTcp, gsoSize, ...options }) => {
        const given = { ...options, checksum: 'partial' } as const
        const packet = isTcp ? tcpPacket(given) : udpPacket(given)
        // Enough for the MTU, so that nothing is refused as too large.
        const headerBytes = 20 + options.options.length + (isTcp ? 20 + options.tcpOptions.length : 8)
        const size = Math.min(gsoSize, 1450 - headerBytes)
        const read = superFromTun(packet, size)
        expect(sameBytes(cut(read), packetsOf(read))).toBe(true)
      }),
      { numRuns: 60 },
    )
  })
})
