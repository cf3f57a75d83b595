// What the engine has to know of the inner packet at hand, found out once and kept in one object per direction that is
// overwritten for each packet. Both families end in the same facts, so that the rest of the engine asks no version.
import type { DropReason } from '../drop-reason.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import * as extension from '../wire/ipv6-extension.ts'
import * as ipv6Fragment from '../wire/ipv6-fragment.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'

export class InnerPacket {
  /** Offset of the IP header in packet memory. */
  at = 0
  version = 0
  /** Bytes of the whole packet, by its own header: padding behind it is not part of it. */
  length = 0
  /** IP header with options or extension headers: where the transport header starts. */
  ipBytes = 0
  protocol = 0
  /** IPv4 TOS or IPv6 traffic class. */
  tos = 0
  /** Offset of the addresses, source first, and bytes of both together. */
  addressesAt = 0
  addressBytes = 0
  /** IPv4 without DF; never true for IPv6. */
  routersMayFragment = false
  isFragment = false
  /** A fragment other than the first: no transport header in it. */
  isLaterFragment = false
  /** Which of the socket's source ports its frames leave from; only outbound packets have one. */
  sender = 0
  /**
   * IP and transport header together, 0 unless it is a whole unfragmented TCP or UDP packet with believable lengths.
   */
  headerBytes = 0

  /**
   * Reads the packet of at most `available` bytes at `at`. Null when it is a whole IP packet; the checksums are not
   * looked at. Bounded, allocates nothing, accepts any bytes.
   */
  read(view: DataView, at: number, available: number): DropReason | null {
    this.at = at
    this.headerBytes = 0
    if (available < 1) return 'truncated'
    this.version = ipv4.getVersion(view, at)
    if (this.version === 4) return this.#readIpv4(view, available)
    return this.version === 6 ? this.#readIpv6(view, available) : 'not-ip'
  }

  /** Becomes the same as another: for whoever has to keep the facts longer than the next read. */
  copy(other: InnerPacket): void {
    this.at = other.at
    this.version = other.version
    this.length = other.length
    this.ipBytes = other.ipBytes
    this.protocol = other.protocol
    this.tos = other.tos
    this.addressesAt = other.addressesAt
    this.addressBytes = other.addressBytes
    this.routersMayFragment = other.routersMayFragment
    this.isFragment = other.isFragment
    this.isLaterFragment = other.isLaterFragment
    this.headerBytes = other.headerBytes
  }

  #readIpv4(view: DataView, available: number): DropReason | null {
    const { at } = this
    if (available < ipv4.HEADER_LEN) return 'truncated'
    const ipBytes = ipv4.getHeaderBytes(view, at)
    const length = ipv4.getTotalLength(view, at)
    if (ipBytes < ipv4.HEADER_LEN || length < ipBytes) return 'bad-header-length'
    if (length > available) return 'truncated'
    const fragmentWord = ipv4.getFragmentWord(view, at)
    this.length = length
    this.ipBytes = ipBytes
    this.protocol = ipv4.getProtocol(view, at)
    this.tos = ipv4.getTos(view, at)
    this.addressesAt = at + ipv4.SOURCE_OFFSET
    this.addressBytes = 2 * 4
    this.routersMayFragment = (fragmentWord & ipv4.DONT_FRAGMENT) === 0
    this.isFragment = (fragmentWord & ~ipv4.DONT_FRAGMENT) !== 0
    this.isLaterFragment = (fragmentWord & ipv4.OFFSET_MASK) !== 0
    this.#readTransport(view)
    return null
  }

  #readIpv6(view: DataView, available: number): DropReason | null {
    const { at } = this
    if (available < ipv6.HEADER_LEN) return 'truncated'
    const length = ipv6.HEADER_LEN + ipv6.getPayloadLength(view, at)
    if (length > available) return 'truncated'
    const walked = extension.walkExtensions(view, at, at + length)
    if (walked < 0) return walked === extension.WALK_TRUNCATED ? 'truncated' : 'too-many-extensions'
    this.length = length
    this.ipBytes = extension.walkedOffset(walked)
    this.protocol = extension.walkedProtocol(walked)
    this.tos = ipv6.getTrafficClass(view, at)
    this.addressesAt = at + ipv6.SOURCE_OFFSET
    this.addressBytes = 2 * 16
    this.routersMayFragment = false
    this.isFragment = this.protocol === extension.FRAGMENT
    this.isLaterFragment = this.isFragment && ipv6Fragment.getOffsetBytes(view, at + this.ipBytes) > 0
    this.#readTransport(view)
    return null
  }

  #readTransport(view: DataView): void {
    if (this.isFragment) return
    const transport = this.at + this.ipBytes
    const left = this.length - this.ipBytes
    if (this.protocol === ipv4.PROTOCOL_UDP) {
      if (left >= udp.HEADER_LEN && udp.getLength(view, transport) === left) {
        this.headerBytes = this.ipBytes + udp.HEADER_LEN
      }
    } else if (this.protocol === ipv4.PROTOCOL_TCP && left >= tcp.HEADER_LEN) {
      const bytes = tcp.getHeaderBytes(view, transport)
      if (bytes >= tcp.HEADER_LEN && bytes <= left) this.headerBytes = this.ipBytes + bytes
    }
  }
}

/** Whether both packets have the same source and destination. */
export function sameHosts(view: DataView, a: InnerPacket, b: InnerPacket): boolean {
  if (a.addressBytes !== b.addressBytes) return false
  for (let done = 0; done < a.addressBytes; done += 4) {
    if (view.getInt32(a.addressesAt + done) !== view.getInt32(b.addressesAt + done)) return false
  }
  return true
}
