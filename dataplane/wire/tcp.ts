// TCP header, RFC 9293 §3.1 (ECN flags: RFC 3168; the AE bit: RFC 9768). Segmentation and coalescing read and rewrite
// it.
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
import { type Carriage, transportChecksumProblem } from './internet-checksum.ts'
import { PROTOCOL_TCP } from './ipv4.ts'
import { describeOptions, numberIn, type OptionName } from './options.ts'

export const FIELDS = [
  { name: 'sourcePort', bit: 0, bits: 16, about: 'port of the sender' },
  { name: 'destinationPort', bit: 16, bits: 16, about: 'port of the receiver' },
  { name: 'sequence', bit: 32, bits: 32, about: 'number of the first payload byte in the stream' },
  { name: 'acknowledgment', bit: 64, bits: 32, about: 'number of the next byte expected, when ACK is set' },
  { name: 'headerWords', bit: 96, bits: 4, about: 'header length in 32-bit words (data offset), 5 without options' },
  { name: 'reserved', bit: 100, bits: 3, about: 'sent as zero, ignored on receipt' },
  { name: 'accurateEcn', bit: 103, bits: 1, about: 'AE, once NS: third bit of the ECN counter (RFC 9768)' },
  {
    name: 'flags',
    bit: 104,
    bits: 8,
    show: 'hex',
    about: 'CWR 0x80, ECE 0x40, URG 0x20, ACK 0x10, PSH 0x08, RST 0x04, SYN 0x02, FIN 0x01',
  },
  { name: 'window', bit: 112, bits: 16, about: 'bytes the sender can take, before window scaling' },
  {
    name: 'checksum',
    bit: 128,
    bits: 16,
    show: 'hex',
    about: 'Internet checksum of header and payload with pseudo header',
  },
  { name: 'urgentPointer', bit: 144, bits: 16, about: 'end of urgent data, when URG is set' },
] as const satisfies readonly Field[]

/** Bytes of the header without options; {@link getHeaderBytes} counts them too. */
export const HEADER_LEN = lengthOf(FIELDS)

export const FLAG_FIN = 0x01
export const FLAG_SYN = 0x02
export const FLAG_RST = 0x04
export const FLAG_PSH = 0x08
export const FLAG_ACK = 0x10
export const FLAG_URG = 0x20
export const FLAG_ECE = 0x40
export const FLAG_CWR = 0x80

const SOURCE_PORT = offsetOf(FIELDS, 'sourcePort')
const DESTINATION_PORT = offsetOf(FIELDS, 'destinationPort')
const SEQUENCE = offsetOf(FIELDS, 'sequence')
const ACKNOWLEDGMENT = offsetOf(FIELDS, 'acknowledgment')
const HEADER_WORDS = offsetOf(FIELDS, 'headerWords')
const FLAGS = offsetOf(FIELDS, 'flags')
const WINDOW = offsetOf(FIELDS, 'window')
export const CHECKSUM_OFFSET = offsetOf(FIELDS, 'checksum')
const URGENT_POINTER = offsetOf(FIELDS, 'urgentPointer')

/** Both ports as one signed 32-bit number, the source in the upper half: an unsigned one above 2^31 would be boxed. */
export function getPorts(view: DataView, at: number): number {
  return view.getInt32(at + SOURCE_PORT)
}

export function getSourcePort(view: DataView, at: number): number {
  return view.getUint16(at + SOURCE_PORT)
}

export function getDestinationPort(view: DataView, at: number): number {
  return view.getUint16(at + DESTINATION_PORT)
}

export function getSequence(view: DataView, at: number): number {
  return view.getUint32(at + SEQUENCE)
}

/** Writes the sequence number modulo 2^32. */
export function setSequence(view: DataView, at: number, sequence: number): void {
  view.setUint32(at + SEQUENCE, sequence)
}

export function getAcknowledgment(view: DataView, at: number): number {
  return view.getUint32(at + ACKNOWLEDGMENT)
}

/** Header length in bytes, 0-60; below {@link HEADER_LEN} it is a lie. */
export function getHeaderBytes(view: DataView, at: number): number {
  return (view.getUint8(at + HEADER_WORDS) >>> 4) << 2
}

/** The byte CWR ECE URG ACK PSH RST SYN FIN. */
export function getFlags(view: DataView, at: number): number {
  return view.getUint8(at + FLAGS)
}

export function setFlags(view: DataView, at: number, flags: number): void {
  view.setUint8(at + FLAGS, flags)
}

