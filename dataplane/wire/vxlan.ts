// VXLAN header, RFC 7348 §5. Prepended to the inner Ethernet frame.
import type { DropReason } from '../drop-reason.ts'
import { HEADER_LEN as ETHERNET_HEADER_LEN } from './ethernet.ts'
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

export const FIELDS = [
  { name: 'flags', bit: 0, bits: 8, show: 'hex', about: 'I (0x08) says that the VNI is valid' },
  { name: 'reserved1', bit: 8, bits: 24, show: 'hex', about: 'sent as zero; Linux refuses anything else' },
  { name: 'vni', bit: 32, bits: 24, about: 'which overlay network the frame belongs to' },
  { name: 'reserved2', bit: 56, bits: 8, show: 'hex', about: 'sent as zero; Linux refuses anything else' },
] as const satisfies readonly Field[]

export const HEADER_LEN = lengthOf(FIELDS)

/** The I flag: the VNI is valid. The only flag of RFC 7348. */
export const FLAG_VNI_VALID = 0x08
/**
 * The G flag of the Group Based Policy extension (draft-smith-vxlan-group-policy). Only the kernel's VTEP speaks it: what a
 * TUN hands over has lost its mark.
 */
export const FLAG_GBP = 0x80

const FLAGS = offsetOf(FIELDS, 'flags')
const VNI = offsetOf(FIELDS, 'vni')

/** First 32 bits of a header that carries a VNI and nothing else. */
export const WORD0 = (FLAG_VNI_VALID << 24) >>> 0

/** The first byte. */
export function getFlags(view: DataView, at: number): number {
  return view.getUint8(at + FLAGS)
}

/** 24 bits. */
export function getVni(view: DataView, at: number): number {
  return view.getUint32(at + VNI) >>> 8
}

/** Flags and reserved bits as one unsigned 32-bit number; {@link WORD0} is the only good one. */
export function getWord0(view: DataView, at: number): number {
  return view.getUint32(at + FLAGS)
}

/** VNI and the last reserved byte as one unsigned 32-bit number: `vni * 256` in a good header. */
export function getWord1(view: DataView, at: number): number {
  return view.getUint32(at + VNI)
}

/** Writes the whole header. `vni` is 0 to 2^24-1. */
export function write(view: DataView, at: number, vni: number): void {
  view.setUint32(at + FLAGS, WORD0)
  view.setUint32(at + VNI, vni << 8)
}

export type VxlanHeader = FieldValues<typeof FIELDS>

/**
 * The header at `at`. Refuses as the kernel does (drivers/net/vxlan/vxlan_core.c, vxlan_rcv): `vxlan-short` without
 * room for an inner Ethernet header, `vxlan-no-vni`, and `vxlan-reserved-bits` for anything beyond the I flag and the
 * VNI, though RFC 7348 would have them ignored. Whether the VNI is ours is for the engine to say.
 */
export function parse(buf: Uint8Array, at: number, end: number): VxlanHeader | DropReason {
  if (limitOf(buf, end) - at < HEADER_LEN + ETHERNET_HEADER_LEN) return 'vxlan-short'
  const header = readFields(FIELDS, buf, at)
  if ((header.flags & FLAG_VNI_VALID) === 0) return 'vxlan-no-vni'
  if (header.flags !== FLAG_VNI_VALID || header.reserved1 !== 0 || header.reserved2 !== 0) return 'vxlan-reserved-bits'
  return header
}

/** Writes {@link HEADER_LEN} bytes. */
export function emit(header: VxlanHeader, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

/**
 * With `partial`, the header lies in a fragment or in the quote of an ICMP error: that no frame follows is no fault.
 */
export function describe(buf: Uint8Array, at: number, end: number, partial = false): FieldNote[] {
  const available = limitOf(buf, end) - at
  if (available < HEADER_LEN) return describeFields('VXLAN', FIELDS, buf, at, end)
  const notes = describeFields('VXLAN', FIELDS, buf, at, end, problemsOf(readFields(FIELDS, buf, at)))
  const frameBytes = available - HEADER_LEN
  if (partial || frameBytes >= ETHERNET_HEADER_LEN) return notes
  const problem = `only ${frameBytes} bytes, and its header needs ${ETHERNET_HEADER_LEN}`
  const frame = { layer: 'VXLAN', name: 'frame', at: at + HEADER_LEN, length: frameBytes, value: '' }
  return [...notes, { ...frame, about: 'the inner Ethernet frame', problem }]
}

function problemsOf(header: VxlanHeader): FieldProblems<typeof FIELDS> {
  const gbp = (header.flags & FLAG_GBP) !== 0
  const problems: FieldProblems<typeof FIELDS> = {}
  if ((header.flags & FLAG_VNI_VALID) === 0) problems.flags = 'the I flag is clear: the VNI is not valid'
  else if (gbp) problems.flags = 'the G flag (0x80) is set: Group Based Policy, which is not spoken here'
  else if (header.flags !== FLAG_VNI_VALID) problems.flags = 'reserved bits are set'
  if (header.reserved1 !== 0) problems.reserved1 = gbp ? 'policy bits of Group Based Policy' : 'reserved bits are set'
  if (header.reserved2 !== 0) problems.reserved2 = 'reserved bits are set'
  return problems
}
