// struct virtio_net_hdr (linux/virtio_net.h; VIRTIO 1.2 §5.1.6), the ten bytes before every packet of a TUN with
// IFF_VNET_HDR. It says which work is left to the reader: a checksum to complete, a super-packet to cut.
// Little-endian: the order of every machine this runs on, and what TUN uses without TUNSETVNETBE.
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

export const FIELDS = [
  { name: 'flags', bit: 0, bits: 8, show: 'hex', about: '0x01 the checksum is to be completed, 0x02 it was verified' },
  {
    name: 'gsoType',
    bit: 8,
    bits: 8,
    show: 'hex',
    about: '0 one packet; super-packet of 1 TCPv4, 3 UDP fragments, 4 TCPv6, 5 UDP; 0x80 with ECN',
  },
  {
    name: 'headerLength',
    bit: 16,
    bits: 16,
    littleEndian: true,
    about: 'bytes of headers before the payload of a super-packet',
  },
  {
    name: 'gsoSize',
    bit: 32,
    bits: 16,
    littleEndian: true,
    about: 'payload bytes of each packet cut from a super-packet',
  },
  {
    name: 'checksumStart',
    bit: 48,
    bits: 16,
    littleEndian: true,
    about: 'first byte that the checksum to complete covers',
  },
  {
    name: 'checksumOffset',
    bit: 64,
    bits: 16,
    littleEndian: true,
    about: 'where the checksum goes, counted from checksumStart',
  },
] as const satisfies readonly Field[]

export const HEADER_LEN = lengthOf(FIELDS)

/** VIRTIO_NET_HDR_F_NEEDS_CSUM. */
export const FLAG_NEEDS_CSUM = 1
/** VIRTIO_NET_HDR_F_DATA_VALID. */
export const FLAG_DATA_VALID = 2

export const GSO_NONE = 0
export const GSO_TCPV4 = 1
/** UDP fragmentation offload (UFO): the pieces are IP fragments. */
export const GSO_UDP = 3
export const GSO_TCPV6 = 4
/** UDP segmentation offload (USO): the pieces are datagrams. */
export const GSO_UDP_L4 = 5
/** Or-ed to a TCP type: the super-packet carries CWR, which belongs on the first piece alone. */
export const GSO_ECN = 0x80

const GSO_TYPES: ReadonlySet<number> = new Set([
  GSO_NONE,
  GSO_UDP,
  GSO_UDP_L4,
  GSO_TCPV4,
  GSO_TCPV6,
  GSO_TCPV4 | GSO_ECN,
  GSO_TCPV6 | GSO_ECN,
])

const GSO_NAMES: Readonly<Record<number, string>> = {
  [GSO_NONE]: 'none',
  [GSO_TCPV4]: 'TCPv4',
  [GSO_UDP]: 'UDP fragments',
  [GSO_TCPV6]: 'TCPv6',
  [GSO_UDP_L4]: 'UDP',
}

/** A `gsoType` in a word, with or without GSO_ECN; `type N` where VIRTIO has no such. */
export function gsoTypeName(gsoType: number): string {
  return GSO_NAMES[gsoType & ~GSO_ECN] ?? `type ${gsoType}`
}

const FLAGS = offsetOf(FIELDS, 'flags')
const GSO_TYPE = offsetOf(FIELDS, 'gsoType')
const HEADER_LENGTH = offsetOf(FIELDS, 'headerLength')
const GSO_SIZE = offsetOf(FIELDS, 'gsoSize')
const CHECKSUM_START = offsetOf(FIELDS, 'checksumStart')
const CHECKSUM_OFFSET = offsetOf(FIELDS, 'checksumOffset')

export function getFlags(view: DataView, at: number): number {
  return view.getUint8(at + FLAGS)
}

/** The type with its {@link GSO_ECN} bit. */
export function getGsoType(view: DataView, at: number): number {
  return view.getUint8(at + GSO_TYPE)
}

/** Bytes, a hint of the kernel; a reader finds the headers itself. */
export function getHeaderLength(view: DataView, at: number): number {
  return view.getUint16(at + HEADER_LENGTH, true)
}

/** Payload bytes of each piece. */
export function getGsoSize(view: DataView, at: number): number {
  return view.getUint16(at + GSO_SIZE, true)
}

/** Bytes from the start of the packet (which is behind this header). */
export function getChecksumStart(view: DataView, at: number): number {
  return view.getUint16(at + CHECKSUM_START, true)
}

/** Bytes from {@link getChecksumStart}. */
export function getChecksumOffset(view: DataView, at: number): number {
  return view.getUint16(at + CHECKSUM_OFFSET, true)
}

/** Writes the whole header. Lengths and offsets are bytes, 0-65535. */
export function write(
  view: DataView,
  at: number,
  flags: number,
  gsoType: number,
  headerLength: number,
  gsoSize: number,
  checksumStart: number,
  checksumOffset: number,
): void {
  view.setUint8(at + FLAGS, flags)
  view.setUint8(at + GSO_TYPE, gsoType)
  view.setUint16(at + HEADER_LENGTH, headerLength, true)
  view.setUint16(at + GSO_SIZE, gsoSize, true)
  view.setUint16(at + CHECKSUM_START, checksumStart, true)
  view.setUint16(at + CHECKSUM_OFFSET, checksumOffset, true)
}

export type VirtioNetHeader = FieldValues<typeof FIELDS>

/**
 * The header at `at`, with the packet behind it up to `end`. `truncated`, or `vnet-inconsistent` when the GSO type is
 * unknown, a super-packet has no piece size, or the checksum to complete lies outside the packet. `headerLength` is not
 * judged: the kernel puts there what happens to lie in its first buffer.
 */
export function parse(buf: Uint8Array, at: number, end: number): VirtioNetHeader | DropReason {
  const packetBytes = limitOf(buf, end) - at - HEADER_LEN
  if (packetBytes < 0) return 'truncated'
  const header = readFields(FIELDS, buf, at)
  return Object.keys(problemsOf(header, packetBytes)).length === 0 ? header : 'vnet-inconsistent'
}

/** Writes {@link HEADER_LEN} bytes. */
export function emit(header: VirtioNetHeader, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

export function describe(buf: Uint8Array, at: number, end: number): FieldNote[] {
  const packetBytes = limitOf(buf, end) - at - HEADER_LEN
  const problems = packetBytes < 0 ? {} : problemsOf(readFields(FIELDS, buf, at), packetBytes)
  return describeFields('virtio-net', FIELDS, buf, at, end, problems)
}

function problemsOf(header: VirtioNetHeader, packetBytes: number): FieldProblems<typeof FIELDS> {
  const problems: FieldProblems<typeof FIELDS> = {}
  if (!GSO_TYPES.has(header.gsoType)) problems.gsoType = 'unknown'
  else if (header.gsoType !== GSO_NONE && header.gsoSize === 0) problems.gsoSize = 'a super-packet of empty pieces'
  const checksumEnd = header.checksumStart + header.checksumOffset + 2
  if ((header.flags & FLAG_NEEDS_CSUM) !== 0 && checksumEnd > packetBytes) {
    problems.checksumStart = `the checksum would end at byte ${checksumEnd} of a packet of ${packetBytes}`
  }
  return problems
}
