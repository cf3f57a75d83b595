// The property suite that every file in dataplane/wire with a header gets: table, parse, emit, describe and accessors
// are four views of the same bytes and may never disagree.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { DropReason } from '../../dataplane/drop-reason.ts'
import { parseIpv6 } from '../../dataplane/wire/address.ts'
import { type Field, type FieldNote, lengthOf } from '../../dataplane/wire/field.ts'
import { bytesFrom } from './hex-bytes.ts'

/**
 * A header as the suite sees it: numbers by name, IPv6 addresses as bigints, and where there are options their bytes.
 */
type Header = Readonly<Record<string, number | bigint | Uint8Array>>

/** A wire file, and what its tests have to know besides. */
export interface WireFormat<H> {
  readonly fields: readonly Field[]
  readonly headerLength: number
  readonly parse: (buf: Uint8Array, at: number, end: number) => H | DropReason
  readonly emit: (header: H, buf: Uint8Array, at: number) => void
  readonly describe: (buf: Uint8Array, at: number, end: number) => FieldNote[]
  /** Headers that `parse` accepts when {@link tail} bytes follow. */
  readonly valid: fc.Arbitrary<H>
  /** Bytes that have to follow a header for `parse` to accept it. */
  readonly tail: (header: H) => number
  /** Headers and their bytes, written down by hand from the RFC. */
  readonly golden: readonly { readonly header: H; readonly hex: string }[]
  /** For every reason that `parse` can give, bytes (hex) that get it. */
  readonly refused: Readonly<Partial<Record<DropReason, string>>>
  readonly getters: readonly {
    readonly name: string
    readonly get: (view: DataView, at: number) => number
    readonly of: (header: H) => number
  }[]
  readonly setters: readonly {
    readonly name: string
    readonly set: (view: DataView, at: number, value: number) => void
    readonly get: (view: DataView, at: number) => number
    readonly bits: number
    /** Bytes that may change. */
    readonly bytes: number
  }[]
}

/** Bytes before the header in every test buffer: an offset that is forgotten somewhere shows. */
const offsets = fc.integer({ min: 0, max: 9 })

const viewOf = (buf: Uint8Array) => new DataView(buf.buffer, buf.byteOffset, buf.byteLength)

const optionsOf = (header: unknown) => (header as { options?: Uint8Array }).options ?? new Uint8Array()

/** The header behind `at` bytes of 0xa5, followed by the bytes it needs. */
function frameOf<H>(format: WireFormat<H>, header: H, at: number): Uint8Array {
  const buf = new Uint8Array(at + format.headerLength + optionsOf(header).length + format.tail(header)).fill(0xa5)
  format.emit(header, buf, at)
  return buf
}

export function checkWireFormat<H extends object>(name: string, format: WireFormat<H>): void {
  describe(`${name}: one header, four views`, () => {
    checkTable(format)
    checkRoundTrip(format)
    checkRefusals(format)
    checkDescriptions(format)
    checkAccessors(format)
  })
}

/** That the fields follow each other without gap or overlap and fill so many bytes. */
export function expectTiled(fields: readonly Field[], bytes: number): void {
  let bit = 0
  for (const field of fields) {
    expect(field.bit, field.name).toBe(bit)
    bit += field.bits
  }
  expect(bit).toBe(bytes * 8)
}

function checkTable<H>({ fields, headerLength }: WireFormat<H>): void {
  it('has fields that tile the header without gap or overlap', () => {
    expectTiled(fields, headerLength)
    expect(lengthOf(fields)).toBe(headerLength)
    expect(new Set(fields.map((field) => field.name)).size).toBe(fields.length)
  })
}

