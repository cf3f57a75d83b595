// The vocabulary of a wire file: a table of fields from which offsets, descriptions and docs are derived.
// Nothing outside `dataplane/wire/` knows an offset.
import { formatIpv4, formatIpv6, formatMac } from './address.ts'

/** One field of a header. `bit` and `bits` count from the first bit of the header, most significant bit first. */
export interface Field {
  readonly name: string
  readonly bit: number
  readonly bits: number
  readonly about: string
  /**
   * How people write the value; decimal when absent. A field shown as `ipv6` is 16 whole bytes, and its value a bigint.
   */
  readonly show?: 'hex' | 'ipv4' | 'ipv6' | 'mac'
  /** Set where the least significant byte comes first; such a field fills whole bytes. */
  readonly littleEndian?: true
}

/** One line of a description: a field as it stands in some bytes, with what is wrong about it, if anything. */
export interface FieldNote {
  readonly layer: string
  readonly name: string
  /** First byte of the field, counted from the start of the buffer that was described. */
  readonly at: number
  /** Bytes that the field touches (a 4-bit field touches one). */
  readonly length: number
  /** The value as people write it: `10.244.1.2`, `0x08`, `64`. Empty when the bytes are missing. */
  readonly value: string
  readonly about: string
  /** Set when the bytes are not what they should be: truncated, a wrong checksum, a reserved bit. */
  readonly problem?: string
}

type NameOf<F extends readonly Field[]> = F[number]['name']

/** The field of that name. Throws at module load when the table has no such field: a programming error. */
export function fieldOf<const F extends readonly Field[]>(fields: F, name: NameOf<F>): Field {
  const field = fields.find((candidate) => candidate.name === name)
  if (field === undefined) throw new Error(`no field ${name}`)
  return field
}

/** Byte offset of a field that starts on a byte boundary. */
export function offsetOf<const F extends readonly Field[]>(fields: F, name: NameOf<F>): number {
  const field = fieldOf(fields, name)
  if (field.bit % 8 !== 0) throw new Error(`field ${name} does not start on a byte`)
  return field.bit / 8
}

/** Bytes that a table of fields covers. */
export function lengthOf(fields: readonly Field[]): number {
  return fields.reduce((bits, field) => bits + field.bits, 0) / 8
}

/** A header as numbers, one per field of its table; IPv6 addresses are bigints. */
export type FieldValues<F extends readonly Field[]> = {
  readonly [N in NameOf<F>]: Extract<F[number], { name: N }> extends { show: 'ipv6' } ? bigint : number
}

/** What is wrong with which field. */
export type FieldProblems<F extends readonly Field[]> = { [N in NameOf<F>]?: string | undefined }

/** Bytes that a field touches: a 4-bit field touches one. */
function bytesOf(field: Field): number {
  return Math.ceil(((field.bit % 8) + field.bits) / 8)
}

/** Index of the byte of `rank` (0 is the most significant) of a field in a header at `at`. */
function byteIndex(field: Field, at: number, rank: number): number {
  const first = at + Math.floor(field.bit / 8)
  return field.littleEndian === true ? first + bytesOf(field) - 1 - rank : first + rank
}

/** Value of one field of the header at `at`, unsigned, up to 48 bits. The bytes have to be there. Off the hot path. */
export function readField(buf: Uint8Array, at: number, field: Field): number {
  const bytes = bytesOf(field)
  // Arithmetic instead of shifts: a MAC has 48 bits, and shifts end at 32.
  let word = 0
  for (let rank = 0; rank < bytes; rank++) word = word * 256 + (buf[byteIndex(field, at, rank)] ?? 0)
  const bitsBehind = bytes * 8 - (field.bit % 8) - field.bits
  return Math.floor(word / 2 ** bitsBehind) % 2 ** field.bits
}

/**
 * Writes the low `field.bits` bits of `value`; the bits beside them in the same bytes stay as they are. Off the hot
 * path.
 */
