// IPv6 fixed header, RFC 8200 §3 (DSCP and ECN: RFC 2474, RFC 3168; flow label: RFC 6437). What may lie between it and
// the transport header is in ipv6-extension.ts. The hot path compares addresses word by word; everything else takes
// bigints.
import type { DropReason } from '../drop-reason.ts'
import {
  describeFields,
  type Field,
  type FieldNote,
  type FieldProblems,
  type FieldValues,
  fieldOf,
  lengthOf,
  limitOf,
  offsetOf,
  readFields,
  writeFields,
} from './field.ts'

/** Every link takes packets of this size (RFC 8200 §5). */
export const LEAST_MTU_BYTES = 1280

export const FIELDS = [
  { name: 'version', bit: 0, bits: 4, about: 'always 6' },
  { name: 'dscp', bit: 4, bits: 6, about: 'class of service, upper part of the traffic class (RFC 2474)' },
  { name: 'ecn', bit: 10, bits: 2, about: 'congestion: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE (RFC 3168)' },
  { name: 'flowLabel', bit: 12, bits: 20, show: 'hex', about: 'the same for all packets of a flow, or 0 (RFC 6437)' },
  { name: 'payloadLength', bit: 32, bits: 16, about: 'bytes behind this header, extension headers among them' },
  { name: 'nextHeader', bit: 48, bits: 8, about: 'what follows: 6 TCP, 17 UDP, 58 ICMPv6, or an extension header' },
  {
    name: 'hopLimit',
    bit: 56,
    bits: 8,
    about: 'hops left; kernels count the hop, VXLAN does not, plain UDP does at both ends',
  },
  { name: 'source', bit: 64, bits: 128, show: 'ipv6', about: 'who sent the packet' },
  { name: 'destination', bit: 192, bits: 128, show: 'ipv6', about: 'who shall receive the packet' },
] as const satisfies readonly Field[]

/** Bytes of the fixed header; extension headers come on top. */
export const HEADER_LEN = lengthOf(FIELDS)

export const PROTOCOL_ICMPV6 = 58

/**
 * Where the traffic class lies in the first 16 bits: it begins in the middle of a byte and ends in the middle of the
 * next.
 */
const CLASS_SHIFT = 16 - fieldOf(FIELDS, 'ecn').bit - fieldOf(FIELDS, 'ecn').bits
const CLASS_MASK = 0xff << CLASS_SHIFT

const VERSION = offsetOf(FIELDS, 'version')
const PAYLOAD_LENGTH = offsetOf(FIELDS, 'payloadLength')
const NEXT_HEADER = offsetOf(FIELDS, 'nextHeader')
const HOP_LIMIT = offsetOf(FIELDS, 'hopLimit')
export const SOURCE_OFFSET = offsetOf(FIELDS, 'source')
export const DESTINATION_OFFSET = offsetOf(FIELDS, 'destination')

export function getVersion(view: DataView, at: number): number {
  return view.getUint8(at + VERSION) >>> 4
}

/** DSCP in the upper six bits, ECN in the lower two: what the type of service is to IPv4. */
export function getTrafficClass(view: DataView, at: number): number {
  return (view.getUint16(at + VERSION) & CLASS_MASK) >>> CLASS_SHIFT
}

/** `trafficClass` is 0-255; version and flow label stay as they are. */
export function setTrafficClass(view: DataView, at: number, trafficClass: number): void {
  view.setUint16(at + VERSION, (view.getUint16(at + VERSION) & ~CLASS_MASK) | (trafficClass << CLASS_SHIFT))
}

/** The lower two bits of the traffic class. */
export function getEcn(view: DataView, at: number): number {
  return getTrafficClass(view, at) & 3
}

/** 20 bits. */
export function getFlowLabel(view: DataView, at: number): number {
  return view.getUint32(at + VERSION) & 0xfffff
}

/** Bytes behind the fixed header. */
export function getPayloadLength(view: DataView, at: number): number {
  return view.getUint16(at + PAYLOAD_LENGTH)
}

export function setPayloadLength(view: DataView, at: number, bytes: number): void {
  view.setUint16(at + PAYLOAD_LENGTH, bytes)
}

/** What follows the fixed header: an extension header or already the transport. */
export function getNextHeader(view: DataView, at: number): number {
  return view.getUint8(at + NEXT_HEADER)
}

export function getHopLimit(view: DataView, at: number): number {
  return view.getUint8(at + HOP_LIMIT)
}

export function setHopLimit(view: DataView, at: number, hopLimit: number): void {
  view.setUint8(at + HOP_LIMIT, hopLimit)
}

/** Word `index` (0-3, 0 the most significant) of the source address, unsigned 32-bit. */
export function getSourceWord(view: DataView, at: number, index: number): number {
  return view.getUint32(at + SOURCE_OFFSET + 4 * index)
}

/** Word `index` (0-3, 0 the most significant) of the destination address, unsigned 32-bit. */
export function getDestinationWord(view: DataView, at: number, index: number): number {
  return view.getUint32(at + DESTINATION_OFFSET + 4 * index)
}

/** The whole source address. Allocates: off the hot path. */
export function getSource(view: DataView, at: number): bigint {
  return addressAt(view, at + SOURCE_OFFSET)
}

/** The whole destination address. Allocates: off the hot path. */
export function getDestination(view: DataView, at: number): bigint {
  return addressAt(view, at + DESTINATION_OFFSET)
}

/** The address whose 16 bytes stand at `at`. Allocates: off the hot path. */
export function addressAt(view: DataView, at: number): bigint {
  return (view.getBigUint64(at) << 64n) | view.getBigUint64(at + 8)
}

/** Writes an address to the 16 bytes at `at`. Off the hot path. */
export function writeAddress(view: DataView, at: number, address: bigint): void {
  view.setBigUint64(at, address >> 64n)
  view.setBigUint64(at + 8, BigInt.asUintN(64, address))
}

export type Ipv6Header = FieldValues<typeof FIELDS>

/**
 * The fixed header at `at`. `bad-version`; `truncated` when bytes of it or of its payload are missing. Bytes behind the
 * payload (Ethernet padding) are no fault. A jumbogram (RFC 2675) has payload length 0 and is read as an empty packet.
 */
export function parse(buf: Uint8Array, at: number, end: number): Ipv6Header | DropReason {
  const available = limitOf(buf, end) - at
  if (available < HEADER_LEN) return 'truncated'
  const header = readFields(FIELDS, buf, at)
  if (header.version !== 6) return 'bad-version'
  return HEADER_LEN + header.payloadLength > available ? 'truncated' : header
}

/** Writes {@link HEADER_LEN} bytes. */
export function emit(header: Ipv6Header, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

/** With `partial`, the packet is the quote in an ICMPv6 error: that its end is missing is no fault. */
export function describe(buf: Uint8Array, at: number, end: number, partial = false): FieldNote[] {
  const payloadBytes = limitOf(buf, end) - at - HEADER_LEN
  if (payloadBytes < 0) return describeFields('IPv6', FIELDS, buf, at, end)
  const { version, payloadLength } = readFields(FIELDS, buf, at)
  const problems: FieldProblems<typeof FIELDS> = {}
  if (version !== 6) problems.version = 'not 6'
  if (payloadLength > payloadBytes && !partial) problems.payloadLength = `only ${payloadBytes} bytes are here`
  return describeFields('IPv6', FIELDS, buf, at, end, problems)
}
