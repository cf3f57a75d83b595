// The structures that sendmmsg(2) and recvmmsg(2) read and write, laid out in packet memory. LP64, little-endian:
// x86-64 and arm64 alike. Offsets from bits/socket.h, netinet/in.h and linux/socket.h.
import { IOVEC_BYTES, type PacketMemory } from '../../memory/packet-memory.ts'
import * as ipv6 from '../../wire/ipv6.ts'
import type { SocketAddresses } from '../socket-addresses.ts'

/** struct mmsghdr: struct msghdr (56 bytes) and msg_len. */
const MMSGHDR_BYTES = 64
const NAME = 0
const NAME_LENGTH = 8
const IOV = 16
const IOV_LENGTH = 24
const CONTROL = 32
const CONTROL_LENGTH = 40
const FLAGS = 48
const RECEIVED_LENGTH = 56

/** struct sockaddr_in6, the longer one of the two. */
export const SOCKADDR_BYTES = 28
const SOCKADDR_IN_BYTES = 16
const PORT = 2
const ADDRESS = 4
/** Where an IPv6 address stands in it. */
export const WIDE_ADDRESS = 8
/** Names are kept on this stride. */
const NAME_BYTES = 32

/** struct cmsghdr: length, level, type; data follows, entries are padded to 8 bytes. */
const CMSG_HEADER_BYTES = 16
const CMSG_LEVEL = 8
const CMSG_TYPE = 12

export const AF_INET = 2
export const AF_INET6 = 10
const SOL_IP = 0
const SOL_IPV6 = 41
const SOL_SOCKET = 1
const SOL_UDP = 17
const IP_TOS = 1
const IPV6_TCLASS = 67
const UDP_SEGMENT = 103
const UDP_GRO = 104
const SO_RXQ_OVFL = 40

/** Room for control data of one message: segment size, TOS and overflow count, 24 bytes each, with some to spare. */
const CONTROL_BYTES = 96

/** The family of sockets for an address: IPv4 addresses are numbers, IPv6 ones bigints. */
export function familyOf(address: number | bigint): number {
  return typeof address === 'number' ? AF_INET : AF_INET6
}

/** struct sockaddr_in or sockaddr_in6 for bind(2). */
export function socketAddress(address: number | bigint, port: number): Uint8Array {
  const bytes = new Uint8Array(typeof address === 'number' ? SOCKADDR_IN_BYTES : SOCKADDR_BYTES)
  const view = new DataView(bytes.buffer)
  view.setUint16(0, familyOf(address), true)
  view.setUint16(PORT, port)
  if (typeof address === 'number') {
    view.setUint32(ADDRESS, address)
  } else {
    ipv6.writeAddress(view, WIDE_ADDRESS, address)
  }
  return bytes
}

/** Port of either. */
export function portOf(name: Uint8Array): number {
  return new DataView(name.buffer, name.byteOffset).getUint16(PORT)
}

/** An array of message headers, each with its own socket address and control data, pointers set once. */
export class MessageHeaders {
  readonly #memory: PacketMemory
  readonly #view: DataView
  readonly #headers: number
  readonly #names: number
  readonly #controls: number
  /** What there is to know of IPv6, `null` for headers of IPv4. */
  readonly #wide: SocketAddresses | null

  constructor(memory: PacketMemory, count: number, wide: SocketAddresses | null = null) {
    this.#wide = wide
    this.#memory = memory
    this.#view = memory.view
    this.#headers = memory.reserve(count * MMSGHDR_BYTES)
    this.#names = memory.reserve(count * NAME_BYTES)
    this.#controls = memory.reserve(count * CONTROL_BYTES)
    for (let index = 0; index < count; index++) {
      const header = this.#header(index)
      this.#setPointer(header + NAME, this.#name(index))
      this.#setPointer(header + CONTROL, this.#control(index))
      this.#view.setUint32(header + NAME_LENGTH, wide === null ? SOCKADDR_IN_BYTES : SOCKADDR_BYTES, true)
      this.#view.setUint16(this.#name(index), wide === null ? AF_INET : AF_INET6, true)
    }
  }

  /** Process address of header `index`, as the system calls want it. */
  addressOf(index: number): number {
    return this.#memory.addressAt(this.#header(index))
  }

