// Ethernet II header, IEEE 802.3 §3.2. Inside VXLAN it is the first header of the inner frame: VTEP MACs and the
// EtherType.
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
  { name: 'destination', bit: 0, bits: 48, show: 'mac', about: 'MAC of the receiver; inside the tunnel, of its VTEP' },
  { name: 'source', bit: 48, bits: 48, show: 'mac', about: 'MAC of the sender; inside the tunnel, of its VTEP' },
  { name: 'etherType', bit: 96, bits: 16, show: 'hex', about: 'what follows: 0x0800 is IPv4, 0x0806 ARP, 0x86dd IPv6' },
] as const satisfies readonly Field[]

/** Bytes of the header. No 802.1Q tag: VTEPs send the inner frame untagged (RFC 7348 §6.1). */
export const HEADER_LEN = lengthOf(FIELDS)

export const ETHERTYPE_IPV4 = 0x0800
export const ETHERTYPE_ARP = 0x0806
export const ETHERTYPE_IPV6 = 0x86dd

const DESTINATION = offsetOf(FIELDS, 'destination')
const SOURCE = offsetOf(FIELDS, 'source')
const ETHERTYPE = offsetOf(FIELDS, 'etherType')

const TWO_TO_32 = 0x1_0000_0000

/** Destination MAC as an unsigned 48-bit number. */
export function getDestination(view: DataView, at: number): number {
  return view.getUint16(at + DESTINATION) * TWO_TO_32 + view.getUint32(at + DESTINATION + 2)
}

/** Source MAC as an unsigned 48-bit number. */
export function getSource(view: DataView, at: number): number {
  return view.getUint16(at + SOURCE) * TWO_TO_32 + view.getUint32(at + SOURCE + 2)
}

/**
 * Whether the destination MAC has these upper 16 bits and lower 32 bits (signed): a comparison without large numbers.
 */
export function hasDestination(view: DataView, at: number, high: number, low: number): boolean {
  return view.getInt32(at + DESTINATION + 2) === low && view.getUint16(at + DESTINATION) === high
}

/** The same for the source MAC. */
export function hasSource(view: DataView, at: number, high: number, low: number): boolean {
  return view.getInt32(at + SOURCE + 2) === low && view.getUint16(at + SOURCE) === high
}

/** Whether the source MAC is a group (multicast or broadcast) address: the lowest bit of its first byte (IEEE 802). */
export function hasGroupSource(view: DataView, at: number): boolean {
  return (view.getUint8(at + SOURCE) & 1) !== 0
}

export function getEtherType(view: DataView, at: number): number {
  return view.getUint16(at + ETHERTYPE)
}

/** Writes the whole header; MACs in two halves, upper 16 and lower 32 bits, signed or not. */
export function writeHalves(
  view: DataView,
  at: number,
  destinationHigh: number,
  destinationLow: number,
  sourceHigh: number,
  sourceLow: number,
  etherType: number,
): void {
  view.setUint16(at + DESTINATION, destinationHigh)
  view.setInt32(at + DESTINATION + 2, destinationLow)
  view.setUint16(at + SOURCE, sourceHigh)
  view.setInt32(at + SOURCE + 2, sourceLow)
  view.setUint16(at + ETHERTYPE, etherType)
}

/** Writes the whole header; MACs are unsigned 48-bit numbers. */
export function write(view: DataView, at: number, destination: number, source: number, etherType: number): void {
  const high = (mac: number): number => Math.floor(mac / TWO_TO_32)
  writeHalves(view, at, high(destination), destination >>> 0, high(source), source >>> 0, etherType)
}

export type EthernetHeader = FieldValues<typeof FIELDS>

/** The header at `at`, or `truncated`. Any EtherType is a good one here. */
export function parse(buf: Uint8Array, at: number, end: number): EthernetHeader | DropReason {
  if (limitOf(buf, end) - at < HEADER_LEN) return 'truncated'
  return readFields(FIELDS, buf, at)
}

/** Writes {@link HEADER_LEN} bytes. */
export function emit(header: EthernetHeader, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
}

export function describe(buf: Uint8Array, at: number, end: number): FieldNote[] {
  return describeFields('Ethernet', FIELDS, buf, at, end)
}
