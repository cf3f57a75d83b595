// IPv6 packets from one node's TUN to the other's, one by one and in bulk.
import { describe, expect, it } from 'vitest'
import * as icmpv6 from '../../../dataplane/wire/icmpv6.ts'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP } from '../../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { enginePair, MTU, recordSteps } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  IPV6,
  type IpOptions,
  icmpEcho,
  ipv6Packet,
  openFromTun,
  superFromTun,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

const PADDING = Uint8Array.from([1, 4, 0, 0, 0, 0])

/** What arrives at the other pod for one packet read from the TUN. */
function cross(fromTheTun: Uint8Array) {
  const { a, b } = enginePair()
  a.sendFromTun(fromTheTun)
  const written = b.receive()
  for (const node of [a, b]) expect(node.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return written
}

describe('an IPv6 packet from pod to pod', () => {
  it.each<[string, Uint8Array]>([
    ['a ping', icmpEcho(IPV6)],
    ['TCP', tcpPacket({ ...IPV6, payload: countingBytes(99) })],
    ['UDP', udpPacket({ ...IPV6, payload: countingBytes(99) })],
    ['hop limit 1', udpPacket({ ...IPV6, ttl: 1 })],
    ['a bare header', ipv6Packet(59, new Uint8Array(0))],
    ['another protocol', ipv6Packet(47, countingBytes(11))],
    [
      'extension headers',
      udpPacket({
        ...IPV6,
        extensions: [
          [HOP_BY_HOP, PADDING],
          [DESTINATION_OPTIONS, PADDING],
        ],
      }),
    ],
    ['eight extension headers', udpPacket({ ...IPV6, extensions: Array(8).fill([DESTINATION_OPTIONS, PADDING]) })],
    ['as large as the MTU', udpPacket({ ...IPV6, payload: countingBytes(MTU - 48) })],
  ])('arrives as it was sent: %s', (_, packet) => {
    expect(cross(fromTun(packet))).toEqual([{ vnet: expect.objectContaining({ flags: 0, gsoType: 0 }), packet }])
  })

  it('is a frame of EtherType 0x86dd between the VTEPs on the wire', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(fromTun(icmpEcho(IPV6)))
    const [frame, ...more] = tap.takeFrames()
    expect(more).toEqual([])
    expect(frame).toEqual(vxlanFrame(icmpEcho(IPV6), { etherType: 0x86dd }))
    expect([...frame!.slice(20, 22)]).toEqual([0x86, 0xdd])
  })

  it('shares a send with IPv4 packets of its size to the same peer, each under its own EtherType', () => {
    const { a, b, tap } = tappedPair()
    const given = [udpPacket({ payload: countingBytes(40) }), udpPacket({ ...IPV6, payload: countingBytes(20) })]
    a.sendFromTun(...given.map((packet) => fromTun(packet)))
    expect(tap.messages.map(({ frames }) => frames)).toEqual([given.map((packet) => vxlanFrame(packet))])
    expect(b.receive().map(({ packet }) => packet)).toEqual(given)
  })

  it('can be followed under one id on both nodes, addresses told as they are', () => {
    const { a, b } = enginePair()
    const [out, back] = [recordSteps(a), recordSteps(b)]
    a.sendFromTun(fromTun(icmpEcho(IPV6)))
    b.receive()
    expect(out.map((step) => step.kind)).toEqual(['tun-read', 'lookup', 'fit', 'encap', 'send'])
    expect(back.map((step) => step.kind)).toEqual(['receive', 'decap', 'source-check', 'ecn', 'tun-write'])
    expect(out[1]).toMatchObject({
      destination: 0xfd000010024400020000000000000003n,
      entry: { prefix: { length: 64 } },
    })
    expect(back[2]).toMatchObject({ source: 0xfd000010024400010000000000000002n, entry: { prefix: { length: 64 } } })
    expect(new Set([...out, ...back].flatMap((step) => ('id' in step ? [step.id] : []))).size).toBe(1)
  })
})

