// The slow, obvious twin of segmentation: what a virtio-net super-packet stands for, one packet at a time, with plain
// sums. Used to undo merging before outputs are compared, and as the reference for cutting.
import { finish, sumPseudoHeader, sumPseudoHeader6, sumWords } from '../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import { toWritten, type Written } from './engine-pair.ts'
import { viewOf } from './packets.ts'
import { transportOf } from './transport-of.ts'

/** The packets that a write stands for, checksums complete. */
export function resplit({ vnet, packet }: Written): Uint8Array[] {
  const needsChecksum = (vnet.flags & virtioNet.FLAG_NEEDS_CSUM) !== 0
  const gsoType = vnet.gsoType & ~virtioNet.GSO_ECN
  if (gsoType === virtioNet.GSO_NONE) return [needsChecksum ? withChecksums(packet) : packet]
  const { ipBytes } = transportOf(packet)
  const isTcp = gsoType !== virtioNet.GSO_UDP_L4
  const headerBytes = ipBytes + (isTcp ? tcp.getHeaderBytes(viewOf(packet), ipBytes) : udp.HEADER_LEN)
  const pieces: Uint8Array[] = []
  for (let done = headerBytes; done < packet.length; done += vnet.gsoSize) {
    const payload = packet.slice(done, done + vnet.gsoSize)
    const isLast = done + vnet.gsoSize >= packet.length
    pieces.push(cut(packet, headerBytes, ipBytes, payload, pieces.length, vnet.gsoSize, isTcp, isLast))
  }
  return pieces
}

/**
 * The packets that something read from the TUN (virtio-net header first) stands for. @throws Error for a broken header
 */
export function packetsOf(read: Uint8Array): Uint8Array[] {
  return resplit(toWritten(read))
}

function cut(
  packet: Uint8Array,
  headerBytes: number,
  ipBytes: number,
  payload: Uint8Array,
  index: number,
  gsoSize: number,
  isTcp: boolean,
  isLast: boolean,
): Uint8Array {
  const piece = new Uint8Array(headerBytes + payload.length)
  piece.set(packet.slice(0, headerBytes))
  piece.set(payload, headerBytes)
  const view = viewOf(piece)
  if (ipv4.getVersion(view, 0) === 4) {
    ipv4.setTotalLength(view, 0, piece.length)
    ipv4.setIdentification(view, 0, (ipv4.getIdentification(view, 0) + index) & 0xffff)
  } else {
    ipv6.setPayloadLength(view, 0, piece.length - ipv6.HEADER_LEN)
  }
  if (isTcp) {
    tcp.setSequence(view, ipBytes, (tcp.getSequence(view, ipBytes) + index * gsoSize) >>> 0)
    let flags = tcp.getFlags(view, ipBytes)
    if (!isLast) flags &= ~(tcp.FLAG_FIN | tcp.FLAG_PSH)
    if (index > 0) flags &= ~tcp.FLAG_CWR
    tcp.setFlags(view, ipBytes, flags)
  } else {
    udp.setLength(view, ipBytes, piece.length - ipBytes)
  }
  return checksummed(piece, openPseudoHeader(packet, ipBytes, isTcp))
}

/**
 * Behind IPv6 extension headers the last address may stand in a routing header (RFC 8200 §8.1): there the pseudo-header
 * sum is what the kernel left in the checksum field, the length taken out; elsewhere it is made from the addresses
 * (`null`).
 */
function openPseudoHeader(packet: Uint8Array, ipBytes: number, isTcp: boolean): number | null {
  const view = viewOf(packet)
  if (ipv4.getVersion(view, 0) === 4 || ipBytes === ipv6.HEADER_LEN) return null
  const stored = isTcp ? tcp.getChecksum(view, ipBytes) : udp.getChecksum(view, ipBytes)
  return stored + (~(packet.length - ipBytes) & 0xffff)
}

/** The same packet with its IPv4 header (if it is one) and TCP or UDP checksum computed anew. */
export function withChecksums(packet: Uint8Array): Uint8Array {
  return checksummed(packet, null)
}

/**
 * `open` is the sum of a pseudo-header without its length, where that is not to be made from the packet's addresses.
 */
function checksummed(packet: Uint8Array, open: number | null): Uint8Array {
  const fixed = packet.slice()
  const view = viewOf(fixed)
  const { version, protocol, ipBytes } = transportOf(fixed)
  if (version === 4) {
    ipv4.setChecksum(view, 0, 0)
    ipv4.setChecksum(view, 0, finish(sumWords(fixed, 0, ipBytes)))
  }
  const length = fixed.length - ipBytes
  const made =
    version === 4
      ? sumPseudoHeader(ipv4.getSource(view, 0), ipv4.getDestination(view, 0), protocol, length)
      : sumPseudoHeader6(ipv6.getSource(view, 0), ipv6.getDestination(view, 0), protocol, length)
  const pseudo = open === null ? made : open + length
  if (protocol === ipv4.PROTOCOL_TCP) {
    tcp.setChecksum(view, ipBytes, 0)
    tcp.setChecksum(view, ipBytes, finish(sumWords(fixed, ipBytes, fixed.length, pseudo)))
  } else if (protocol === ipv4.PROTOCOL_UDP) {
    udp.setChecksum(view, ipBytes, 0)
    udp.setChecksum(view, ipBytes, finish(sumWords(fixed, ipBytes, fixed.length, pseudo)) || 0xffff)
  }
  return fixed
}
