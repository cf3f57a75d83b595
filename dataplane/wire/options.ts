// Options of IPv4 (RFC 791 §3.1), TCP (RFC 9293 §3.1) and IPv6 (RFC 8200 §4.2): lists of kind, length, data. They
// differ in what the length counts and in the kinds that are one byte long.
import { type FieldNote, hexOf, limitOf } from './field.ts'

/** One option. `length` counts kind, length and data; the one-byte options have length 1 and no data. */
export interface Option {
  readonly kind: number
  readonly length: number
  /** A view of the parsed buffer, not a copy. */
  readonly data: Uint8Array
}

/** What people call an option, by kind. `show` turns its data into words; hex when absent. */
export interface OptionName {
  readonly name: string
  readonly about: string
  readonly show?: (data: Uint8Array) => string
}

/** How the options of one protocol are laid out. */
export interface OptionLayout {
  /** Kinds that are one byte, without length and data. */
  readonly oneByte: Readonly<Record<number, OptionName>>
  /** The kind behind which there is only padding. */
  readonly end?: number
  /** Bytes of kind and length that the length field leaves out. */
  readonly uncounted: 0 | 2
}

const IPV4_AND_TCP: OptionLayout = {
  oneByte: {
    0: { name: 'end', about: 'the list ends here; padding follows' },
    1: { name: 'nop', about: 'one byte of filling' },
  },
  end: 0,
  uncounted: 0,
}

/** Options in a hop-by-hop or destination options header. */
export const IPV6_OPTIONS: OptionLayout = {
  oneByte: { 0: { name: 'pad1', about: 'one byte of filling' } },
  uncounted: 2,
}

/** Size of the option at `at` in bytes, or 0 when it is cut off or its length field is a lie. */
function sizeAt(buf: Uint8Array, at: number, end: number, { oneByte, uncounted }: OptionLayout): number {
  if ((buf[at] ?? 0) in oneByte) return 1
  const size = at + 1 < end ? (buf[at + 1] ?? 0) + uncounted : 0
  return size >= 2 && at + size <= end ? size : 0
}

/**
 * The options in `buf[at, end)`. Ends at an end-of-list option, at `end`, or before the first option that is malformed
 * (cut off, or its length below 2): never loops, never reads beyond `end`.
 */
export function parseOptions(buf: Uint8Array, at: number, end: number, layout: OptionLayout = IPV4_AND_TCP): Option[] {
  const options: Option[] = []
  const limit = limitOf(buf, end)
  for (let next = at; next < limit; ) {
    const length = sizeAt(buf, next, limit, layout)
    if (length === 0) break
    const kind = buf[next] ?? 0
    options.push({ kind, length, data: buf.subarray(next + Math.min(2, length), next + length) })
    if (kind === layout.end) break
    next += length
  }
  return options
}

/**
 * Notes for the options in `buf[at, end)`, the malformed one and the padding behind the end of the list too. Never
 * throws.
 */
export function describeOptions(
  layer: string,
  names: Readonly<Record<number, OptionName>>,
  buf: Uint8Array,
  at: number,
  end: number,
  layout: OptionLayout = IPV4_AND_TCP,
): FieldNote[] {
  const notes: FieldNote[] = []
  const limit = limitOf(buf, end)
  let next = at
  for (const option of parseOptions(buf, at, end, layout)) {
    const known = layout.oneByte[option.kind] ?? names[option.kind]
    const { name, about } = known ?? { name: `option ${option.kind}`, about: 'an option without a name here' }
    const value = known?.show?.(option.data) ?? hexOf(option.data)
    notes.push({ layer, name, at: next, length: option.length, value, about })
    next += option.length
    if (option.kind === layout.end) return next < limit ? [...notes, describePadding(layer, buf, next, limit)] : notes
  }
  if (next >= limit) return limit < end ? [...notes, cutOff(layer, next, end)] : notes
  const problem = limit < end ? 'truncated' : 'its length is below 2 or reaches beyond the header'
  const about = 'an option that cannot be read'
  const name = `option ${buf[next]}`
  return [
    ...notes,
    { layer, name, at: next, length: limit - next, value: hexOf(buf.subarray(next, limit)), about, problem },
  ]
}

function cutOff(layer: string, at: number, end: number): FieldNote {
  const about = 'options that the header length announces'
  return { layer, name: 'options', at, length: end - at, value: '', about, problem: 'truncated' }
}

function describePadding(layer: string, buf: Uint8Array, at: number, end: number): FieldNote {
  const about = 'fills the header to a multiple of four bytes'
  return { layer, name: 'padding', at, length: end - at, value: hexOf(buf.subarray(at, end)), about }
}

/** A big-endian number out of an option's data, 1 to 4 bytes; `?` when they are not all there. */
export function numberIn(data: Uint8Array, at: number, bytes: number): string {
  if (at + bytes > data.length) return '?'
  return String(data.subarray(at, at + bytes).reduce((value, byte) => value * 256 + byte, 0))
}
