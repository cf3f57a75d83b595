// IPv6 fixed header: property suite, golden bytes, the straddling traffic class, and each way to refuse one.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

const WORDS = [0, 1, 2, 3]
const wordOf = (address: bigint, index: number) => Number((address >> BigInt(96 - 32 * index)) & 0xffff_ffffn)
const viewOf = (buf: Uint8Array) => new DataView(buf.buffer)

checkWireFormat<ipv6.Ipv6Header>('IPv6', {
  fields: ipv6.FIELDS,
  headerLength: ipv6.HEADER_LEN,
  parse: ipv6.parse,
  emit: ipv6.emit,
  describe: ipv6.describe,
  valid: fieldValues<ipv6.Ipv6Header>(ipv6.FIELDS, {
    version: fc.constant(6),
    payloadLength: fc.integer({ min: 0, max: 1500 }),
  }),
  tail: (header) => header.payloadLength,
  golden: [
    {
      header: {
        version: 6,
        dscp: 46,
        ecn: 1,
        flowLabel: 0x8077b,
        payloadLength: 64,
        nextHeader: ipv6.PROTOCOL_ICMPV6,
        hopLimit: 255,
        source: 0xfd00_0010_0244_0001n << 64n,
        destination: (0xfe80n << 112n) | 1n,
      },
      hex: '6b 98 07 7b 00 40 3a ff fd00 0010 0244 0001 0000 0000 0000 0000 fe80 0000 0000 0000 0000 0000 0000 0001',
    },
  ],
  refused: {
    truncated: `6000 0000 0001 3b40 ${'00'.repeat(32)}`,
    'bad-version': `4000 0000 0000 3b40 ${'00'.repeat(32)}`,
  },
  getters: [
    { name: 'version', get: ipv6.getVersion, of: (header) => header.version },
    { name: 'traffic class', get: ipv6.getTrafficClass, of: (header) => header.dscp * 4 + header.ecn },
    { name: 'ECN', get: ipv6.getEcn, of: (header) => header.ecn },
    { name: 'flow label', get: ipv6.getFlowLabel, of: (header) => header.flowLabel },
    { name: 'payload length', get: ipv6.getPayloadLength, of: (header) => header.payloadLength },
    { name: 'next header', get: ipv6.getNextHeader, of: (header) => header.nextHeader },
    { name: 'hop limit', get: ipv6.getHopLimit, of: (header) => header.hopLimit },
    ...WORDS.flatMap((index) => [
      {
        name: `source word ${index}`,
        get: (view: DataView, at: number) => ipv6.getSourceWord(view, at, index),
        of: (header: ipv6.Ipv6Header) => wordOf(header.source, index),
      },
      {
        name: `destination word ${index}`,
        get: (view: DataView, at: number) => ipv6.getDestinationWord(view, at, index),
        of: (header: ipv6.Ipv6Header) => wordOf(header.destination, index),
      },
    ]),
  ],
  setters: [
    { name: 'the traffic class', set: ipv6.setTrafficClass, get: ipv6.getTrafficClass, bits: 8, bytes: 2 },
    { name: 'the payload length', set: ipv6.setPayloadLength, get: ipv6.getPayloadLength, bits: 16, bytes: 2 },
    { name: 'the hop limit', set: ipv6.setHopLimit, get: ipv6.getHopLimit, bits: 8, bytes: 1 },
  ],
})

describe('an IPv6 header', () => {
  const good = `6000 0000 0000 3b40 ${'00'.repeat(15)}01 ${'00'.repeat(15)}02`
  const problemsOf = (buf: Uint8Array, partial = false) =>
    ipv6.describe(buf, 0, buf.length, partial).flatMap(({ name, problem }) => (problem === undefined ? [] : [name]))

  it('keeps version and flow label when the traffic class changes, which lies across two bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 40, maxLength: 40 }), fc.nat(255), (buf, trafficClass) => {
        const before = [ipv6.getVersion(viewOf(buf), 0), ipv6.getFlowLabel(viewOf(buf), 0)]
        ipv6.setTrafficClass(viewOf(buf), 0, trafficClass)
        expect([ipv6.getVersion(viewOf(buf), 0), ipv6.getFlowLabel(viewOf(buf), 0)]).toEqual(before)
      }),
    )
  })

  it('gives whole addresses as bigints, where parse does', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 36, maxLength: 36 }), (rest) => {
        const buf = Uint8Array.of(0x60, 0, 0, 0, ...rest)
        ipv6.setPayloadLength(viewOf(buf), 0, 0)
        expect(ipv6.parse(buf, 0, buf.length)).toMatchObject({
          source: ipv6.getSource(viewOf(buf), 0),
          destination: ipv6.getDestination(viewOf(buf), 0),
        })
      }),
    )
  })

  it('shows addresses as people write them', () => {
    const buf = bytesFrom(good)
    const notes = ipv6.describe(buf, 0, buf.length).filter((note) => note.length === 16)
    expect(notes.map(({ value }) => value)).toEqual(['::1', '::2'])
  })

  it('with padding behind the packet is accepted: short Ethernet frames are filled up', () => {
    const buf = new Uint8Array(46)
    buf.set(bytesFrom(good))
    expect(ipv6.parse(buf, 0, buf.length)).toMatchObject({ payloadLength: 0, hopLimit: 64 })
    expect(problemsOf(buf)).toEqual([])
  })

  it('of a packet that ends elsewhere is no fault in a quote', () => {
    const buf = bytesFrom(good)
    ipv6.setPayloadLength(viewOf(buf), 0, 100)
    expect(problemsOf(buf)).toEqual(['payloadLength'])
    expect(problemsOf(buf, true)).toEqual([])
  })
})
