// IPv4 header, RFC 791 §3.1 (DSCP and ECN: RFC 2474, RFC 3168). The packet that the TUN carries starts here.
import type { DropReason } from '../drop-reason.ts'
import {
  describeFields,
  type Field,
  type FieldNote,
  type FieldProblems,
  type FieldValues,
  lengthOf,
  limitOf,
  offsetOf,
  readFields,
  writeFields,
} from './field.ts'
import { checksumProblem, correctChecksum, fold, sumWords } from './internet-checksum.ts'
import { describeOptions, type OptionName } from './options.ts'

/** Every host takes packets of this size (RFC 791 §3.1), so no path is taken for smaller. */
export const LEAST_MTU_BYTES = 576

export const FIELDS = [
  { name: 'version', bit: 0, bits: 4, about: 'always 4' },
  { name: 'headerWords', bit: 4, bits: 4, about: 'header length in 32-bit words (IHL), 5 without options' },
  { name: 'dscp', bit: 8, bits: 6, about: 'class of service (RFC 2474)' },
  { name: 'ecn', bit: 14, bits: 2, about: 'congestion: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE (RFC 3168)' },
  { name: 'totalLength', bit: 16, bits: 16, about: 'bytes of header and payload together' },
  { name: 'identification', bit: 32, bits: 16, about: 'ties the fragments of one packet together' },
  { name: 'flags', bit: 48, bits: 3, show: 'hex', about: '0x2 do not fragment (DF), 0x1 more fragments follow (MF)' },
  { name: 'fragmentOffset', bit: 51, bits: 13, about: 'where this fragment belongs, in units of 8 bytes' },
  {
    name: 'ttl',
    bit: 64,
    bits: 8,
    about: 'hops left; kernels count the hop, VXLAN does not, plain UDP does at both ends',
  },
  { name: 'protocol', bit: 72, bits: 8, about: 'what follows: 1 ICMP, 6 TCP, 17 UDP' },
  { name: 'checksum', bit: 80, bits: 16, show: 'hex', about: 'Internet checksum of the header alone' },
  { name: 'source', bit: 96, bits: 32, show: 'ipv4', about: 'who sent the packet' },
  { name: 'destination', bit: 128, bits: 32, show: 'ipv4', about: 'who shall receive the packet' },
] as const satisfies readonly Field[]

/** Bytes of the header without options; {@link getHeaderBytes} counts them too. */
export const HEADER_LEN = lengthOf(FIELDS)

// Masks of the word that getFragmentWord returns.
export const DONT_FRAGMENT = 0x4000
export const MORE_FRAGMENTS = 0x2000
/** Fragment offset, in units of 8 bytes. */
export const OFFSET_MASK = 0x1fff

/** Of the three bits of `flags`. */
const RESERVED_FLAG = 0x4

export const PROTOCOL_ICMP = 1
export const PROTOCOL_TCP = 6
export const PROTOCOL_UDP = 17

const VERSION = offsetOf(FIELDS, 'version')
const TOS = offsetOf(FIELDS, 'dscp')
const TOTAL_LENGTH = offsetOf(FIELDS, 'totalLength')
const IDENTIFICATION = offsetOf(FIELDS, 'identification')
const FRAGMENT_WORD = offsetOf(FIELDS, 'flags')
const TTL = offsetOf(FIELDS, 'ttl')
const PROTOCOL = offsetOf(FIELDS, 'protocol')
export const CHECKSUM_OFFSET = offsetOf(FIELDS, 'checksum')
export const SOURCE_OFFSET = offsetOf(FIELDS, 'source')
export const DESTINATION_OFFSET = offsetOf(FIELDS, 'destination')

export function getVersion(view: DataView, at: number): number {
  return view.getUint8(at + VERSION) >>> 4
}

/** Header length in bytes, 0-60; below {@link HEADER_LEN} it is a lie. */
export function getHeaderBytes(view: DataView, at: number): number {
  return (view.getUint8(at + VERSION) & 0x0f) << 2
}

/** The whole byte: DSCP in the upper six bits, ECN in the lower two. */
export function getTos(view: DataView, at: number): number {
  return view.getUint8(at + TOS)
}

export function setTos(view: DataView, at: number, tos: number): void {
  view.setUint8(at + TOS, tos)
}

export function getTotalLength(view: DataView, at: number): number {
  return view.getUint16(at + TOTAL_LENGTH)
}

export function setTotalLength(view: DataView, at: number, bytes: number): void {
  view.setUint16(at + TOTAL_LENGTH, bytes)
}

export function getIdentification(view: DataView, at: number): number {
  return view.getUint16(at + IDENTIFICATION)
}

export function setIdentification(view: DataView, at: number, identification: number): void {
  view.setUint16(at + IDENTIFICATION, identification)
}

/**
 * Flags and fragment offset as one 16-bit word; see {@link DONT_FRAGMENT}, {@link MORE_FRAGMENTS}, {@link OFFSET_MASK}.
 */
export function getFragmentWord(view: DataView, at: number): number {
  return view.getUint16(at + FRAGMENT_WORD)
}

export function setFragmentWord(view: DataView, at: number, word: number): void {
  view.setUint16(at + FRAGMENT_WORD, word)
}

export function getTtl(view: DataView, at: number): number {
  return view.getUint8(at + TTL)
}

