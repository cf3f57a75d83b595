// Merging of random batches: re-splitting what was written gives back what arrived, byte for byte and in order.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import { type Arrival, receivePackets } from '../../support/arrival.ts'
import {
  type ChecksumState,
  countingBytes,
  type IpOptions,
  icmpEcho,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'

/** What may happen at one place of a batch: the next packet of a flow, and how it differs from a plain one. */
interface Event {
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
  flow: fc.nat(2),
  kind: fc.constantFrom('tcp', 'tcp', 'udp', 'udp', 'icmp'),
  size: fc.constantFrom(0, 1, 99, 100, 100, 100, 100, 100, 101),
  twist: fc.constantFrom(...TWISTS),
  checksum: fc.constantFrom<ChecksumState[]>('good', 'good', 'good', 'good', 'good', 'bad', 'unused', 'partial'),
})

function ipOptionsOf(twist: Twist): IpOptions {
  if (twist === 'ttl') return { ttl: 9 }
  if (twist === 'tos') return { tos: 0x10 }
  if (twist === 'ip-options') return { options: Uint8Array.from([1, 1, 1, 0]) }
  if (twist === 'no-df') return { fragmentWord: 0 }
  if (twist === 'fragment') return { fragmentWord: ipv4.MORE_FRAGMENTS }
  return twist === 'later-fragment' ? { fragmentWord: 20 } : {}
}

/** Packets of a batch. Identification and sequence count up by flow, so that joined packets split into the very same. */
function build(events: readonly Event[]): Uint8Array[] {
  const sequences = [2 ** 32 - 250, 1000, 1000]
  const identifications = { tcp: [0xfffe, 5, 5], udp: [0xfffe, 5, 5], icmp: [5, 5, 5] }
  return events.map(({ flow, kind, size, twist, checksum }) => {
    const identification = identifications[kind][flow]!
    identifications[kind][flow] = (identification + 1) & 0xffff
    const payload = countingBytes(size, flow * 31 + identification)
    const base = { ...ipOptionsOf(twist), identification, payload }
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

/** What keeps its order: a flow, or for a fragment and for protocols without ports, all between two hosts. */
function flowOf(packet: Uint8Array): string {
  const view = viewOf(packet)
  const protocol = ipv4.getProtocol(view, 0)
  const ipBytes = ipv4.getHeaderBytes(view, 0)
  return protocol === ipv4.PROTOCOL_ICMP ? 'icmp' : `${protocol} ${tcp.getSourcePort(view, ipBytes)}`
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
    const header = ipv4.parse(packet, 0, packet.length)
    expect(header).toMatchObject({ totalLength: packet.length })
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
      return { flow: n % 3, kind: 'tcp', size: 100, twist: 'none', checksum: 'good' }
    })
    const packets = build(events)
    const arrival = receivePackets(packets)
    expect(arrival.written).toHaveLength(3)
    checkWrites(arrival, packets)
  })
})
