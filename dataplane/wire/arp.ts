// ARP for IPv4 over Ethernet, RFC 826. The tunnel carries none, since a TUN has no link layer: what arrives comes from
// a peer whose VTEP asks instead of knowing, and is dropped and shown by name.
import type { DropReason } from '../drop-reason.ts'
import { ETHERTYPE_IPV4 } from './ethernet.ts'
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
  { name: 'hardwareType', bit: 0, bits: 16, about: 'which link layer: 1 Ethernet' },
  { name: 'protocolType', bit: 16, bits: 16, show: 'hex', about: 'whose addresses: 0x0800 IPv4' },
  { name: 'hardwareLength', bit: 32, bits: 8, about: 'bytes of a link-layer address: 6' },
  { name: 'protocolLength', bit: 40, bits: 8, about: 'bytes of a protocol address: 4' },
  { name: 'operation', bit: 48, bits: 16, about: '1 request, 2 reply' },
  { name: 'senderMac', bit: 64, bits: 48, show: 'mac', about: 'MAC of who speaks' },
  { name: 'senderAddress', bit: 112, bits: 32, show: 'ipv4', about: 'address of who speaks' },
  { name: 'targetMac', bit: 144, bits: 48, show: 'mac', about: 'MAC that is asked for, zero in a request' },
  { name: 'targetAddress', bit: 192, bits: 32, show: 'ipv4', about: 'address whose MAC is asked for' },
] as const satisfies readonly Field[]

export const HEADER_LEN = lengthOf(FIELDS)

export const OPERATION_REQUEST = 1

const HARDWARE_ETHERNET = 1
const MAC_BYTES = 6
const IPV4_BYTES = 4

const OPERATION = offsetOf(FIELDS, 'operation')
const TARGET_ADDRESS = offsetOf(FIELDS, 'targetAddress')

export function getOperation(view: DataView, at: number): number {
  return view.getUint16(at + OPERATION)
}

/** The address that is asked for, as an unsigned 32-bit number. */
export function getTargetAddress(view: DataView, at: number): number {
  return view.getUint32(at + TARGET_ADDRESS)
}

export type ArpPacket = FieldValues<typeof FIELDS>

/** The packet at `at`: `truncated`, or `bad-header-length` when its addresses have not the lengths of MAC and IPv4. */
export function parse(buf: Uint8Array, at: number, end: number): ArpPacket | DropReason {
  if (limitOf(buf, end) - at < HEADER_LEN) return 'truncated'
  const packet = readFields(FIELDS, buf, at)
  const fits = packet.hardwareLength === MAC_BYTES && packet.protocolLength === IPV4_BYTES
  return fits ? packet : 'bad-header-length'
}

/** Writes {@link HEADER_LEN} bytes. */
export function emit(packet: ArpPacket, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, packet, buf, at)
}

export function describe(buf: Uint8Array, at: number, end: number): FieldNote[] {
  if (limitOf(buf, end) - at < HEADER_LEN) return describeFields('ARP', FIELDS, buf, at, end)
  const { hardwareType, protocolType, hardwareLength, protocolLength } = readFields(FIELDS, buf, at)
  const problems: FieldProblems<typeof FIELDS> = {}
  if (hardwareType !== HARDWARE_ETHERNET) problems.hardwareType = 'not Ethernet'
  if (protocolType !== ETHERTYPE_IPV4) problems.protocolType = 'not IPv4'
  if (hardwareLength !== MAC_BYTES) problems.hardwareLength = 'not 6'
  if (protocolLength !== IPV4_BYTES) problems.protocolLength = 'not 4'
  return describeFields('ARP', FIELDS, buf, at, end, problems)
}
