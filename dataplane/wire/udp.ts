// UDP header, RFC 768. Twice in every tunnelled UDP packet: the pod's own inside, the tunnel's outside.
import { type Field, lengthOf, offsetOf } from './field.ts'

export const FIELDS = [
  { name: 'sourcePort', bit: 0, bits: 16, about: 'port of the sender; outside, a hash of the inner flow' },
  { name: 'destinationPort', bit: 16, bits: 16, about: 'port of the receiver; 8472 is VXLAN on Linux' },
  { name: 'length', bit: 32, bits: 16, about: 'bytes of header and payload together, at least 8' },
  {
    name: 'checksum',
    bit: 48,
    bits: 16,
    show: 'hex',
    about: 'Internet checksum with pseudo header; 0 says none was computed',
  },
] as const satisfies readonly Field[]

export const HEADER_LEN = lengthOf(FIELDS)

const SOURCE_PORT = offsetOf(FIELDS, 'sourcePort')
const DESTINATION_PORT = offsetOf(FIELDS, 'destinationPort')
const LENGTH = offsetOf(FIELDS, 'length')
export const CHECKSUM_OFFSET = offsetOf(FIELDS, 'checksum')

/** Both ports as one unsigned 32-bit number, the source in the upper half. */
export function getPorts(view: DataView, at: number): number {
  return view.getUint32(at + SOURCE_PORT)
}

export function getSourcePort(view: DataView, at: number): number {
  return view.getUint16(at + SOURCE_PORT)
}

export function getDestinationPort(view: DataView, at: number): number {
  return view.getUint16(at + DESTINATION_PORT)
}

export function getLength(view: DataView, at: number): number {
  return view.getUint16(at + LENGTH)
}

export function setLength(view: DataView, at: number, bytes: number): void {
  view.setUint16(at + LENGTH, bytes)
}

/** 0 says that the sender computed none; a computed 0 is sent as 0xffff (RFC 768). */
export function getChecksum(view: DataView, at: number): number {
  return view.getUint16(at + CHECKSUM_OFFSET)
}

export function setChecksum(view: DataView, at: number, checksum: number): void {
  view.setUint16(at + CHECKSUM_OFFSET, checksum)
}