/**
 * The AE bit (RFC 9768; NS before), 0 or 1. It shares its byte with the header length, so it is no part of the flags
 * byte.
 */
export function getAccurateEcn(view: DataView, at: number): number {
  return view.getUint8(at + HEADER_WORDS) & 1
}

/**
 * Header length, reserved bits, flags and window as one unsigned 32-bit number: what two segments of a run share, but
 * for PSH ({@link PSH_IN_CONTROL_WORD}).
 */
export function getControlWord(view: DataView, at: number): number {
  return view.getUint32(at + HEADER_WORDS)
}

/** {@link FLAG_PSH} within the word that {@link getControlWord} gives. */
export const PSH_IN_CONTROL_WORD = FLAG_PSH << 16

export function getWindow(view: DataView, at: number): number {
  return view.getUint16(at + WINDOW)
}

export function getChecksum(view: DataView, at: number): number {
  return view.getUint16(at + CHECKSUM_OFFSET)
}

export function setChecksum(view: DataView, at: number, checksum: number): void {
  view.setUint16(at + CHECKSUM_OFFSET, checksum)
}

export function getUrgentPointer(view: DataView, at: number): number {
  return view.getUint16(at + URGENT_POINTER)
}

/**
 * Options of at most 40 bytes, a multiple of 4, as `headerWords` announces them; parseOptions in options.ts takes them
 * apart.
 */
export interface TcpHeader extends FieldValues<typeof FIELDS> {
  readonly options: Uint8Array
}

/**
 * The header at `at`, options copied. `truncated` when less than 20 bytes are there, `bad-header-length` when the
 * header length is below 20 or beyond `end`. The checksum is not verified.
 */
export function parse(buf: Uint8Array, at: number, end: number): TcpHeader | DropReason {
  const available = limitOf(buf, end) - at
  if (available < HEADER_LEN) return 'truncated'
  const fields = readFields(FIELDS, buf, at)
  const headerBytes = fields.headerWords * 4
  if (headerBytes < HEADER_LEN || headerBytes > available) return 'bad-header-length'
  return { ...fields, options: buf.slice(at + HEADER_LEN, at + headerBytes) }
}

/** Writes header and options, with the header length and checksum that the header names. */
export function emit(header: TcpHeader, buf: Uint8Array, at: number): void {
  writeFields(FIELDS, header, buf, at)
  buf.set(header.options, at + HEADER_LEN)
}

const OPTION_NAMES: Readonly<Record<number, OptionName>> = {
  2: { name: 'mss', about: 'largest segment the sender takes, in bytes', show: (data) => numberIn(data, 0, 2) },
  3: { name: 'windowScale', about: 'shift for every later window', show: (data) => numberIn(data, 0, 1) },
  4: { name: 'sackPermitted', about: 'selective acknowledgments are understood (RFC 2018)' },
  5: { name: 'sack', about: 'blocks received beyond a gap (RFC 2018)' },
  8: {
    name: 'timestamps',
    about: 'clock of the sender, and the last one it saw of the other (RFC 7323)',
    show: (data) => `${numberIn(data, 0, 4)}, ${numberIn(data, 4, 4)}`,
  },
}

/** With a `carriage` the checksum is judged too. */
export function describe(buf: Uint8Array, at: number, end: number, carriage?: Carriage): FieldNote[] {
  const limit = limitOf(buf, end)
  if (limit - at < HEADER_LEN) return describeFields('TCP', FIELDS, buf, at, end)
  const { headerWords, reserved, checksum } = readFields(FIELDS, buf, at)
  const headerEnd = at + headerWords * 4
  const notes = describeFields('TCP', FIELDS, buf, at, end, {
    headerWords: headerWordsProblem(headerWords, carriage?.partial === true ? Infinity : limit - at),
    reserved: reserved === 0 ? undefined : 'reserved bits are set',
    checksum: transportChecksumProblem(buf, at, limit - at, checksum, PROTOCOL_TCP, carriage),
  })
  return headerEnd <= at + HEADER_LEN
    ? notes
    : [...notes, ...describeOptions('TCP', OPTION_NAMES, buf.subarray(0, limit), at + HEADER_LEN, headerEnd)]
}

function headerWordsProblem(words: number, available: number): string | undefined {
  if (words * 4 < HEADER_LEN) return 'below the 5 words of a header without options'
  return words * 4 > available ? 'the header would be longer than the packet' : undefined
}