function checkRoundTrip<H extends object>(format: WireFormat<H>): void {
  it('parses what it emitted', () => {
    fc.assert(
      fc.property(format.valid, offsets, (header, at) => {
        const buf = frameOf(format, header, at)
        expect(format.parse(buf, at, buf.length)).toEqual(header)
      }),
    )
  })

  it('emits every byte of the header and none beside it', () => {
    fc.assert(
      fc.property(format.valid, offsets, (header, at) => {
        const end = at + format.headerLength + optionsOf(header).length
        const emitted = [0xa5, 0x5a].map((filling) => {
          const buf = new Uint8Array(end + 8).fill(filling)
          format.emit(header, buf, at)
          expect(buf.subarray(0, at).every((byte) => byte === filling)).toBe(true)
          expect(buf.subarray(end).every((byte) => byte === filling)).toBe(true)
          return buf.subarray(at, end)
        })
        expect(emitted[0]).toEqual(emitted[1])
      }),
    )
  })

  it('agrees with bytes written down by hand, both ways', () => {
    expect(format.golden.length).toBeGreaterThan(0)
    for (const { header, hex } of format.golden) {
      const bytes = bytesFrom(hex)
      const buf = new Uint8Array(bytes.length + format.tail(header)).fill(0xa5)
      format.emit(header, buf, 0)
      expect(buf.subarray(0, bytes.length)).toEqual(bytes)
      expect(format.parse(buf, 0, buf.length)).toEqual(header)
    }
  })
}

/** Valid headers with one byte changed, cut somewhere: what random bytes alone would hardly ever reach. */
function damaged<H>(format: WireFormat<H>): fc.Arbitrary<Uint8Array> {
  const mutation = fc.record({ at: fc.nat(79), value: fc.nat(255), length: fc.nat(120), cut: fc.boolean() })
  const mutated = fc.tuple(format.valid, mutation).map(([header, { at, value, length, cut }]) => {
    const buf = frameOf(format, header, 0)
    if (at < buf.length) buf[at] = value
    return cut ? buf.subarray(0, Math.min(length, buf.length)) : buf
  })
  return fc.oneof(mutated, fc.uint8Array({ maxLength: 120 }))
}

function checkRefusals<H>(format: WireFormat<H>): void {
  it.each(Object.entries(format.refused))('refuses with %s', (reason, hex) => {
    const buf = bytesFrom(hex)
    expect(format.parse(buf, 0, buf.length)).toBe(reason)
  })

  it('refuses damaged and random bytes for those reasons only, whatever lies around them', () => {
    fc.assert(
      fc.property(damaged(format), offsets, (bytes, at) => {
        const parsed = format.parse(bytes, 0, bytes.length)
        if (typeof parsed === 'string') expect(Object.keys(format.refused)).toContain(parsed)
        const buf = new Uint8Array(at + bytes.length + 64).fill(0xa5)
        buf.set(bytes, at)
        expect(format.parse(buf, at, at + bytes.length)).toEqual(parsed)
      }),
      { numRuns: 1000 },
    )
  })
}

function checkDescriptions<H extends object>(format: WireFormat<H>): void {
  it('describes bytes of every length, and calls the missing ones truncated', () => {
    for (let length = 0; length <= 80; length++) {
      fc.assert(
        fc.property(fc.uint8Array({ minLength: length, maxLength: length }), offsets, (bytes, at) => {
          const buf = new Uint8Array(at + length)
          buf.set(bytes, at)
          const notes = format.describe(buf, at, at + length)
          // The end that was promised may lie behind the buffer: the same notes, but no byte invented.
          expect(format.describe(buf, at, at + length + 1000).map((note) => note.at)).toEqual(
            notes.map((note) => note.at),
          )
          for (const note of notes.slice(0, format.fields.length)) {
            expect(note.at).toBeGreaterThanOrEqual(at)
            expect(note.problem === 'truncated').toBe(note.at + note.length > at + length)
          }
        }),
        { numRuns: 10 },
      )
    }
  })

  it('describes the values that it parses, and finds a problem in all that it refuses', () => {
    fc.assert(
      fc.property(damaged(format), (bytes) => {
        const parsed = format.parse(bytes, 0, bytes.length)
        const notes = format.describe(bytes, 0, bytes.length)
        if (typeof parsed === 'string') expect(notes.some((note) => note.problem !== undefined)).toBe(true)
        else compareNotes(notes, parsed as unknown as Header)
      }),
      { numRuns: 1000 },
    )
  })

  it('finds no problem in what it emitted, and describes every field', () => {
    fc.assert(
      fc.property(format.valid, (header) => {
        const buf = frameOf(format, header, 0)
        expect(buf.length).toBeGreaterThanOrEqual(format.headerLength)
        const notes = format.describe(buf, 0, buf.length)
        expect(notes.filter((note) => note.problem !== undefined)).toEqual([])
        expect(compareNotes(notes, header as unknown as Header)).toBeGreaterThanOrEqual(
          Math.min(3, format.fields.length),
        )
      }),
    )
  })
}

