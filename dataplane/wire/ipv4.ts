// IPv4 header, RFC 791 §3.1 (DSCP and ECN: RFC 2474, RFC 3168). The packet that the TUN carries starts here.
import { type Field, lengthOf, offsetOf } from './field.ts'

export const FIELDS = [
  { name: 'version', bit: 0, bits: 4, about: 'always 4' },
  { name: 'headerWords', bit: 4, bits: 4, about: 'header length in 32-bit words (IHL), 5 without options' },
  { name: 'dscp', bit: 8, bits: 6, about: 'class of service (RFC 2474)' },
  { name: 'ecn', bit: 14, bits: 2, about: 'congestion: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE (RFC 3168)' },
  { name: 'totalLength', bit: 16, bits: 16, about: 'bytes of header and payload together' },
  { name: 'identification', bit: 32, bits: 16, about: 'ties the fragments of one packet together' },
  { name: 'flags', bit: 48, bits: 3, show: 'hex', about: '0x2 do not fragment (DF), 0x1 more fragments follow (MF)' },
  { name: 'fragmentOffset', bit: 51, bits: 13, about: 'where this fragment belongs, in units of 8 bytes' },
  { name: 'ttl', bit: 64, bits: 8, about: 'hops left; the kernels count the hop, the tunnel does not' },
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

/** Flags and fragment offset as one 16-bit word; see {@link DONT_FRAGMENT}, {@link MORE_FRAGMENTS}, {@link OFFSET_MASK}. */
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
