// Extension headers of IPv6, RFC 8200 §4: what may lie between the fixed header and the transport. Hop-by-hop, routing
// and destination options share one shape; the fragment header has a file of its own (ipv6-fragment.ts); AH (RFC 4302)
// counts its length in other units. ESP is no extension header here: what follows it cannot be read.
import type { DropReason } from '../drop-reason.ts'
import {
  describeFields,
  type Field,
  type FieldNote,
  type FieldValues,
  hexOf,
  lengthOf,
  limitOf,
  offsetOf,
  readFields,
  writeFields,
} from './field.ts'
import { getNextHeader, HEADER_LEN as IPV6_HEADER_LEN } from './ipv6.ts'
import * as fragment from './ipv6-fragment.ts'
import { describeOptions, IPV6_OPTIONS, numberIn, type OptionName } from './options.ts'

export const FIELDS = [
  { name: 'nextHeader', bit: 0, bits: 8, about: 'what follows this header' },
  { name: 'length', bit: 8, bits: 8, about: 'bytes of this header in units of 8, not counting the first 8' },
] as const satisfies readonly Field[]

/** The beginning of a routing header, RFC 8200 §4.4. */
export const ROUTING_FIELDS = [
  ...FIELDS,
  { name: 'routingType', bit: 16, bits: 8, about: 'which kind of routing: 2 mobile IPv6, 3 RPL, 4 segment routing' },
  { name: 'segmentsLeft', bit: 24, bits: 8, about: 'nodes still to be visited before the destination' },
] as const satisfies readonly Field[]

/** Authentication header, RFC 4302 §2; the integrity check value follows. */
export const AUTHENTICATION_FIELDS = [
  { name: 'nextHeader', bit: 0, bits: 8, about: 'what follows this header' },
  { name: 'length', bit: 8, bits: 8, about: 'bytes of this header in units of 4, not counting the first 8' },
  { name: 'reserved', bit: 16, bits: 16, show: 'hex', about: 'sent as zero' },
  { name: 'securityParameters', bit: 32, bits: 32, show: 'hex', about: 'index of the security association (SPI)' },
  { name: 'sequence', bit: 64, bits: 32, about: 'counts the packets of the association' },
] as const satisfies readonly Field[]

/** Bytes of the part that all these headers begin with; the header itself has at least {@link MIN_BYTES}. */
export const HEADER_LEN = lengthOf(FIELDS)
/** The shortest extension header. */
export const MIN_BYTES = 8

export const HOP_BY_HOP = 0
export const ROUTING = 43
export const FRAGMENT = 44
export const AUTHENTICATION = 51
/**
 * Nothing follows, whatever bytes are there (RFC 8200 §4.7). No extension header: it is what {@link walkExtensions}
 * finds.
 */
export const NO_NEXT_HEADER = 59
export const DESTINATION_OPTIONS = 60

/**
 * Extension headers that {@link walkExtensions} passes before it gives up. No host sends more than each kind once or
 * twice.
 */
const MAX_EXTENSION_HEADERS = 8

/** What {@link walkExtensions} gives when headers are missing, or when there are too many. */
export const WALK_TRUNCATED = -1
export const WALK_TOO_MANY = -2

const NEXT_HEADER = offsetOf(FIELDS, 'nextHeader')
const LENGTH = offsetOf(FIELDS, 'length')
const SEGMENTS_LEFT = offsetOf(ROUTING_FIELDS, 'segmentsLeft')

/** Whether a header of that number is one that leads on to another. */
export function isExtension(protocol: number): boolean {
  return (
    protocol === HOP_BY_HOP ||
    protocol === ROUTING ||
    protocol === FRAGMENT ||
    protocol === AUTHENTICATION ||
    protocol === DESTINATION_OPTIONS
  )
}

/**
 * Bytes of the extension header of that kind at `at`, at least {@link MIN_BYTES}; 0 when it does not end before `end`.
 */
export function bytesAt(view: DataView, at: number, end: number, kind: number): number {
  if (at + MIN_BYTES > end) return 0
  if (kind === FRAGMENT) return fragment.HEADER_LEN
  const units = view.getUint8(at + LENGTH)
  const bytes = MIN_BYTES + units * (kind === AUTHENTICATION ? 4 : 8)
  return at + bytes > end ? 0 : bytes
}

/** What follows the extension header at `at`. */
export function getNext(view: DataView, at: number): number {
  return view.getUint8(at + NEXT_HEADER)
}

/**
 * Of a routing header. Above 0, the last address in it, not the destination field, is in the pseudo header (RFC 8200
 * §8.1).
 */
export function getSegmentsLeft(view: DataView, at: number): number {
  return view.getUint8(at + SEGMENTS_LEFT)
}

/**
 * From the fixed IPv6 header at `at` to what its packet carries, for the hot path: nothing is allocated. Returns
 * protocol and place in one number, to be taken apart by {@link walkedProtocol} and {@link walkedOffset}, or {@link
 * WALK_TRUNCATED} when a header does not end before `end`, or {@link WALK_TOO_MANY}.
 *
 * Stops at a fragment header, whole as it is, and gives {@link FRAGMENT} with its place: what lies behind it may be the
 * middle of a payload. Gives {@link NO_NEXT_HEADER} as found. Any number that is unknown is the transport. That a
 * transport header is there in full is for the caller to check.
 */