/** Compares the notes that bear a name of the header; says how many did. */
function compareNotes(notes: readonly FieldNote[], header: Header): number {
  const named = notes.filter((note) => /number|bigint/.test(typeof header[note.name]))
  for (const note of named) {
    const value = header[note.name]
    expect(typeof value === 'bigint' ? parseIpv6(note.value) : numberOf(note.value), note.name).toBe(value)
  }
  return named.length
}

/** Back from the text of a note to the number in the header: decimal, hex, dotted address or MAC. */
export function numberOf(value: string): number {
  if (value.includes(':')) return Number(`0x${value.replaceAll(':', '')}`)
  if (value.includes('.')) return value.split('.').reduce((address, octet) => address * 256 + Number(octet), 0)
  return Number(value)
}

function checkAccessors<H>(format: WireFormat<H>): void {
  it.each(format.getters)('reads $name as parse does', ({ get, of }) => {
    fc.assert(
      fc.property(format.valid, offsets, (header, at) => {
        const buf = frameOf(format, header, at)
        expect(get(viewOf(buf), at)).toBe(of(header))
      }),
    )
  })

  it.each(format.setters)('writes $name and nothing beside it', ({ set, get, bits, bytes }) => {
    const values = fc.integer({ min: 0, max: 2 ** bits - 1 })
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 80, maxLength: 80 }), offsets, values, (before, at, value) => {
        const after = before.slice()
        set(viewOf(after), at, value)
        expect(get(viewOf(after), at)).toBe(value)
        const changed = Array.from(after.keys()).filter((index) => after[index] !== before[index])
        if (changed.length > 0) expect((changed.at(-1) ?? 0) - (changed[0] ?? 0)).toBeLessThan(bytes)
        for (const index of changed) expect(index).toBeGreaterThanOrEqual(at)
      }),
    )
  })
}

/** Any IPv6 address, and often one that people write short: groups of zeros, an IPv4-mapped one. */
export const ipv6Addresses: fc.Arbitrary<bigint> = fc.oneof(
  fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }),
  fc
    .array(fc.constantFrom(0, 0, 0, 1, 0xf, 0xfd00, 0xffff), { minLength: 8, maxLength: 8 })
    .map((groups) => groups.reduce((address, group) => (address << 16n) | BigInt(group), 0n)),
  fc.integer({ min: 0, max: 0xffff_ffff }).map((ipv4) => 0xffff_0000_0000n | BigInt(ipv4)),
)

/** An arbitrary for each field of a table: any value that fits. Fields in `fixed` keep theirs. */
export function fieldValues<T extends { readonly [name: string]: number | bigint }>(
  fields: readonly Field[],
  fixed: Partial<Record<keyof T, fc.Arbitrary<number>>> = {},
): fc.Arbitrary<T> {
  const valuesOf = ({ show, bits }: Field): fc.Arbitrary<number | bigint> =>
    show === 'ipv6' ? ipv6Addresses : fc.integer({ min: 0, max: 2 ** bits - 1 })
  const any = fields.map((field) => [field.name, valuesOf(field)] as const)
  return fc.record({ ...Object.fromEntries(any), ...fixed }) as unknown as fc.Arbitrary<T>
}
