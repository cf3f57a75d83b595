// Extension headers of IPv6: property suite of their common shape, and the walk through them to what the packet
// carries.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import { HEADER_LEN as IPV6_LEN } from '../../../dataplane/wire/ipv6.ts'
import * as extension from '../../../dataplane/wire/ipv6-extension.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, expectTiled } from '../../support/wire-properties.ts'

/** 6 bytes, or 6 and a multiple of 8, of one-byte padding. */
const headers = fc.tuple(fc.nat(255), fc.integer({ min: 0, max: 5 })).map(([nextHeader, length]) => ({
  nextHeader,
  length,
  options: new Uint8Array(6 + 8 * length),
}))

checkWireFormat<extension.Ipv6ExtensionHeader>('An IPv6 extension header', {
  fields: extension.FIELDS,
  headerLength: extension.HEADER_LEN,
  parse: extension.parse,
  emit: extension.emit,
  describe: extension.describe,
  valid: headers,
  tail: () => 0,
  golden: [
    { header: { nextHeader: 17, length: 0, options: bytesFrom('01 04 00 00 00 00') }, hex: '11 00 01 04 00 00 00 00' },
    {
      header: { nextHeader: 58, length: 1, options: bytesFrom('05 02 00 00 01 08 00 00 00 00 00 00 00 00') },
      hex: '3a 01 05 02 00 00 01 08 00 00 00 00 00 00 00 00',
    },
  ],
  refused: { truncated: '11 01 01 04 00 00 00 00 00 00 00 00 00 00 00' },
  getters: [{ name: 'next header', get: extension.getNext, of: (header) => header.nextHeader }],
  setters: [],
})

/** A header of that kind and size, and `next` behind it. AH counts in words, the fragment header does not count. */
function headerOf(kind: number, units: number, next: number): Uint8Array {
  const bytes = kind === extension.FRAGMENT ? 8 : 8 + units * (kind === extension.AUTHENTICATION ? 4 : 8)
  const header = new Uint8Array(bytes)
  // The fragment header has a reserved byte where others have their length: it counts for nothing.
  header.set([next, kind === extension.FRAGMENT ? 0xff : units])
  return header
}

/** A packet with those headers, `protocol`, and `payloadBytes` behind them. */
function packetOf(kinds: readonly (readonly [kind: number, units: number])[], protocol: number, payloadBytes = 0) {
  const following = [...kinds.slice(1).map(([kind]) => kind), protocol]
  const parts = kinds.map(([kind, units], index) => headerOf(kind, units, following[index] ?? protocol))
  const fixed = new Uint8Array(IPV6_LEN)
  fixed.set([0x60, 0, 0, 0, 0, 0, kinds[0]?.[0] ?? protocol])
  return Uint8Array.from(Buffer.concat([fixed, ...parts, new Uint8Array(payloadBytes)]))
}

/** What the walk finds in a packet that lies behind nine bytes and before others. */
function walked(packet: Uint8Array): { protocol: number; offset: number } | number {
  const buf = new Uint8Array(9 + packet.length + 64).fill(0xa5)
  buf.set(packet, 9)
  const found = extension.walkExtensions(new DataView(buf.buffer), 9, 9 + packet.length)
  if (found < 0) return found
  return { protocol: extension.walkedProtocol(found), offset: extension.walkedOffset(found) }
}

const { HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS, NO_NEXT_HEADER } = extension
const passable = fc.constantFrom(HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS)
const chains = fc.array(fc.tuple(passable, fc.integer({ min: 0, max: 255 })), { maxLength: 8 })
const transports = fc.nat(255).filter((protocol) => !extension.isExtension(protocol))