export function walkExtensions(view: DataView, at: number, end: number): number {
  let next = at + IPV6_HEADER_LEN
  if (next > end) return WALK_TRUNCATED
  let protocol = getNextHeader(view, at)
  for (let passed = 0; isExtension(protocol); passed++) {
    if (passed === MAX_EXTENSION_HEADERS) return WALK_TOO_MANY
    const bytes = bytesAt(view, next, end, protocol)
    if (bytes === 0) return WALK_TRUNCATED
    if (protocol === FRAGMENT) break
    protocol = view.getUint8(next + NEXT_HEADER)
    next += bytes
  }
  return ((next - at) << 8) | protocol
}

/** The protocol in what {@link walkExtensions} gave, 0-255. */
export function walkedProtocol(walked: number): number {
  return walked & 0xff
}

/** The offset in what {@link walkExtensions} gave: bytes from the start of the fixed header. */
export function walkedOffset(walked: number): number {
  return walked >> 8
}

/**
 * A header of the shape that all but fragment and AH share; `options` are the 6 bytes, or 6 and a multiple of 8, behind
 * it.
 */
export interface Ipv6ExtensionHeader extends FieldValues<typeof FIELDS> {
  readonly options: Uint8Array
}

/**
 * The hop-by-hop, routing or destination options header at `at`, or `truncated`. What its options say is not judged.
 */
export function parse(buf: Uint8Array, at: number, end: number): Ipv6ExtensionHeader | DropReason {
  const available = limitOf(buf, end) - at
  if (available < MIN_BYTES) return 'truncated'
  const fields = readFields(FIELDS, buf, at)
  const bytes = MIN_BYTES + fields.length * 8
  return bytes > available ? 'truncated' : { ...fields, options: buf.slice(at + HEADER_LEN, at + bytes) }
}

/** Writes header and options. */
export function emit(header: Ipv6ExtensionHeader, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
  buf.set(header.options, at + HEADER_LEN)
}

const OPTION_NAMES: Readonly<Record<number, OptionName>> = {
  1: { name: 'padN', about: 'filling' },
  5: {
    name: 'routerAlert',
    about: 'routers shall look at the packet (RFC 2711)',
    show: (data) => numberIn(data, 0, 2),
  },
  194: { name: 'jumbo', about: 'payload length beyond 65535 (RFC 2675)', show: (data) => numberIn(data, 0, 4) },
}

const LAYERS: Readonly<Record<number, string>> = {
  [HOP_BY_HOP]: 'IPv6 hop-by-hop',
  [ROUTING]: 'IPv6 routing',
  [AUTHENTICATION]: 'AH',
  [DESTINATION_OPTIONS]: 'IPv6 destination',
}

/**
 * The extension header of that kind at `at`; destination options where nobody says otherwise. With `partial`, it lies
 * in the quote of an ICMPv6 error: that its end is missing is no fault.
 */
export function describe(
  buf: Uint8Array,
  at: number,
  end: number,
  kind: number = DESTINATION_OPTIONS,
  partial = false,
): FieldNote[] {
  if (kind === FRAGMENT) return fragment.describe(buf, at, end)
  const layer = LAYERS[kind] ?? 'IPv6 extension'
  const limit = limitOf(buf, end)
  const whole = limit - at < MIN_BYTES ? 0 : bytesAt(new DataView(buf.buffer, buf.byteOffset), at, limit, kind)
  const problems = whole === 0 && !partial ? { length: 'the header reaches beyond the packet' } : {}
  if (kind === AUTHENTICATION) return describeWith(AUTHENTICATION_FIELDS, layer, problems, buf, at, end, at + whole)
  if (kind === ROUTING) return describeWith(ROUTING_FIELDS, layer, problems, buf, at, end, at + whole)
  const notes = describeFields(layer, FIELDS, buf, at, end, problems)
  if (whole === 0) return notes
  const options = describeOptions(layer, OPTION_NAMES, buf, at + HEADER_LEN, at + whole, IPV6_OPTIONS)
  return [...notes, ...options]
}

/** Fields, and what is behind them in the header as plain bytes. */
function describeWith(
  fields: typeof ROUTING_FIELDS | typeof AUTHENTICATION_FIELDS,
  layer: string,
  problems: { readonly length?: string },
  buf: Uint8Array,
  at: number,
  end: number,
  headerEnd: number,
): FieldNote[] {
  const notes = describeFields(layer, fields, buf, at, end, problems)
  const dataAt = at + lengthOf(fields)
  if (headerEnd <= dataAt) return notes
  const data = {
    layer,
    name: 'data',
    at: dataAt,
    length: headerEnd - dataAt,
    about: 'what this kind of header carries',
  }
  return [...notes, { ...data, value: hexOf(buf.subarray(dataAt, headerEnd)) }]
}
