// Tables of fields: any table, not only the ones in use.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  describeFields,
  type Field,
  fieldOf,
  formatHex,
  hexOf,
  lengthOf,
  offsetOf,
  readField,
  readFields,
  writeField,
  writeFields,
} from '../../../dataplane/wire/field.ts'

const TABLE = [
  { name: 'nibble', bit: 0, bits: 4, about: 'four bits' },
  { name: 'straddling', bit: 4, bits: 13, show: 'hex', about: 'parts of three bytes' },
  { name: 'rest', bit: 17, bits: 7, about: 'up to the byte boundary' },
  { name: 'little', bit: 24, bits: 16, littleEndian: true, about: 'least significant byte first' },
  { name: 'mac', bit: 40, bits: 48, show: 'mac', about: 'as wide as it gets' },
] as const satisfies readonly Field[]
const BYTES = 11

/** The field as a string of binary digits: the slow twin of reading it. */
function bitsOf(buf: Uint8Array, at: number, field: Field): string {
  const bytes = Array.from(buf.subarray(at, at + BYTES))
  if (field.littleEndian === true) {
    const first = field.bit / 8
    bytes.splice(first, field.bits / 8, ...bytes.slice(first, first + field.bits / 8).reverse())
  }
  const digits = bytes.map((byte) => byte.toString(2).padStart(8, '0')).join('')
  return digits.slice(field.bit, field.bit + field.bits)
}

const buffers = fc.uint8Array({ minLength: BYTES + 5, maxLength: BYTES + 5 })
const offsets = fc.integer({ min: 0, max: 5 })
const fields = fc.constantFrom<Field>(...TABLE)

describe('a field', () => {
  it('is read as its bits say', () => {
    fc.assert(
      fc.property(buffers, offsets, fields, (buf, at, field) => {
        expect(readField(buf, at, field)).toBe(Number.parseInt(bitsOf(buf, at, field), 2))
      }),
    )
  })

  it('is written without touching its neighbours', () => {
    fc.assert(
      fc.property(buffers, offsets, fields, fc.nat(2 ** 30), (buf, at, field, value) => {
        const before = TABLE.map((other) => readField(buf, at, other))
        writeField(buf, at, field, value)
        const after = TABLE.map((other) => readField(buf, at, other))
        const expected = TABLE.map((other, index) => (other === field ? value % 2 ** field.bits : before[index]))
        expect(after).toEqual(expected)
      }),
    )
  })

  it('that a table does not have is a programming error, and so is a byte offset of a field inside a byte', () => {
    expect(() => fieldOf(TABLE, 'nobody' as 'mac')).toThrow('no field nobody')
    expect(() => offsetOf(TABLE, 'straddling')).toThrow('does not start on a byte')
    expect(offsetOf(TABLE, 'mac')).toBe(5)
    expect(lengthOf(TABLE)).toBe(BYTES)
  })
})

describe('a header by its table', () => {
  it('is read back from what was written, and covers every byte', () => {
    fc.assert(
      fc.property(buffers, buffers, offsets, (from, to, at) => {
        writeFields(TABLE, readFields(TABLE, from, at), to, at)
        expect(to.subarray(at, at + BYTES)).toEqual(from.subarray(at, at + BYTES))
      }),
    )
  })

  it('is described with values as people write them, problems in place, and missing bytes as truncated', () => {
    const buf = Uint8Array.from([0xa0, 0x80, 0x7f, 0x34, 0x12, 0x0e, 0x5a, 0, 0, 0, 1])
    const notes = describeFields('Test', TABLE, buf, 0, 10, {
      nibble: 'too big',
      mac: 'never seen: truncated comes first',
    })
    expect(notes.map(({ about, ...note }) => note)).toEqual([
      { layer: 'Test', name: 'nibble', at: 0, length: 1, value: '10', problem: 'too big' },
      { layer: 'Test', name: 'straddling', at: 0, length: 3, value: '0x0100' },
      { layer: 'Test', name: 'rest', at: 2, length: 1, value: '127' },
      { layer: 'Test', name: 'little', at: 3, length: 2, value: '4660' },
      { layer: 'Test', name: 'mac', at: 5, length: 6, value: '', problem: 'truncated' },
    ])
    expect(describeFields('Test', TABLE, buf, 0, 99).at(-1)?.value).toBe('0e:5a:00:00:00:01')
  })
})

describe('a field as wide as an IPv6 address', () => {
  const WIDE = [
    { name: 'before', bit: 0, bits: 8, about: 'a neighbour' },
    { name: 'address', bit: 8, bits: 128, show: 'ipv6', about: '16 whole bytes' },
    { name: 'after', bit: 136, bits: 8, about: 'the other neighbour' },
  ] as const satisfies readonly Field[]

  it('is a bigint, read and written without touching its neighbours', () => {
    const values = fc.record({ before: fc.nat(255), address: fc.bigInt(0n, (1n << 128n) - 1n), after: fc.nat(255) })
    fc.assert(
      fc.property(values, offsets, (header, at) => {
        const buf = new Uint8Array(at + 18).fill(0xa5)
        writeFields(WIDE, header, buf, at)
        expect(readFields(WIDE, buf, at)).toEqual(header)
        expect(BigInt(`0x${hexOf(buf.subarray(at + 1, at + 17))}`)).toBe(header.address)
      }),
    )
  })

  it('is described as people write it', () => {
    const buf = new Uint8Array(18)
    writeFields(WIDE, { before: 1, address: (0xfe80n << 112n) | 1n, after: 2 }, buf, 0)
    expect(describeFields('Test', WIDE, buf, 0, 18)[1]).toMatchObject({ at: 1, length: 16, value: 'fe80::1' })
    expect(describeFields('Test', WIDE, buf, 0, 16)[1]).toMatchObject({ value: '', problem: 'truncated' })
  })
})

describe('hex', () => {
  it('has as many digits as the bits need', () => {
    expect([formatHex(8, 8), formatHex(1, 13), formatHex(2, 3)]).toEqual(['0x08', '0x0001', '0x2'])
    expect(hexOf(Uint8Array.of(0, 255), ' ')).toBe('00 ff')
  })
})
