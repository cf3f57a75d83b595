// Random, cut off, damaged and hostile bytes of both families on both sides of an engine, in both encapsulations:
// nothing throws, nothing reaches the TUN that is not a whole packet, nothing reaches the wire that is not a whole
// frame, and after every run the books balance.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { finish, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import { DESTINATION_OPTIONS, FRAGMENT } from '../../../dataplane/wire/ipv6-extension.ts'
import { complaintAboutPacket, complaintAboutSent, complaintAboutWrite } from '../../support/complaints.ts'
import { NODE_A, NODE_B, recordSteps } from '../../support/engine-pair.ts'
import {
  bytesOfIpv6,
  countingBytes,
  type Extension,
  fromTun,
  IPV6,
  icmpEcho,
  ip,
  ip6,
  superFromTun,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { resplit } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'
import { ENCAP_BYTES, vxlanFrame } from '../../support/vxlan-frame.ts'

const payload = countingBytes(300)
const padding: Extension = [DESTINATION_OPTIONS, Uint8Array.from([1, 4, 0, 0, 0, 0])]
const BASES: readonly Uint8Array[] = [
  icmpEcho(),
  udpPacket({ payload }),
  tcpPacket({ payload, tcpOptions: countingBytes(12) }),
  tcpPacket({ payload: countingBytes(3000), checksum: 'partial' }),
  udpPacket({ payload: countingBytes(3000), checksum: 'partial' }),
  udpPacket({ payload, checksum: 'unused', options: countingBytes(8) }),
  udpPacket({ payload, fragmentWord: ipv4.MORE_FRAGMENTS }),
  tcpPacket({ payload, fragmentWord: 40 }),
  icmpEcho(IPV6),
  udpPacket({ ...IPV6, payload }),
  tcpPacket({ ...IPV6, payload, tcpOptions: countingBytes(12) }),
  tcpPacket({ ...IPV6, payload: countingBytes(3000), checksum: 'partial' }),
  udpPacket({ ...IPV6, payload: countingBytes(3000), checksum: 'partial' }),
  tcpPacket({ ...IPV6, payload: countingBytes(900), checksum: 'partial', extensions: [padding, padding] }),
  udpPacket({ ttl: 1 }),
  udpPacket({ ...IPV6, ttl: 1 }),
  udpPacket({ destination: '224.0.0.22' }),
  udpPacket({ ...IPV6, destination: 'ff02::2' }),
  udpPacket({ ...IPV6, payload, extensions: [[FRAGMENT, Uint8Array.from([0, 1, 0, 0, 0, 7])]] }),
]
/** Some of them that are good as they are, so that there is something to join. */
const GOOD = [1, 1, 2, 9, 9, 10].map((base) => BASES[base]!)
/** Super-packets. */
const LARGE = [3, 4, 11, 12, 13]

/** Bytes written over others: anywhere in the headers, where it hurts. */
const damage = fc.array(fc.tuple(fc.nat(90), fc.nat(255)), { maxLength: 4 })

interface Hostile {
  readonly base: number
  readonly damage: readonly (readonly [number, number])[]
  /** How much of the packet is left; beyond its end: junk behind it. */
  readonly length: number
  /** Whether the IP header checksum is made right again, so that the damage is seen deeper inside. */
  readonly healed: boolean
}

const hostile: fc.Arbitrary<Hostile> = fc.record({
  base: fc.nat(BASES.length - 1),
  damage,
  length: fc.oneof(fc.constant(Number.POSITIVE_INFINITY), fc.nat(120), fc.nat(3200)),
  healed: fc.boolean(),
})

function innerBytes({ base, damage: hits, length, healed }: Hostile): Uint8Array {
  const whole = BASES[base]!
  const bytes = new Uint8Array(Number.isFinite(length) ? length : whole.length)
  bytes.set(whole.slice(0, bytes.length))
  for (const [at, value] of hits) if (at < bytes.length) bytes[at] = value
  const headerBytes = ((bytes[0] ?? 0) % 16) * 4
  if (healed && headerBytes >= 20 && headerBytes <= bytes.length) {
    ipv4.setChecksum(viewOf(bytes), 0, 0)
    ipv4.setChecksum(viewOf(bytes), 0, finish(sumWords(bytes, 0, headerBytes)))
  }
  return bytes
}

const balanced = { packets: 0, bytes: 0 }
const options = { numRuns: 500 }

describe.each(['vxlan', 'udp'] as const)('from the underlay, %s', (encapsulation) => {
  const { a } = tappedPair({ encapsulation })
  const encapBytes = encapsulation === 'vxlan' ? ENCAP_BYTES : 0
  const header = fc.record({
    hits: fc.array(fc.tuple(fc.nat(ENCAP_BYTES - 1), fc.nat(255)), { maxLength: 1 }),
    padding: fc.constantFrom(0, 0, 0, 1, 40),
  })
  const good = { hits: [], padding: 0 }
  const facts = fc.record({
    tos: fc.nat(255),
    segmentSize: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 4000 })),
    from: fc.constantFrom(NODE_B.underlay, NODE_B.underlay, NODE_B.underlay, '192.0.2.66'),
  })
  /** To node A, from B. */
  const frameOf = (inner: Uint8Array, { hits, padding }: { hits: (readonly [number, number])[]; padding: number }) => {
    const macs = { destinationMac: NODE_A.mac, sourceMac: NODE_B.mac }
    const frame = vxlanFrame(inner, { ...macs, padding }).slice(ENCAP_BYTES - encapBytes)
    const isIpv6 = inner.length > 0 && ipv4.getVersion(viewOf(inner), 0) === 6
    if (isIpv6 && inner.length >= 40) {
      frame.set([...bytesOfIpv6(ip6(IPV6.destination)), ...bytesOfIpv6(ip6(IPV6.source))], encapBytes + 8)
    } else if (inner.length >= 20) frame.set([10, 244, 2, 3, 10, 244, 1, 2], encapBytes + 12)
    for (const [at, value] of hits) if (at < encapBytes) frame[at] = value
    return frame
  }
  const arrival = fc.oneof(
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }) },
    // Good ones in between.
    { weight: 4, arbitrary: fc.constantFrom(...GOOD).map((inner) => frameOf(inner, good)) },
    { weight: 6, arbitrary: fc.tuple(hostile, header).map(([inner, outer]) => frameOf(innerBytes(inner), outer)) },
  )

  function take(datagrams: readonly [Uint8Array, { tos: number; segmentSize: number; from: string }][]): void {
    for (const [datagram, { from, ...rest }] of datagrams) a.socket.deliver(datagram, ip(from), rest)
    for (const written of a.receive()) expect(complaintAboutWrite(written)).toBeNull()
    expect(a.counters.imbalance()).toEqual(balanced)
  }

  it('nothing but whole packets is written, and everything is counted', () => {
    fc.assert(fc.property(fc.array(fc.tuple(arrival, facts), { maxLength: 12 }), take), options)
  })

  it('the same while somebody looks', () => {
    const steps = recordSteps(a)
    fc.assert(fc.property(fc.array(fc.tuple(arrival, facts), { maxLength: 12 }), take), { numRuns: 150 })
    expect(steps.length).toBeGreaterThan(300)
    a.engine.setSink(null)
  })

  it('the same when the TUN takes nothing', () => {
    a.writeErrno = 5
    fc.assert(fc.property(fc.array(fc.tuple(arrival, facts), { maxLength: 12 }), take), { numRuns: 150 })
    a.writeErrno = 0
  })

  it('some of it was good: the test reaches all the way through', () => {
    expect(a.counters.get('inbound.packets.passed')).toBeGreaterThan(100)
    expect(a.counters.get('inbound.super-packets')).toBeGreaterThan(0)
    for (const reason of [
      'truncated',
      'bad-checksum',
      'unknown-peer',
      'ecn-illegal',
      ...(encapsulation === 'vxlan' ? (['vxlan-short'] as const) : (['ttl-expired', 'not-ip'] as const)),
    ] as const) {
      expect(a.counters.dropped('inbound', reason).packets, reason).toBeGreaterThan(0)
    }
  })
})

