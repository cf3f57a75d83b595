// ICMP for IPv6, RFC 4443, and the shape of neighbour discovery, RFC 4861. The tunnel reads it to answer pods (no
// route, too big), never to answer an ICMP error, and to call the host's own noise by name. The first eight bytes lie
// as those of ICMP for IPv4 do, so their accessors are the same; what differs is the checksum, which covers the pseudo
// header.
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
import { type Carriage, transportChecksumProblem } from './internet-checksum.ts'
import { PROTOCOL_ICMPV6 } from './ipv6.ts'

export {
  CHECKSUM_OFFSET,
  getChecksum,
  getCode,
  getIdentifier,
  getSequence,
  getType,
  HEADER_LEN,
  setChecksum,
  write,
} from './icmpv4.ts'

import { ECHO_REST, HEADER_LEN, REST } from './icmpv4.ts'

const COMMON = [
  {
    name: 'type',
    bit: 0,
    bits: 8,
    about: 'kind of message: 128 echo request, 129 echo reply, 1 unreachable, 2 too big; errors are below 128',
  },
  { name: 'code', bit: 8, bits: 8, about: 'which of its kind; of unreachable: 0 no route, 3 address, 4 port' },
  {
    name: 'checksum',
    bit: 16,
    bits: 16,
    show: 'hex',
    about: 'Internet checksum of the whole message, with pseudo header',
  },
] as const satisfies readonly Field[]

export const FIELDS = [...COMMON, ...REST] as const satisfies readonly Field[]

/** Echo request and reply, RFC 4443 §4. */
export const ECHO_FIELDS = [...COMMON, ...ECHO_REST] as const satisfies readonly Field[]

/** Packet too big, RFC 4443 §3.2. */
export const TOO_BIG_FIELDS = [
  ...COMMON,
  { name: 'mtu', bit: 32, bits: 32, about: 'largest packet that fits the next hop, in bytes' },
] as const satisfies readonly Field[]

/** Neighbour solicitation and advertisement, RFC 4861 §4.3 and §4.4; options may follow. */
export const NEIGHBOUR_FIELDS = [
  ...COMMON,
  {
    name: 'flags',
    bit: 32,
    bits: 32,
    show: 'hex',
    about: 'of an advertisement: router, solicited, override; else zero',
  },
  { name: 'target', bit: 64, bits: 128, show: 'ipv6', about: 'whose link-layer address is asked for or told' },
] as const satisfies readonly Field[]

/** Bytes of a neighbour solicitation or advertisement without options. */
export const NEIGHBOUR_LEN = lengthOf(NEIGHBOUR_FIELDS)

export const TYPE_UNREACHABLE = 1
export const TYPE_PACKET_TOO_BIG = 2
export const TYPE_TIME_EXCEEDED = 3
export const TYPE_PARAMETER_PROBLEM = 4
export const TYPE_ECHO_REQUEST = 128
export const TYPE_ECHO_REPLY = 129
// Multicast listener discovery, RFC 3810: a host says which groups it listens to.
export const TYPE_LISTENER_REPORT_V2 = 143
// Neighbour discovery, RFC 4861.
export const TYPE_ROUTER_SOLICITATION = 133
export const TYPE_ROUTER_ADVERTISEMENT = 134
export const TYPE_NEIGHBOUR_SOLICITATION = 135
export const TYPE_NEIGHBOUR_ADVERTISEMENT = 136

// Codes of TYPE_UNREACHABLE.
export const CODE_NO_ROUTE = 0

const MTU = offsetOf(TOO_BIG_FIELDS, 'mtu')

/** MTU in bytes of a "packet too big" message; 32 bits, where ICMP for IPv4 has 16. */
export function getMtu(view: DataView, at: number): number {
  return view.getUint32(at + MTU)
}

export function setMtu(view: DataView, at: number, mtuBytes: number): void {
  view.setUint32(at + MTU, mtuBytes)
}

/** Whether a message of that type reports an error; such messages are never answered with another (RFC 4443 §2.4). */
export function isError(type: number): boolean {
  return type < TYPE_ECHO_REQUEST
}

/** Whether a message of that type carries the target of {@link NEIGHBOUR_FIELDS}. */
export function isNeighbour(type: number): boolean {
  return type === TYPE_NEIGHBOUR_SOLICITATION || type === TYPE_NEIGHBOUR_ADVERTISEMENT
}

export type Icmpv6Header = FieldValues<typeof FIELDS>

/** The first eight bytes at `at`, or `truncated`. Any type is a good one here; the checksum is not verified. */
export function parse(buf: Uint8Array, at: number, end: number): Icmpv6Header | DropReason {
  if (limitOf(buf, end) - at < HEADER_LEN) return 'truncated'
  return readFields(FIELDS, buf, at)
}

/** Writes {@link HEADER_LEN} bytes, with the checksum that the header names. */
export function emit(header: Icmpv6Header, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

/** With a `carriage` the checksum is judged too. */
export function describe(buf: Uint8Array, at: number, end: number, carriage?: Carriage): FieldNote[] {
  const length = limitOf(buf, end) - at
  if (length < HEADER_LEN) return describeFields('ICMPv6', FIELDS, buf, at, end)
  const { type, checksum } = readFields(FIELDS, buf, at)
  const problem = transportChecksumProblem(buf, at, length, checksum, PROTOCOL_ICMPV6, carriage)
  return describeFields('ICMPv6', fieldsFor(type), buf, at, end, { checksum: problem })
}

function fieldsFor(type: number) {
  if (type === TYPE_ECHO_REQUEST || type === TYPE_ECHO_REPLY) return ECHO_FIELDS
  if (isNeighbour(type)) return NEIGHBOUR_FIELDS
  return type === TYPE_PACKET_TOO_BIG ? TOO_BIG_FIELDS : FIELDS
}
