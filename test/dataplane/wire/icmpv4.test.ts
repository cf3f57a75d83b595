// ICMP header: property suite, golden bytes, the shapes of its second half, and which messages are errors.
import { describe, expect, it } from 'vitest'
import * as icmpv4 from '../../../dataplane/wire/icmpv4.ts'
import { finish, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, expectTiled, fieldValues } from '../../support/wire-properties.ts'

/** The suite knows messages without payload: their checksum is a function of the header. */
function withRightChecksum(header: icmpv4.Icmpv4Header): icmpv4.Icmpv4Header {
  const buf = new Uint8Array(icmpv4.HEADER_LEN)
  icmpv4.emit({ ...header, checksum: 0 }, buf, 0)
  return { ...header, checksum: finish(sumWords(buf, 0, buf.length)) }
}

checkWireFormat<icmpv4.Icmpv4Header>('ICMP', {
  fields: icmpv4.FIELDS,
  headerLength: icmpv4.HEADER_LEN,
  parse: icmpv4.parse,
  emit: icmpv4.emit,
  describe: icmpv4.describe,
  valid: fieldValues<icmpv4.Icmpv4Header>(icmpv4.FIELDS).map(withRightChecksum),
  tail: () => 0,
  golden: [
    { header: { type: 8, code: 0, checksum: 0xf7fd, rest: 0x00010001 }, hex: '08 00 f7 fd 00 01 00 01' },
    { header: { type: 3, code: 4, checksum: 0xf751, rest: 0x000005aa }, hex: '03 04 f7 51 00 00 05 aa' },
  ],
  refused: { truncated: '08 00 f7 fd 00 01 00' },
  getters: [
    { name: 'type', get: icmpv4.getType, of: (header) => header.type },
    { name: 'code', get: icmpv4.getCode, of: (header) => header.code },
    { name: 'checksum', get: icmpv4.getChecksum, of: (header) => header.checksum },
    { name: 'identifier', get: icmpv4.getIdentifier, of: (header) => Math.floor(header.rest / 65536) },
    { name: 'sequence', get: icmpv4.getSequence, of: (header) => header.rest % 65536 },
    { name: 'MTU', get: icmpv4.getMtu, of: (header) => header.rest % 65536 },
  ],
  setters: [
    { name: 'the checksum', set: icmpv4.setChecksum, get: icmpv4.getChecksum, bits: 16, bytes: 2 },
    { name: 'the MTU', set: icmpv4.setMtu, get: icmpv4.getMtu, bits: 16, bytes: 2 },
  ],
})

describe('the other tables of ICMP', () => {
  it.each([
    ['echo', icmpv4.ECHO_FIELDS],
    ['too big', icmpv4.TOO_BIG_FIELDS],
  ])('tile the header: %s', (_, fields) => {
    expectTiled(fields, icmpv4.HEADER_LEN)
  })
})

describe('an ICMP message', () => {
  const values = (hex: string) => {
    const buf = bytesFrom(hex)
    return Object.fromEntries(icmpv4.describe(buf, 0, buf.length).map((note) => [note.name, note.value]))
  }

  it('is described by what its second half means for its type', () => {
    expect(values('08 00 f7 f2 00 07 00 06')).toMatchObject({ identifier: '7', sequence: '6' })
    expect(values('03 04 f7 51 00 00 05 aa')).toMatchObject({ mtu: '1450' })
    expect(values('03 00 fc ff 00 00 00 00')).toMatchObject({ rest: '0x00000000' })
  })

  it('with a wrong checksum is told the right one', () => {
    const buf = bytesFrom('08 00 f7 f3 00 07 00 06')
    const checksum = icmpv4.describe(buf, 0, buf.length).find((note) => note.name === 'checksum')
    expect(checksum?.problem).toBe('wrong, should be 0xf7f2')
  })

  it('is written whole by write, with a zero checksum', () => {
    const buf = new Uint8Array(icmpv4.HEADER_LEN).fill(0xa5)
    icmpv4.write(new DataView(buf.buffer), 0, icmpv4.TYPE_UNREACHABLE, icmpv4.CODE_FRAGMENTATION_NEEDED, 0xdeadbeef)
    expect(buf).toEqual(bytesFrom('03 04 00 00 de ad be ef'))
  })

  it('is an error exactly if its type is 3, 4, 5, 11 or 12', () => {
    const errors = Array.from({ length: 256 }, (_, type) => type).filter(icmpv4.isError)
    expect(errors).toEqual([3, 4, 5, 11, 12])
  })
})
