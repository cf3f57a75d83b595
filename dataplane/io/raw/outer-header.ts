// The outer IP header of the raw driver, for either family: what is the same for every datagram is written once.
import { complement, type PacketMemory } from '../../memory/packet-memory.ts'
import { formatIpv4, formatIpv6 } from '../../wire/address.ts'
import * as ipv4 from '../../wire/ipv4.ts'
import * as ipv6 from '../../wire/ipv6.ts'
import type { SocketAddresses } from '../socket-addresses.ts'

/** Hops, as Linux gives them. */
const TTL = 64

/** A header that is kept at one place in packet memory. */
export interface OuterHeader {
  readonly bytes: number
  /** Completes the header in front of `payloadBytes`, for the receiver with that number. */
  write(payloadBytes: number, destination: number, tos: number): void
  /** Sum of both addresses: the pseudo header's, as far as it is this header's. */
  sumAddresses(): number
  /** The receiver's address as Node's packages want it. */
  textOf(destination: number): string
}

/** RFC 791, identification as RFC 6864 has it for datagrams that may be fragmented. */
export class Ipv4OuterHeader implements OuterHeader {
  readonly bytes = ipv4.HEADER_LEN
  readonly #memory: PacketMemory
  readonly #at: number
  #identification = 0
  #last = 0
  #lastText = '0.0.0.0'

  constructor(memory: PacketMemory, at: number, source: number) {
    this.#memory = memory
    this.#at = at
    const header = {
      ...{ version: 4, headerWords: ipv4.HEADER_LEN / 4, dscp: 0, ecn: 0, totalLength: 0 },
      ...{ identification: 0, flags: 0, fragmentOffset: 0, ttl: TTL, protocol: ipv4.PROTOCOL_UDP, checksum: 0 },
      ...{ source, destination: 0, options: new Uint8Array(0) },
    }
    ipv4.emit(header, memory.bytes, at)
  }

  write(payloadBytes: number, destination: number, tos: number): void {
    const { view } = this.#memory
    const at = this.#at
    // Zero would let the kernel choose.
    this.#identification = (this.#identification % 0xffff) + 1
    ipv4.setTos(view, at, tos)
    ipv4.setTotalLength(view, at, ipv4.HEADER_LEN + payloadBytes)
    ipv4.setIdentification(view, at, this.#identification)
    ipv4.setDestination(view, at, destination)
    ipv4.setChecksum(view, at, 0)
    ipv4.setChecksum(view, at, complement(this.#memory.sum(at, ipv4.HEADER_LEN)))
  }

  sumAddresses(): number {
    return this.#memory.sum(this.#at + ipv4.SOURCE_OFFSET, ipv4.HEADER_LEN - ipv4.SOURCE_OFFSET)
  }

  textOf(destination: number): string {
    if (destination !== this.#last) {
      this.#last = destination
      this.#lastText = formatIpv4(destination)
    }
    return this.#lastText
  }
}

/** RFC 8200 section 3, with the flow label 0 that the kernel's VTEP sends. */
export class Ipv6OuterHeader implements OuterHeader {
  readonly bytes = ipv6.HEADER_LEN
  readonly #memory: PacketMemory
  readonly #at: number
  readonly #addresses: SocketAddresses
  #lastAddress = 0n
  #lastText = '::'

  constructor(memory: PacketMemory, at: number, source: bigint, addresses: SocketAddresses) {
    this.#memory = memory
    this.#at = at
    this.#addresses = addresses
    const header = {
      ...{ version: 6, dscp: 0, ecn: 0, flowLabel: 0, payloadLength: 0, nextHeader: ipv4.PROTOCOL_UDP },
      ...{ hopLimit: TTL, source, destination: 0n },
    }
    ipv6.emit(header, memory.bytes, at)
  }

  write(payloadBytes: number, destination: number, tos: number): void {
    const { view } = this.#memory
    ipv6.setTrafficClass(view, this.#at, tos)
    ipv6.setPayloadLength(view, this.#at, payloadBytes)
    this.#addresses.write(destination, view, this.#at + ipv6.DESTINATION_OFFSET)
  }

  sumAddresses(): number {
    return this.#memory.sum(this.#at + ipv6.SOURCE_OFFSET, ipv6.HEADER_LEN - ipv6.SOURCE_OFFSET)
  }

  /** Of the receiver that {@link write} was told of last. */
  textOf(): string {
    const address = ipv6.getDestination(this.#memory.view, this.#at)
    if (address !== this.#lastAddress) {
      this.#lastAddress = address
      this.#lastText = formatIpv6(address)
    }
    return this.#lastText
  }
}