describe.each(['vxlan', 'udp'] as const)('from the TUN, %s', (encapsulation) => {
  const { a, b, tap } = tappedPair({ encapsulation })
  const vnet = fc.record({
    flags: fc.constantFrom(0, 0, 1, 2, 255),
    gsoType: fc.constantFrom(0, 0, 1, 1, 5, 5, 3, 4, 4, 0x81, 0x84, 0x7f),
    headerLength: fc.nat(65535),
    gsoSize: fc.oneof(fc.constantFrom(0, 1, 100, 1400), fc.nat(65535)),
    checksumStart: fc.constantFrom(0, 20, 20, 28, 40, 40, 44, 56, 65535),
    checksumOffset: fc.constantFrom(6, 16, 0, 100, 65535),
  })
  const packet = fc.oneof(
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }) },
    { weight: 5, arbitrary: fc.tuple(hostile, vnet).map(([inner, header]) => fromTun(innerBytes(inner), header)) },
    {
      weight: 2,
      arbitrary: fc
        .tuple(fc.constantFrom(...LARGE), fc.integer({ min: 100, max: 1400 }))
        .map(([base, gsoSize]) => superFromTun(BASES[base]!.slice(), gsoSize)),
    },
  )

  function send(packets: readonly Uint8Array[]): void {
    a.sendFromTun(...packets)
    for (const frame of tap.takeFrames()) expect(complaintAboutSent(frame, encapsulation)).toBeNull()
    for (const answer of a.takeWritten()) expect(complaintAboutWrite(answer)).toBeNull()
    expect(a.counters.imbalance()).toEqual(balanced)
    for (const written of b.receive()) {
      expect(complaintAboutWrite(written)).toBeNull()
      for (const piece of resplit(written)) expect(complaintAboutPacket(piece)).toBeNull()
    }
    expect(b.counters.imbalance()).toEqual(balanced)
  }

  it('nothing but whole frames is sent, and everything is counted', () => {
    fc.assert(fc.property(fc.array(packet, { maxLength: 8 }), send), options)
  })

  it('the same while somebody looks', () => {
    const steps = recordSteps(a)
    fc.assert(fc.property(fc.array(packet, { maxLength: 8 }), send), { numRuns: 150 })
    expect(steps.length).toBeGreaterThan(300)
    a.engine.setSink(null)
  })

  it('the same when the underlay refuses some of it', () => {
    tap.refuse = ({ frames }) => (frames.length % 2 === 0 ? 101 : 0)
    fc.assert(fc.property(fc.array(packet, { maxLength: 8 }), send), { numRuns: 150 })
    tap.refuse = () => 0
  })

  it('some of it was good: the test reaches all the way through', () => {
    expect(a.counters.get('outbound.packets.passed')).toBeGreaterThan(100)
    expect(a.counters.get('outbound.super-packets')).toBeGreaterThan(0)
    for (const reason of [
      'truncated',
      'not-ip',
      'vnet-inconsistent',
      'no-route',
      'too-big',
      'link-local-or-multicast',
    ] as const) {
      expect(a.counters.dropped('outbound', reason).packets, reason).toBeGreaterThan(0)
    }
  })
})
