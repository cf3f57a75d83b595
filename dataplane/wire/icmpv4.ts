// ICMP for IPv4, RFC 792. The tunnel reads it to answer pods (no route, too big) and never to answer an ICMP error.
import type { DropReason } from '../drop-reason.ts'
import {
  describeFields,
  type Field,
  type FieldNote,
  type FieldValues,
  lengthOf,
  limitOf,
  offsetOf,
  readFields,
  writeFields,
} from './field.ts'
import { checksumProblem, sumWords } from './internet-checksum.ts'

const COMMON = [
  {
    name: 'type',
    bit: 0,
    bits: 8,
    about: 'kind of message: 8 echo request, 0 echo reply, 3 unreachable, 11 time exceeded',
  },
  { name: 'code', bit: 8, bits: 8, about: 'which of its kind; of unreachable: 0 net, 1 host, 4 too big with DF set' },
  {
    name: 'checksum',
    bit: 16,
    bits: 16,
    show: 'hex',
    about: 'Internet checksum of the whole message, no pseudo header',
  },
] as const satisfies readonly Field[]

/** The second half of a message of any type, as one number. */
export const REST = [
  { name: 'rest', bit: 32, bits: 32, show: 'hex', about: 'depends on the type; unused bits are sent as zero' },
] as const satisfies readonly Field[]

/** The second half of an echo message, the same in both families. */
export const ECHO_REST = [
  { name: 'identifier', bit: 32, bits: 16, about: 'tells one ping from another' },
  { name: 'sequence', bit: 48, bits: 16, about: 'counts the requests of one ping' },
] as const satisfies readonly Field[]

export const FIELDS = [...COMMON, ...REST] as const satisfies readonly Field[]

/** Echo request and reply, RFC 792 page 14. */
export const ECHO_FIELDS = [...COMMON, ...ECHO_REST] as const satisfies readonly Field[]

/** Destination unreachable, fragmentation needed and DF set, RFC 1191 §4. */
export const TOO_BIG_FIELDS = [
  ...COMMON,
  { name: 'unused', bit: 32, bits: 16, show: 'hex', about: 'sent as zero' },
  { name: 'mtu', bit: 48, bits: 16, about: 'largest packet that fits the next hop, in bytes' },
] as const satisfies readonly Field[]

export const HEADER_LEN = lengthOf(FIELDS)

export const TYPE_ECHO_REPLY = 0
export const TYPE_UNREACHABLE = 3
const TYPE_SOURCE_QUENCH = 4
export const TYPE_REDIRECT = 5
export const TYPE_ECHO_REQUEST = 8
export const TYPE_TIME_EXCEEDED = 11
export const TYPE_PARAMETER_PROBLEM = 12

// Codes of TYPE_UNREACHABLE.
export const CODE_NET_UNREACHABLE = 0
export const CODE_FRAGMENTATION_NEEDED = 4

const TYPE = offsetOf(FIELDS, 'type')
const CODE = offsetOf(FIELDS, 'code')
export const CHECKSUM_OFFSET = offsetOf(FIELDS, 'checksum')
const REST_OFFSET = offsetOf(FIELDS, 'rest')
const IDENTIFIER = offsetOf(ECHO_FIELDS, 'identifier')
const SEQUENCE = offsetOf(ECHO_FIELDS, 'sequence')
const MTU = offsetOf(TOO_BIG_FIELDS, 'mtu')

export function getType(view: DataView, at: number): number {
  return view.getUint8(at + TYPE)
}

export function getCode(view: DataView, at: number): number {
  return view.getUint8(at + CODE)
}

export function getChecksum(view: DataView, at: number): number {
  return view.getUint16(at + CHECKSUM_OFFSET)
}

export function setChecksum(view: DataView, at: number, checksum: number): void {
  view.setUint16(at + CHECKSUM_OFFSET, checksum)
}

/** Identifier of an echo message. */
export function getIdentifier(view: DataView, at: number): number {
  return view.getUint16(at + IDENTIFIER)
}

/** Sequence number of an echo message. */
export function getSequence(view: DataView, at: number): number {
  return view.getUint16(at + SEQUENCE)
}

/** Next-hop MTU in bytes of a "fragmentation needed" message. */
export function getMtu(view: DataView, at: number): number {
  return view.getUint16(at + MTU)
}

export function setMtu(view: DataView, at: number, mtuBytes: number): void {
  view.setUint16(at + MTU, mtuBytes)
}

/** Writes the whole header with a zero checksum; `rest` is the unsigned 32-bit second half. */
export function write(view: DataView, at: number, type: number, code: number, rest: number): void {
  view.setUint8(at + TYPE, type)
  view.setUint8(at + CODE, code)
  view.setUint16(at + CHECKSUM_OFFSET, 0)
  view.setUint32(at + REST_OFFSET, rest)
}

/** Whether a message of that type reports an error; such messages are never answered with another (RFC 1122 §3.2.2). */
export function isError(type: number): boolean {
  return (
    type === TYPE_UNREACHABLE ||
    type === TYPE_SOURCE_QUENCH ||
    type === TYPE_REDIRECT ||
    type === TYPE_TIME_EXCEEDED ||
    type === TYPE_PARAMETER_PROBLEM
  )
}

export type Icmpv4Header = FieldValues<typeof FIELDS>

/** The header at `at`, or `truncated`. Any type is a good one here; the checksum is not verified. */
export function parse(buf: Uint8Array, at: number, end: number): Icmpv4Header | DropReason {
  if (limitOf(buf, end) - at < HEADER_LEN) return 'truncated'
  return readFields(FIELDS, buf, at)
}

/** Writes {@link HEADER_LEN} bytes, with the checksum that the header names. */
export function emit(header: Icmpv4Header, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

/** With `partial`, the checksum is not judged: the message is a fragment or the quote in an ICMP error. */
export function describe(buf: Uint8Array, at: number, end: number, partial = false): FieldNote[] {
  const limit = limitOf(buf, end)
  if (limit - at < HEADER_LEN) return describeFields('ICMP', FIELDS, buf, at, end)
  const { type, code, checksum } = readFields(FIELDS, buf, at)
  const problem = partial ? undefined : checksumProblem(checksum, sumWords(buf, at, limit))
  return describeFields('ICMP', fieldsFor(type, code), buf, at, end, { checksum: problem })
}

function fieldsFor(type: number, code: number): typeof FIELDS | typeof ECHO_FIELDS | typeof TOO_BIG_FIELDS {
  if (type === TYPE_ECHO_REQUEST || type === TYPE_ECHO_REPLY) return ECHO_FIELDS
  return type === TYPE_UNREACHABLE && code === CODE_FRAGMENTATION_NEEDED ? TOO_BIG_FIELDS : FIELDS
}