describe('an open checksum over IPv6', () => {
  const extensions: IpOptions['extensions'] = [[DESTINATION_OPTIONS, PADDING]]
  it.each([
    ['TCP', tcpPacket({ ...IPV6, payload: countingBytes(101), checksum: 'partial' })],
    ['UDP', udpPacket({ ...IPV6, payload: countingBytes(101), checksum: 'partial' })],
    ['UDP without payload', udpPacket({ ...IPV6, checksum: 'partial' })],
    [
      'TCP behind an extension header',
      tcpPacket({ ...IPV6, extensions, payload: countingBytes(7), checksum: 'partial' }),
    ],
  ])('is completed before it leaves: %s', (_, open) => {
    expect(cross(openFromTun(open)).map(({ packet }) => packet)).toEqual([withChecksums(open)])
  })

  it('that starts inside the extension headers contradicts the packet', () => {
    const { a, tap } = tappedPair()
    const packet = tcpPacket({ ...IPV6, extensions, checksum: 'partial' })
    a.sendFromTun(fromTun(packet, { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 40, checksumOffset: 16 }))
    expect(tap.messages).toEqual([])
    expect(a.counters.dropped('outbound', 'vnet-inconsistent').packets).toBe(1)
  })
})

describe('an IPv6 super-packet', () => {
  it('of TCP is cut on the way, joined on arrival, and stands for the same packets', () => {
    const given = tcpPacket({ ...IPV6, payload: countingBytes(40_000), checksum: 'partial', flags: tcp.FLAG_ACK })
    const written = cross(superFromTun(given, 1390))
    expect(written).toHaveLength(1)
    expect(written[0]!.vnet).toEqual({
      flags: virtioNet.FLAG_NEEDS_CSUM,
      gsoType: virtioNet.GSO_TCPV6,
      headerLength: 60,
      gsoSize: 1390,
      checksumStart: 40,
      checksumOffset: tcp.CHECKSUM_OFFSET,
    })
    expect(written[0]!.packet).toEqual(given)
  })

  it('of UDP is cut into datagrams with complete checksums and joined on arrival', () => {
    const given = udpPacket({ ...IPV6, payload: countingBytes(10_000), checksum: 'partial' })
    const written = cross(superFromTun(given, 1200))
    expect(written).toHaveLength(1)
    expect(written[0]!.vnet).toMatchObject({ gsoType: virtioNet.GSO_UDP_L4, gsoSize: 1200, checksumStart: 40 })
    expect(written[0]!.packet).toEqual(given)
    const pieces = written.flatMap(resplit)
    expect(pieces.map((piece) => ipv6.getPayloadLength(viewOf(piece), 0))).toEqual([...Array(8).fill(1208), 408])
  })
})

describe('IPv6 fragments', () => {
  const whole = udpPacket({ ...IPV6, payload: countingBytes(3000) }).slice(40)
  const fragment = (offset: number, more: 0 | 1, identification = 9) => {
    const word = offset | more
    const data = Uint8Array.from([word >> 8, word & 0xff, 0, 0, 0, identification])
    return ipv6Packet(17, whole.slice(offset, offset + 1376), { extensions: [[FRAGMENT, data]] })
  }

  it('cross byte for byte, in order, and are never joined nor looked into for ports', () => {
    const given = [fragment(0, 1), fragment(1376, 1), fragment(2752, 0), fragment(0, 1, 10)]
    const { a, b } = tappedPair()
    a.sendFromTun(...given.map((packet) => fromTun(packet)))
    const written = b.receive()
    expect(written.map(({ packet }) => packet)).toEqual(given)
    expect(written.every(({ vnet }) => vnet.flags === 0 && vnet.gsoType === 0)).toBe(true)
    expect(b.counters.get('inbound.checksum.bad')).toBe(0)
  })

  it('too short for a transport header cross too', () => {
    const tiny = ipv6Packet(6, new Uint8Array(0), { extensions: [[FRAGMENT, Uint8Array.from([0, 8, 0, 0, 0, 1])]] })
    expect(cross(fromTun(tiny)).map(({ packet }) => packet)).toEqual([tiny])
  })
})