describe('the walk through IPv6 extension headers', () => {
  it('finds the transport behind up to eight headers of any size, known to us or not', () => {
    fc.assert(
      fc.property(chains, transports, fc.nat(40), (kinds, protocol, payloadBytes) => {
        const packet = packetOf(kinds, protocol, payloadBytes)
        expect(walked(packet)).toEqual({ protocol, offset: packet.length - payloadBytes })
      }),
    )
  })

  it('stops at a fragment header and gives its place, whatever lies behind it', () => {
    fc.assert(
      fc.property(
        chains.map((kinds) => kinds.slice(0, 7)),
        fc.nat(255),
        fc.nat(40),
        (kinds, protocol, payloadBytes) => {
          const packet = packetOf([...kinds, [FRAGMENT, 0]], protocol, payloadBytes)
          expect(walked(packet)).toEqual({ protocol: FRAGMENT, offset: packet.length - payloadBytes - 8 })
        },
      ),
    )
  })

  it('says truncated wherever the headers are cut, and never reads behind the end', () => {
    const packet = packetOf(
      [
        [HOP_BY_HOP, 1],
        [AUTHENTICATION, 4],
        [FRAGMENT, 0],
      ],
      ipv4.PROTOCOL_UDP,
    )
    for (let length = 0; length < packet.length; length++) {
      expect(walked(packet.subarray(0, length)), `${length} bytes`).toBe(extension.WALK_TRUNCATED)
      const exact = packet.slice(0, length)
      expect(extension.walkExtensions(new DataView(exact.buffer), 0, length)).toBe(extension.WALK_TRUNCATED)
    }
    expect(walked(packet)).toEqual({ protocol: FRAGMENT, offset: packet.length - 8 })
  })

  it('gives up at the ninth header', () => {
    const padding = (count: number) => Array.from({ length: count }, () => [DESTINATION_OPTIONS, 0] as const)
    expect(walked(packetOf(padding(8), ipv4.PROTOCOL_TCP))).toEqual({ protocol: ipv4.PROTOCOL_TCP, offset: 40 + 64 })
    expect(walked(packetOf(padding(9), ipv4.PROTOCOL_TCP))).toBe(extension.WALK_TOO_MANY)
  })

  it('finds that nothing follows, though bytes do', () => {
    expect(walked(packetOf([[DESTINATION_OPTIONS, 0]], NO_NEXT_HEADER, 20))).toEqual({
      protocol: NO_NEXT_HEADER,
      offset: 48,
    })
  })

  it('takes random bytes without an exception and ends inside them', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), passable, (bytes, first) => {
        if (bytes.length > 6) bytes[6] = first
        const found = walked(bytes)
        if (typeof found === 'number') expect([extension.WALK_TRUNCATED, extension.WALK_TOO_MANY]).toContain(found)
        else expect(found.offset).toBeLessThanOrEqual(bytes.length)
      }),
      { numRuns: 1000 },
    )
  })
})

describe('an extension header in a description', () => {
  const notesOf = (hex: string, kind: number) => {
    const buf = bytesFrom(hex)
    return extension.describe(buf, 0, buf.length, kind)
  }
  const shown = (hex: string, kind: number) => notesOf(hex, kind).map(({ name, value }) => `${name} ${value}`)

  it('has its options by name', () => {
    expect(shown('3a 00 05 02 00 00 01 00', HOP_BY_HOP)).toEqual([
      'nextHeader 58',
      'length 0',
      'routerAlert 0',
      'padN ',
    ])
    expect(shown('3a 00 c2 04 00 01 00 00', HOP_BY_HOP)).toContain('jumbo 65536')
    expect(shown('3a 00 00 3e 01 aa 00 00', DESTINATION_OPTIONS).slice(2)).toEqual([
      'pad1 ',
      'option 62 aa',
      'pad1 ',
      'pad1 ',
    ])
  })

  it('has its routing type, or its security parameters, and the rest as bytes', () => {
    expect(shown('06 00 04 02 01 02 03 04', ROUTING)).toEqual([
      'nextHeader 6',
      'length 0',
      'routingType 4',
      'segmentsLeft 2',
      'data 01020304',
    ])
    expect(shown('06 02 0000 00000abc 00000007 aabbccdd', AUTHENTICATION).slice(2)).toEqual([
      'reserved 0x0000',
      'securityParameters 0x00000abc',
      'sequence 7',
      'data aabbccdd',
    ])
  })

  it('that reaches beyond the packet, or whose option does, has that problem', () => {
    const problems = (hex: string, kind: number) => notesOf(hex, kind).flatMap(({ problem }) => problem ?? [])
    for (const kind of [HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS]) {
      expect(problems('06 09 00 00 00 00 00 00 00 00 00 00', kind)).toEqual(['the header reaches beyond the packet'])
    }
    expect(problems('06 00 01 05 00 00 00 00', DESTINATION_OPTIONS)).toHaveLength(1)
  })

  it('has fields without gap from its first byte on', () => {
    expectTiled(extension.ROUTING_FIELDS, 4)
    expectTiled(extension.AUTHENTICATION_FIELDS, 12)
    expect(extension.getSegmentsLeft(new DataView(bytesFrom('06 00 04 02').buffer), 0)).toBe(2)
  })
})
