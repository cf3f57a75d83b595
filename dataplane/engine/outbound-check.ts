// Step 2 of the way out: is this a whole IP packet for somebody, and does its virtio-net header tell the truth about
// it?
import type { DropReason } from '../drop-reason.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import type { InnerPacket } from './inner-packet.ts'
import { MAX_HEADER_BYTES } from './segment.ts'

// First bits of addresses that never belong to a lease: 169.254.0.0/16, ff00::/8, fe80::/10.
const IPV4_LINK_LOCAL = 0xa9fe
const IPV6_MULTICAST = 0xff
const IPV6_LINK_LOCAL = 0x3fa

/**
 * Reads what was given as `length` bytes at `at`, its virtio-net header in front of it, into `packet`. Null when it may
 * go on.
 */
export function checkOutbound(view: DataView, packet: InnerPacket, at: number, length: number): DropReason | null {
  const flaw = packet.read(view, at, length)
  if (flaw !== null) return flaw
  if (isNoise(view, packet)) return 'link-local-or-multicast'
  const vnet = vnetOf(at)
  const gsoType = gsoTypeOf(view, at)
  if (gsoType !== virtioNet.GSO_NONE) return checkSuperPacket(view, packet, gsoType, length)
  if ((virtioNet.getFlags(view, vnet) & virtioNet.FLAG_NEEDS_CSUM) === 0) return null
  const start = virtioNet.getChecksumStart(view, vnet)
  const field = start + virtioNet.getChecksumOffset(view, vnet)
  return start < packet.ipBytes || field + 2 > packet.length ? 'vnet-inconsistent' : null
}

/** Multicast, broadcast, link-local: the host's own noise, never for a lease. */
function isNoise(view: DataView, packet: InnerPacket): boolean {
  const destination = view.getUint32(destinationOf(packet))
  if (packet.version === 4) return destination >>> 28 >= 14 || destination >>> 16 === IPV4_LINK_LOCAL
  return destination >>> 24 === IPV6_MULTICAST || destination >>> 22 === IPV6_LINK_LOCAL
}

/** A super-packet's type, sizes and headers agree. `hdr_len` is not looked at: kernels fill it with other things. */
function checkSuperPacket(view: DataView, packet: InnerPacket, gsoType: number, length: number): DropReason | null {
  const isTcp = packet.protocol === ipv4.PROTOCOL_TCP
  const gsoTcp = packet.version === 4 ? virtioNet.GSO_TCPV4 : virtioNet.GSO_TCPV6
  if (gsoType !== (isTcp ? gsoTcp : virtioNet.GSO_UDP_L4)) return 'vnet-inconsistent'
  if (virtioNet.getGsoSize(view, vnetOf(packet.at)) === 0) return 'vnet-inconsistent'
  if (packet.headerBytes === 0 || packet.length !== length) return 'vnet-inconsistent'
  if (packet.headerBytes === packet.length) return 'vnet-inconsistent'
  return packet.headerBytes > MAX_HEADER_BYTES ? 'headers-too-long' : null
}

/** Offset of the destination address. */
export function destinationOf(packet: InnerPacket): number {
  return packet.addressesAt + packet.addressBytes / 2
}

/** GSO type of the packet at `at` without the ECN bit, which only says that CWR may be set. */
export function gsoTypeOf(view: DataView, at: number): number {
  return virtioNet.getGsoType(view, vnetOf(at)) & ~virtioNet.GSO_ECN
}

/** Where the virtio-net header of the packet at `at` stands. */
export function vnetOf(at: number): number {
  return at - virtioNet.HEADER_LEN
}