export function setTtl(view: DataView, at: number, ttl: number): void {
  view.setUint8(at + TTL, ttl)
}

export function getProtocol(view: DataView, at: number): number {
  return view.getUint8(at + PROTOCOL)
}

export function getChecksum(view: DataView, at: number): number {
  return view.getUint16(at + CHECKSUM_OFFSET)
}

export function setChecksum(view: DataView, at: number, checksum: number): void {
  view.setUint16(at + CHECKSUM_OFFSET, checksum)
}

/** Source address as an unsigned 32-bit number. */
export function getSource(view: DataView, at: number): number {
  return view.getUint32(at + SOURCE_OFFSET)
}

export function setSource(view: DataView, at: number, address: number): void {
  view.setUint32(at + SOURCE_OFFSET, address)
}

/** Destination address as an unsigned 32-bit number. */
export function getDestination(view: DataView, at: number): number {
  return view.getUint32(at + DESTINATION_OFFSET)
}

export function setDestination(view: DataView, at: number, address: number): void {
  view.setUint32(at + DESTINATION_OFFSET, address)
}

/**
 * Options of at most 40 bytes, a multiple of 4, as `headerWords` announces them; parseOptions in options.ts takes them
 * apart.
 */
export interface Ipv4Header extends FieldValues<typeof FIELDS> {
  readonly options: Uint8Array
}

/**
 * The header at `at`, options copied. `truncated` when bytes are missing, `bad-version`, `bad-header-length` when the
 * header length is below 20 or above the total length, `bad-checksum`. Bytes behind the total length (Ethernet padding)
 * are no fault.
 */
export function parse(buf: Uint8Array, at: number, end: number): Ipv4Header | DropReason {
  const available = limitOf(buf, end) - at
  if (available < HEADER_LEN) return 'truncated'
  const fields = readFields(FIELDS, buf, at)
  const headerBytes = fields.headerWords * 4
  if (fields.version !== 4) return 'bad-version'
  if (headerBytes < HEADER_LEN || headerBytes > fields.totalLength) return 'bad-header-length'
  if (fields.totalLength > available) return 'truncated'
  if (fold(sumWords(buf, at, at + headerBytes)) !== 0xffff) return 'bad-checksum'
  return { ...fields, options: buf.slice(at + HEADER_LEN, at + headerBytes) }
}

/** Writes header and options, with the lengths and checksum that the header names: also a wrong one, if so asked. */
export function emit(header: Ipv4Header, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
  buf.set(header.options, at + HEADER_LEN)
}

/** The checksum that the header in these bytes ought to carry, whatever it carries now. The header has to be whole. */
export function computeChecksum(buf: Uint8Array, at: number): number {
  const { headerWords, checksum } = readFields(FIELDS, buf, at)
  return correctChecksum(checksum, sumWords(buf, at, at + headerWords * 4))
}

const OPTION_NAMES: Readonly<Record<number, OptionName>> = {
  7: { name: 'recordRoute', about: 'addresses of the routers passed' },
  68: { name: 'timestamp', about: 'times at the routers passed' },
  131: { name: 'looseSourceRoute', about: 'routers to pass, others allowed between' },
  137: { name: 'strictSourceRoute', about: 'routers to pass, no others' },
  148: { name: 'routerAlert', about: 'routers shall look at the packet (RFC 2113)' },
}

/** With `partial`, the packet is the quote in an ICMP error: that its end is missing is no fault. */
export function describe(buf: Uint8Array, at: number, end: number, partial = false): FieldNote[] {
  const limit = limitOf(buf, end)
  if (limit - at < HEADER_LEN) return describeFields('IPv4', FIELDS, buf, at, end)
  const fields = readFields(FIELDS, buf, at)
  const headerEnd = at + fields.headerWords * 4
  const bytes = buf.subarray(0, limit)
  const problems = problemsOf(fields, bytes, at, partial ? Infinity : limit)
  const notes = describeFields('IPv4', FIELDS, buf, at, end, problems)
  return headerEnd <= at + HEADER_LEN
    ? notes
    : [...notes, ...describeOptions('IPv4', OPTION_NAMES, bytes, at + HEADER_LEN, headerEnd)]
}

function problemsOf(
  fields: FieldValues<typeof FIELDS>,
  buf: Uint8Array,
  at: number,
  limit: number,
): FieldProblems<typeof FIELDS> {
  const headerBytes = fields.headerWords * 4
  const problems: FieldProblems<typeof FIELDS> = {}
  if (fields.version !== 4) problems.version = 'not 4'
  if (headerBytes < HEADER_LEN) problems.headerWords = 'below the 5 words of a header without options'
  else if (headerBytes > fields.totalLength) problems.headerWords = 'the header would be longer than the packet'
  else if (at + headerBytes <= buf.length) {
    problems.checksum = checksumProblem(fields.checksum, sumWords(buf, at, at + headerBytes))
  }
  if (fields.totalLength < HEADER_LEN) problems.totalLength = `below the ${HEADER_LEN} bytes of the header`
  else if (at + fields.totalLength > limit) problems.totalLength = `only ${limit - at} bytes are here`
  if ((fields.flags & RESERVED_FLAG) !== 0) problems.flags = 'the reserved bit is set'
  return problems
}
