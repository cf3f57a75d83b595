// TCP header, RFC 9293 §3.1 (ECN flags: RFC 3168; the AE bit: RFC 9768). Segmentation and coalescing read and rewrite it.
import { type Field, lengthOf, offsetOf } from './field.ts'

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

/** The AE bit (RFC 9768; NS before), 0 or 1. It shares its byte with the header length, so it is no part of the flags byte. */
export function getAccurateEcn(view: DataView, at: number): number {
  return view.getUint8(at + HEADER_WORDS) & 1
}

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