describe('sizes of IPv6 packets', () => {
  const sized = (bytes: number) => udpPacket({ ...IPV6, payload: countingBytes(bytes - 48) })

  it('from 48 bytes to beyond the MTU: each is delivered intact or answered, none vanishes', () => {
    const { a, b } = tappedPair()
    for (let bytes = 48; bytes <= MTU + 10; bytes += bytes < MTU - 10 ? 7 : 1) {
      a.sendFromTun(fromTun(sized(bytes)))
      const intact = b.receive().map(({ packet }) => Buffer.compare(packet, sized(bytes)))
      const answers = a.takeWritten().length
      if (bytes <= MTU ? intact.join() !== '0' || answers !== 0 : intact.length > 0 || answers > 1) {
        expect.fail(`${bytes} bytes`)
      }
    }
    expect(a.counters.get('icmp.sent')).toBe(10)
  })

  it.each([8951, 65535 - 50])('%i bytes cross whole where the underlay allows it', (bytes) => {
    const { a, b } = tappedPair({ settings: { mtuBytes: bytes } })
    a.sendFromTun(fromTun(sized(bytes)))
    expect(b.receive().map(({ packet }) => Buffer.compare(packet, sized(bytes)))).toEqual([0])
  })

  it('a super-packet may be as large as a TUN delivers', () => {
    const given = tcpPacket({ ...IPV6, payload: countingBytes(65535 - 60), checksum: 'partial' })
    const { a, tap } = tappedPair()
    a.sendFromTun(superFromTun(given, MTU - 60))
    const pieces = tap.takePackets()
    expect(pieces).toHaveLength(Math.ceil((65535 - 60) / (MTU - 60)))
    for (const piece of pieces) expect(Buffer.compare(withChecksums(piece), piece)).toBe(0)
  })
})

describe('noise of the host over IPv6', () => {
  const message = (type: number, destination: string, source = 'fe80::1') => {
    const transport = new Uint8Array(16)
    icmpv6.write(viewOf(transport), 0, type, 0, 0)
    return ipv6Packet(ipv6.PROTOCOL_ICMPV6, transport, { source, destination })
  }
  it.each([
    ['a router solicitation', message(icmpv6.TYPE_ROUTER_SOLICITATION, 'ff02::2')],
    ['a router advertisement', message(icmpv6.TYPE_ROUTER_ADVERTISEMENT, 'ff02::1')],
    ['a neighbour solicitation', message(icmpv6.TYPE_NEIGHBOUR_SOLICITATION, 'ff02::1:ff00:3', IPV6.source)],
    ['a neighbour advertisement', message(icmpv6.TYPE_NEIGHBOUR_ADVERTISEMENT, 'fe80::42')],
    ['a listener report', message(icmpv6.TYPE_LISTENER_REPORT_V2, 'ff02::16', '::')],
    ['the last multicast address', udpPacket({ ...IPV6, destination: 'ffff:ffff::ffff' })],
    ['the last link-local address', udpPacket({ ...IPV6, destination: 'febf:ffff::1' })],
    ['mDNS', udpPacket({ ...IPV6, destination: 'ff02::fb' })],
  ])('is dropped by name, without a word: %s', (_, packet) => {
    const { a, tap } = tappedPair()
    a.sendFromTun(fromTun(packet))
    expect([tap.messages, a.takeWritten()]).toEqual([[], []])
    expect(a.counters.dropped('outbound', 'link-local-or-multicast')).toEqual({ packets: 1, bytes: packet.length })
    expect(a.counters.get('icmp.suppressed')).toBe(0)
  })

  it('ends where other addresses begin', () => {
    for (const destination of ['fec0::1', 'fe7f::1', 'feff:ffff::1']) {
      const { a } = tappedPair()
      a.sendFromTun(fromTun(udpPacket({ ...IPV6, destination })))
      expect(a.counters.dropped('outbound', 'no-route').packets, destination).toBe(1)
    }
  })
})
