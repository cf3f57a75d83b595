// ICMPv6: property suite, golden bytes, what the types mean, and the checksum that needs the addresses.
import { describe, expect, it } from 'vitest'
import * as icmpv6 from '../../../dataplane/wire/icmpv6.ts'
import { finish, fold, sumPseudoHeader6, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import { PROTOCOL_ICMPV6 } from '../../../dataplane/wire/ipv6.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, expectTiled, fieldValues } from '../../support/wire-properties.ts'

checkWireFormat<icmpv6.Icmpv6Header>('ICMPv6', {
  fields: icmpv6.FIELDS,
  headerLength: icmpv6.HEADER_LEN,
  parse: icmpv6.parse,
  emit: icmpv6.emit,
  describe: icmpv6.describe,
  valid: fieldValues<icmpv6.Icmpv6Header>(icmpv6.FIELDS),
  tail: ({ type }) => (icmpv6.isNeighbour(type) ? icmpv6.NEIGHBOUR_LEN - icmpv6.HEADER_LEN : 0),
  golden: [
    { header: { type: 128, code: 0, checksum: 0xf561, rest: 0x27000001 }, hex: '80 00 f5 61 27 00 00 01' },
    { header: { type: 2, code: 0, checksum: 0xbeef, rest: 1430 }, hex: '02 00 be ef 00 00 05 96' },
  ],
  refused: { truncated: '80 00 f5 61 27 00 00' },
  getters: [
    { name: 'type', get: icmpv6.getType, of: (header) => header.type },
    { name: 'code', get: icmpv6.getCode, of: (header) => header.code },
    { name: 'checksum', get: icmpv6.getChecksum, of: (header) => header.checksum },
    { name: 'identifier', get: icmpv6.getIdentifier, of: (header) => Math.floor(header.rest / 65536) },
    { name: 'sequence', get: icmpv6.getSequence, of: (header) => header.rest % 65536 },
    { name: 'MTU', get: icmpv6.getMtu, of: (header) => header.rest },
  ],
  setters: [
    { name: 'the checksum', set: icmpv6.setChecksum, get: icmpv6.getChecksum, bits: 16, bytes: 2 },
    { name: 'the MTU', set: icmpv6.setMtu, get: icmpv6.getMtu, bits: 32, bytes: 4 },
  ],
})

describe('the other tables of ICMPv6', () => {
  it.each([
    ['echo', icmpv6.ECHO_FIELDS, icmpv6.HEADER_LEN],
    ['too big', icmpv6.TOO_BIG_FIELDS, icmpv6.HEADER_LEN],
    ['neighbour discovery', icmpv6.NEIGHBOUR_FIELDS, icmpv6.NEIGHBOUR_LEN],
  ])('tile the header: %s', (_, fields, length) => {
    expectTiled(fields, length)
  })
})

describe('an ICMPv6 message', () => {
  const values = (hex: string) => {
    const buf = bytesFrom(hex)
    return Object.fromEntries(icmpv6.describe(buf, 0, buf.length).map((note) => [note.name, note.value]))
  }

  it('is described by what its second half means for its type', () => {
    expect(values('81 00 00 00 00 07 00 06')).toMatchObject({ identifier: '7', sequence: '6' })
    expect(values('02 00 00 00 00 01 00 00')).toMatchObject({ mtu: '65536' })
    expect(values('01 00 00 00 00 00 00 00')).toMatchObject({ rest: '0x00000000' })
    expect(values(`88 00 00 00 e0 00 00 00 fe80 0000 ${'00'.repeat(11)}05`)).toMatchObject({
      flags: '0xe0000000',
      target: 'fe80::5',
    })
  })

  it('is written whole by write, with a zero checksum', () => {
    const buf = new Uint8Array(icmpv6.HEADER_LEN).fill(0xa5)
    icmpv6.write(new DataView(buf.buffer), 0, icmpv6.TYPE_UNREACHABLE, icmpv6.CODE_NO_ROUTE, 0xdeadbeef)
    expect(buf).toEqual(bytesFrom('01 00 00 00 de ad be ef'))
  })

  it('is an error exactly if its type is below 128', () => {
    const all = Array.from({ length: 256 }, (_, type) => type)
    expect(all.filter(icmpv6.isError)).toEqual(all.slice(0, 128))
  })

  it('tells of a neighbour exactly if it asks for one or answers', () => {
    const all = Array.from({ length: 256 }, (_, type) => type)
    expect(all.filter(icmpv6.isNeighbour)).toEqual([135, 136])
  })
})

describe('the ICMPv6 checksum in a description', () => {
  const carriage = { source: 0xfd00n << 112n, destination: (0xfd00n << 112n) | 2n, partial: false, pending: false }
  const message = bytesFrom('80 00 00 00 00 07 00 06 aa bb cc')
  const pseudo = sumPseudoHeader6(carriage.source, carriage.destination, PROTOCOL_ICMPV6, message.length)
  const judged = (checksum: number, how = {}) => {
    const buf = message.slice()
    icmpv6.setChecksum(new DataView(buf.buffer), 0, checksum)
    return icmpv6.describe(buf, 0, buf.length, { ...carriage, ...how }).flatMap(({ problem }) => problem ?? [])
  }

  it('covers the addresses of the packet', () => {
    const right = finish(sumWords(message, 0, message.length, pseudo))
    expect(judged(right)).toEqual([])
    expect(judged(right, { destination: 1n })).toEqual([expect.stringMatching(/^wrong, should be 0x/)])
    expect(judged(finish(sumWords(message, 0, message.length)))).toHaveLength(1)
  })

  it('is not judged in a part of a message, nor where it is still to be completed', () => {
    expect(judged(0xbeef, { partial: true })).toEqual([])
    expect(judged(fold(pseudo), { pending: true })).toEqual([])
    expect(judged(fold(pseudo))).toEqual([expect.stringMatching(/only the pseudo-header sum/)])
  })
})