export function writeField(buf: Uint8Array, at: number, field: Field, value: number): void {
  const bytes = bytesOf(field)
  let bitsBehind = bytes * 8 - (field.bit % 8) - field.bits
  let rest = value % 2 ** field.bits
  let bitsLeft = field.bits
  for (let rank = bytes - 1; rank >= 0; rank--) {
    const bits = Math.min(8 - bitsBehind, bitsLeft)
    const mask = ((1 << bits) - 1) << bitsBehind
    const index = byteIndex(field, at, rank)
    buf[index] = ((buf[index] ?? 0) & ~mask) | ((rest % 2 ** bits) << bitsBehind)
    rest = Math.floor(rest / 2 ** bits)
    bitsLeft -= bits
    bitsBehind = 0
  }
}

/** Value of a field shown as `ipv6`. The bytes have to be there. Off the hot path. */
function readWideField(buf: Uint8Array, at: number, field: Field): bigint {
  const first = at + field.bit / 8
  return BigInt(`0x${hexOf(buf.subarray(first, first + bytesOf(field)))}`)
}

/** Writes a field shown as `ipv6`, least significant byte first into the last byte. Off the hot path. */
function writeWideField(buf: Uint8Array, at: number, field: Field, value: bigint): void {
  let rest = value
  for (let rank = bytesOf(field) - 1; rank >= 0; rank--) {
    buf[byteIndex(field, at, rank)] = Number(rest & 0xffn)
    rest >>= 8n
  }
}

function readAny(buf: Uint8Array, at: number, field: Field): number | bigint {
  return field.show === 'ipv6' ? readWideField(buf, at, field) : readField(buf, at, field)
}

/** All fields of the header at `at`. The bytes have to be there. */
export function readFields<const F extends readonly Field[]>(fields: F, buf: Uint8Array, at: number): FieldValues<F> {
  return Object.fromEntries(fields.map((field) => [field.name, readAny(buf, at, field)])) as FieldValues<F>
}

/** Writes all fields, and so every bit of the header at `at`. */
export function writeFields<const F extends readonly Field[]>(
  fields: F,
  values: FieldValues<F>,
  buf: Uint8Array,
  at: number,
): void {
  for (const field of fields) {
    const value: number | bigint = values[field.name as NameOf<F>]
    if (typeof value === 'bigint') writeWideField(buf, at, field, value)
    else writeField(buf, at, field, value)
  }
}

/** Hex digits of a number for a value of so many bits: `0x08`, `0x0800`. */
export function formatHex(value: number, bits: number): string {
  return `0x${value.toString(16).padStart(Math.ceil(bits / 4), '0')}`
}

/** Bytes as pairs of hex digits. */
export function hexOf(bytes: Uint8Array, separator = ''): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(separator)
}

function formatValue(field: Field, value: number | bigint): string {
  if (typeof value === 'bigint') return formatIpv6(value)
  if (field.show === 'hex') return formatHex(value, field.bits)
  if (field.show === 'ipv4') return formatIpv4(value)
  if (field.show === 'mac') return formatMac(value)
  return String(value)
}

/** Last readable byte plus one of a stretch that claims to end at `end`. */
export function limitOf(buf: Uint8Array, end: number): number {
  return Math.min(end, buf.length)
}

/** The notes of a header at `at` that may be cut off at `end`. Never throws. */
export function describeFields<const F extends readonly Field[]>(
  layer: string,
  fields: F,
  buf: Uint8Array,
  at: number,
  end: number,
  problems: FieldProblems<F> = {},
): FieldNote[] {
  const limit = limitOf(buf, end)
  return fields.map((field) => {
    const first = at + Math.floor(field.bit / 8)
    const length = bytesOf(field)
    const place = { layer, name: field.name, at: first, length, about: field.about }
    if (first + length > limit) return { ...place, value: '', problem: 'truncated' }
    const value = formatValue(field, readAny(buf, at, field))
    const problem = problems[field.name as NameOf<F>]
    return problem === undefined ? { ...place, value } : { ...place, value, problem }
  })
}
