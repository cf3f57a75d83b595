// IPv6 fragment header, RFC 8200 §4.5. Only the sender fragments, so it is in the packet when the TUN gets it.
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

export const FIELDS = [
  { name: 'nextHeader', bit: 0, bits: 8, about: 'what the whole packet carries' },
  { name: 'reserved', bit: 8, bits: 8, show: 'hex', about: 'sent as zero, ignored' },
  { name: 'fragmentOffset', bit: 16, bits: 13, about: 'where this fragment belongs, in units of 8 bytes' },
  { name: 'reserved2', bit: 29, bits: 2, show: 'hex', about: 'sent as zero, ignored' },
  { name: 'moreFragments', bit: 31, bits: 1, about: '1 when more fragments follow (M)' },
  { name: 'identification', bit: 32, bits: 32, about: 'ties the fragments of one packet together' },
] as const satisfies readonly Field[]

/** Bytes of the header: always these. */
export const HEADER_LEN = lengthOf(FIELDS)

const FRAGMENT_WORD = offsetOf(FIELDS, 'fragmentOffset')
const IDENTIFICATION = offsetOf(FIELDS, 'identification')
const MORE_FRAGMENTS = 1
const OFFSET_MASK = 0xfff8

/** Where the payload of this fragment belongs, in bytes: 0-65528. */
export function getOffsetBytes(view: DataView, at: number): number {
  return view.getUint16(at + FRAGMENT_WORD) & OFFSET_MASK
}

/**
 * The M bit: 1 when more fragments follow. Both this and the offset 0: an atomic fragment (RFC 6946), in truth a whole
 * packet.
 */
export function getMoreFragments(view: DataView, at: number): number {
  return view.getUint16(at + FRAGMENT_WORD) & MORE_FRAGMENTS
}

export function getIdentification(view: DataView, at: number): number {
  return view.getUint32(at + IDENTIFICATION)
}

export type Ipv6FragmentHeader = FieldValues<typeof FIELDS>

/** The header at `at`, or `truncated`. */
export function parse(buf: Uint8Array, at: number, end: number): Ipv6FragmentHeader | DropReason {
  return limitOf(buf, end) - at < HEADER_LEN ? 'truncated' : readFields(FIELDS, buf, at)
}

/** Writes {@link HEADER_LEN} bytes. */
export function emit(header: Ipv6FragmentHeader, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

/** Reserved bits are marked by nobody: the RFC has them ignored. */
export function describe(buf: Uint8Array, at: number, end: number): FieldNote[] {
  return describeFields('IPv6 fragment', FIELDS, buf, at, end)
}
