// Merging of random batches: re-splitting what was written gives back what arrived, byte for byte and in order.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { DESTINATION_OPTIONS, FRAGMENT } from '../../../dataplane/wire/ipv6-extension.ts'
import * as ipv6Fragment from '../../../dataplane/wire/ipv6-fragment.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import { type Arrival, receivePackets } from '../../support/arrival.ts'
import {
  type ChecksumState,
  countingBytes,
  IPV6,
  type IpOptions,
  icmpEcho,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'
import { transportOf } from '../../support/transport-of.ts'

/** What may happen at one place of a batch: the next packet of a flow, and how it differs from a plain one. */
interface Event {
  readonly version: 4 | 6
  readonly flow: number
  readonly kind: 'tcp' | 'udp' | 'icmp'
  readonly size: number
  readonly twist: Twist
  readonly checksum: ChecksumState
}

const TWISTS = [
  'none',
  'none',
  'none',
  'none',
  'none',
  'push',
  'fin',
  'syn',
  'cwr',
  'ece',
  'gap',
  'ttl',
  'tos',
  'window',
  'options',
  'ip-options',
  'no-df',
  'fragment',
  'later-fragment',
] as const
type Twist = (typeof TWISTS)[number]

const FLAGS: Partial<Record<Twist, number>> = {
  push: tcp.FLAG_PSH,
  fin: tcp.FLAG_FIN,
  syn: tcp.FLAG_SYN,
  cwr: tcp.FLAG_CWR,
  ece: tcp.FLAG_ECE,
}

const event: fc.Arbitrary<Event> = fc.record({
  version: fc.constantFrom(4, 6),
  flow: fc.nat(2),
  kind: fc.constantFrom('tcp', 'tcp', 'udp', 'udp', 'icmp'),
  size: fc.constantFrom(0, 1, 99, 100, 100, 100, 100, 100, 101),
  twist: fc.constantFrom(...TWISTS),
  checksum: fc.constantFrom<ChecksumState[]>('good', 'good', 'good', 'good', 'good', 'bad', 'unused', 'partial'),
})

function ipOptionsOf(version: 4 | 6, twist: Twist): IpOptions {
  if (version === 6) return { ...IPV6, ...ipv6OptionsOf(twist) }
  if (twist === 'ttl') return { ttl: 9 }
  if (twist === 'tos') return { tos: 0x10 }
  if (twist === 'ip-options') return { options: Uint8Array.from([1, 1, 1, 0]) }
  if (twist === 'no-df') return { fragmentWord: 0 }
  if (twist === 'fragment') return { fragmentWord: ipv4.MORE_FRAGMENTS }
  return twist === 'later-fragment' ? { fragmentWord: 20 } : {}
}

/** The same twists where IPv6 has them; in place of DF, the flow label. */
function ipv6OptionsOf(twist: Twist): IpOptions {
  const fragment = (word: number): IpOptions => ({ extensions: [[FRAGMENT, Uint8Array.from([0, word, 0, 0, 0, 7])]] })
  if (twist === 'ttl') return { ttl: 9 }
  if (twist === 'tos') return { tos: 0x10 }
  if (twist === 'ip-options') return { extensions: [[DESTINATION_OPTIONS, Uint8Array.from([1, 4, 0, 0, 0, 0])]] }
  if (twist === 'no-df') return { flowLabel: 9 }
  if (twist === 'fragment') return fragment(1)
  return twist === 'later-fragment' ? fragment(8) : {}
}

/**
 * Packets of a batch. Identification and sequence count up by flow, so that joined packets split into the very same.
 */
function build(events: readonly Event[]): Uint8Array[] {
  const sequencesOf = { 4: [2 ** 32 - 250, 1000, 1000], 6: [2 ** 32 - 250, 1000, 1000] }
  const identifications = { tcp: [0xfffe, 5, 5], udp: [0xfffe, 5, 5], icmp: [5, 5, 5] }
  return events.map(({ version, flow, kind, size, twist, checksum }) => {
    const sequences = sequencesOf[version]
    const identification = identifications[kind][flow]!
    // Those of IPv4 alone must follow each other; IPv6 has none.
    if (version === 4) identifications[kind][flow] = (identification + 1) & 0xffff
    const payload = countingBytes(size, flow * 31 + identification)
    const base = { ...ipOptionsOf(version, twist), identification, payload }
    if (kind === 'icmp') return icmpEcho(base)
    if (kind === 'udp') return udpPacket({ ...base, sourcePort: 1000 + flow, checksum })
    const sequence = sequences[flow]! + (twist === 'gap' ? 3 : 0)
    sequences[flow] = (sequence + size) >>> 0
    return tcpPacket({
      ...base,
      sourcePort: 1000 + flow,
      sequence: sequence >>> 0,
      flags: tcp.FLAG_ACK | (FLAGS[twist] ?? 0),
      window: twist === 'window' ? 77 : 500,
      tcpOptions: twist === 'options' ? countingBytes(12) : new Uint8Array(0),
      checksum: checksum === 'unused' ? 'good' : checksum,
    })
  })
}

/** What keeps its order: a flow of a family. An IPv6 fragment is looked into where its transport header starts. */
function flowOf(packet: Uint8Array): string {
  const { version, protocol, ipBytes } = transportOf(packet)
  if (protocol === ipv4.PROTOCOL_ICMP || protocol === ipv6.PROTOCOL_ICMPV6) return `${version} icmp`
  const view = viewOf(packet)
  const isFragment = protocol === FRAGMENT
  const carried = isFragment ? view.getUint8(ipBytes) : protocol
  if (carried === ipv6.PROTOCOL_ICMPV6) return `${version} icmp`
  return `${version} ${carried} ${tcp.getSourcePort(view, ipBytes + (isFragment ? ipv6Fragment.HEADER_LEN : 0))}`
}

function byFlow(packets: readonly Uint8Array[]): Record<string, string[]> {
  const flows: Record<string, string[]> = {}
  for (const packet of packets) {
    flows[flowOf(packet)] ??= []
    flows[flowOf(packet)]!.push(Buffer.from(packet).toString('hex'))
  }
  return flows
}

/** A checksum left open arrives complete, since whoever reads the TUN completes it. Fragments are not touched. */
function asRead({ checksum, twist, kind }: Event, packet: Uint8Array): Uint8Array {
  if (twist === 'fragment' || twist === 'later-fragment' || kind === 'icmp') return packet
  return checksum === 'partial' ? withChecksums(packet) : packet
}

const plainHeader = { flags: 0, gsoType: 0, headerLength: 0, gsoSize: 0, checksumStart: 0, checksumOffset: 0 }

function checkWrites({ written }: Arrival, expected: readonly Uint8Array[]): void {
  expect(byFlow(written.flatMap(resplit))).toEqual(byFlow(expected))
  for (const { vnet, packet } of written) {
    expect(transportOf(packet).length).toBe(packet.length)
    if (vnet.gsoType === 0 && vnet.flags === 0) expect(vnet).toEqual(plainHeader)
    if (vnet.gsoType !== 0) expect(packet.length).toBeGreaterThan(vnet.headerLength + vnet.gsoSize)
  }
}

describe('any batch', () => {
  it('comes out as it went in: byte for byte, and in order within each flow', () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 16 }), (events) => {
        const packets = build(events)
        checkWrites(
          receivePackets(packets),
          packets.map((packet, index) => asRead(events[index]!, packet)),
        )
      }),
      { numRuns: 300 },
    )
  })

  it('with merging of UDP off keeps every datagram whole', () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 16 }), (events) => {
        const packets = build(events.map((one) => ({ ...one, kind: 'udp', checksum: 'good' })))
        const { written } = receivePackets(packets, { settings: { mergeUdp: false } })
        expect(written.map(({ packet }) => packet)).toEqual(packets)
        for (const { vnet } of written) expect(vnet).toEqual(plainHeader)
      }),
      { numRuns: 50 },
    )
  })

  it('really joins: plain segments of three interleaved flows leave in three writes', () => {
    const events = Array.from({ length: 15 }, (_, n): Event => {
      return { version: 4, flow: n % 3, kind: 'tcp', size: 100, twist: 'none', checksum: 'good' }
    })
    const packets = build(events)
    const arrival = receivePackets(packets)
    expect(arrival.written).toHaveLength(3)
    checkWrites(arrival, packets)
  })
})
