// VXLAN header, RFC 7348 §5. Prepended to the inner Ethernet frame.
import { type Field, lengthOf, offsetOf } from './field.ts'

export const FIELDS = [
  { name: 'flags', bit: 0, bits: 8, show: 'hex', about: 'I (0x08) says that the VNI is valid' },
  { name: 'reserved1', bit: 8, bits: 24, show: 'hex', about: 'sent as zero; Linux refuses anything else' },
  { name: 'vni', bit: 32, bits: 24, about: 'which overlay network the frame belongs to' },
  { name: 'reserved2', bit: 56, bits: 8, show: 'hex', about: 'sent as zero; Linux refuses anything else' },
] as const satisfies readonly Field[]

export const HEADER_LEN = lengthOf(FIELDS)

/** The I flag: the VNI is valid. The only flag of RFC 7348. */
export const FLAG_VNI_VALID = 0x08
/** The G flag of the Group Based Policy extension (draft-smith-vxlan-group-policy), which this version does not speak. */
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
