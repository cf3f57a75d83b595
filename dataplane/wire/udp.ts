// UDP header, RFC 768. Twice in every tunnelled UDP packet: the pod's own inside, the tunnel's outside.
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
import { type Carriage, transportChecksumProblem } from './internet-checksum.ts'
import { PROTOCOL_UDP } from './ipv4.ts'

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

/** Both ports as one signed 32-bit number, the source in the upper half. */
export function getPorts(view: DataView, at: number): number {
  return view.getInt32(at + SOURCE_PORT)
}

export function setPorts(view: DataView, at: number, source: number, destination: number): void {
  view.setUint16(at + SOURCE_PORT, source)
  view.setUint16(at + DESTINATION_PORT, destination)
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

export type UdpHeader = FieldValues<typeof FIELDS>

/**
 * The header at `at`; `bad-header-length` when its length field is below 8, `truncated` when bytes are missing. The
 * checksum is not verified.
 */
export function parse(buf: Uint8Array, at: number, end: number): UdpHeader | DropReason {
  const available = limitOf(buf, end) - at
  if (available < HEADER_LEN) return 'truncated'
  const header = readFields(FIELDS, buf, at)
  if (header.length < HEADER_LEN) return 'bad-header-length'
  return header.length > available ? 'truncated' : header
}

/** Writes {@link HEADER_LEN} bytes, with the length and checksum that the header names. */
export function emit(header: UdpHeader, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

/** With a `carriage` the checksum is judged too; over IPv6 there has to be one (RFC 8200 §8.1). */
export function describe(buf: Uint8Array, at: number, end: number, carriage?: Carriage): FieldNote[] {
  const available = limitOf(buf, end) - at
  if (available < HEADER_LEN) return describeFields('UDP', FIELDS, buf, at, end)
  const { length, checksum } = readFields(FIELDS, buf, at)
  const problems: FieldProblems<typeof FIELDS> = {}
  if (length < HEADER_LEN) problems.length = `below the ${HEADER_LEN} bytes of the header`
  else if (length > available && carriage?.partial !== true) problems.length = `only ${available} bytes are here`
  else if (checksum === 0 && typeof carriage?.source === 'bigint' && !carriage.partial)
    problems.checksum = 'none, and IPv6 demands one'
  else if (checksum !== 0)
    problems.checksum = transportChecksumProblem(buf, at, length, checksum, PROTOCOL_UDP, carriage)
  return describeFields('UDP', FIELDS, buf, at, end, problems)
}