  #header(index: number): number {
    return this.#headers + index * MMSGHDR_BYTES
  }

  #name(index: number): number {
    return this.#names + index * NAME_BYTES
  }

  #control(index: number): number {
    return this.#controls + index * CONTROL_BYTES
  }

  #setPointer(at: number, target: number): void {
    this.#view.setUint32(at, this.#memory.baseLow + target, true)
    this.#view.setUint32(at + 4, this.#memory.baseHigh, true)
  }

  /** Points header `index` at `count` iovecs from `iovecs` on. */
  setIovecs(index: number, iovecs: number, count: number): void {
    const header = this.#header(index)
    this.#setPointer(header + IOV, iovecs)
    this.#view.setUint32(header + IOV_LENGTH, count, true)
  }

  /** `address` as a SendBatch carries it. */
  setDestination(index: number, address: number, port: number): void {
    const name = this.#name(index)
    this.#view.setUint16(name + PORT, port)
    if (this.#wide === null) this.#view.setUint32(name + ADDRESS, address)
    else this.#wide.write(address, this.#view, name + WIDE_ADDRESS)
  }

  /** Control data of a send: `segmentSize` (0: one datagram) and the outer `tos` (0: the socket's own). */
  setSendControl(index: number, segmentSize: number, tos: number): void {
    const view = this.#view
    const control = this.#control(index)
    let length = 0
    if (segmentSize !== 0) {
      view.setUint32(control, CMSG_HEADER_BYTES + 2, true)
      view.setUint32(control + CMSG_LEVEL, SOL_UDP, true)
      view.setUint32(control + CMSG_TYPE, UDP_SEGMENT, true)
      view.setUint16(control + CMSG_HEADER_BYTES, segmentSize, true)
      length = CMSG_HEADER_BYTES + 8
    }
    if (tos !== 0) {
      view.setUint32(control + length, CMSG_HEADER_BYTES + 4, true)
      view.setUint32(control + length + CMSG_LEVEL, this.#wide === null ? SOL_IP : SOL_IPV6, true)
      view.setUint32(control + length + CMSG_TYPE, this.#wide === null ? IP_TOS : IPV6_TCLASS, true)
      view.setUint32(control + length + CMSG_HEADER_BYTES, tos, true)
      length += CMSG_HEADER_BYTES + 8
    }
    view.setUint32(this.#header(index) + CONTROL_LENGTH, length, true)
  }

  /** Makes header `index` ready to receive: the kernel shrinks these lengths to what it wrote. */
  resetReceive(index: number): void {
    const header = this.#header(index)
    this.#view.setUint32(header + NAME_LENGTH, NAME_BYTES, true)
    this.#view.setUint32(header + CONTROL_LENGTH, CONTROL_BYTES, true)
    this.#view.setUint32(header + FLAGS, 0, true)
  }

  receivedLength(index: number): number {
    return this.#view.getUint32(this.#header(index) + RECEIVED_LENGTH, true)
  }

  receivedFlags(index: number): number {
    return this.#view.getUint32(this.#header(index) + FLAGS, true)
  }

  /** As a SendBatch would carry it. */
  sourceAddress(index: number): number {
    const name = this.#name(index)
    if (this.#wide === null) return this.#view.getUint32(name + ADDRESS)
    return this.#wide.numberOf(this.#view, name + WIDE_ADDRESS)
  }

  sourcePort(index: number): number {
    return this.#view.getUint16(this.#name(index) + PORT)
  }

  /** Control data that came with datagram `index`, into the fields of `into`. Absent ones are left as they are. */
  readControl(index: number, into: ReceivedControl): void {
    const view = this.#view
    const length = view.getUint32(this.#header(index) + CONTROL_LENGTH, true)
    let at = this.#control(index)
    const end = at + Math.min(length, CONTROL_BYTES)
    while (at + CMSG_HEADER_BYTES <= end) {
      const entryBytes = view.getUint32(at, true)
      if (entryBytes < CMSG_HEADER_BYTES) return
      const level = view.getUint32(at + CMSG_LEVEL, true)
      const type = view.getUint32(at + CMSG_TYPE, true)
      const data = at + CMSG_HEADER_BYTES
      if (level === SOL_UDP && type === UDP_GRO) into.segmentSize = view.getUint32(data, true)
      else if (level === SOL_IP && type === IP_TOS) into.tos = view.getUint8(data)
      else if (level === SOL_IPV6 && type === IPV6_TCLASS) into.tos = view.getUint32(data, true) & 0xff
      else if (level === SOL_SOCKET && type === SO_RXQ_OVFL) into.overflowed = view.getUint32(data, true)
      at += (entryBytes + 7) & ~7
    }
  }

  /** One iovec per header, each covering one slot. Returns the array's offset, for tests. */
  setSlots(count: number, slotAt: (index: number) => number, slotBytes: number): number {
    const iovecs = this.#memory.reserve(count * IOVEC_BYTES)
    for (let index = 0; index < count; index++) {
      this.#memory.setIovec(iovecs, index, slotAt(index), slotBytes)
      this.setIovecs(index, iovecs + index * IOVEC_BYTES, 1)
    }
    return iovecs
  }
}

export interface ReceivedControl {
  segmentSize: number
  tos: number
  overflowed: number
}
