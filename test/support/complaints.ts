// What may be said against a write into a TUN, and against a frame sent to node B: for tests that feed an engine
// anything.
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import { walkExtensions } from '../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import * as vxlan from '../../dataplane/wire/vxlan.ts'
import { type EncapsulationName, NODE_A, NODE_B, type Written } from './engine-pair.ts'
import { viewOf } from './packets.ts'
import { transportOf } from './transport-of.ts'
import { ENCAP_BYTES } from './vxlan-frame.ts'

/** Null for one whole IP packet, of either family, without a byte behind it. */
export function complaintAboutPacket(packet: Uint8Array): string | null {
  const isIpv6 = packet.length > 0 && ipv4.getVersion(viewOf(packet), 0) === 6
  const header = (isIpv6 ? ipv6 : ipv4).parse(packet, 0, packet.length)
  if (typeof header === 'string') return header
  if (isIpv6 && walkExtensions(viewOf(packet), 0, packet.length) < 0) return 'extension headers'
  return transportOf(packet).length === packet.length ? null : 'length'
}

/** What a kernel takes without complaint: a whole IP packet behind a virtio-net header that fits it. */
export function complaintAboutWrite({ vnet, packet }: Written): string | null {
  const complaint = complaintAboutPacket(packet)
  if (complaint !== null) return complaint
  if (vnet.flags === 0) return Object.values(vnet).some((value) => value !== 0) ? 'stale virtio-net header' : null
  if (vnet.flags !== virtioNet.FLAG_NEEDS_CSUM) return 'flags'
  const { version, protocol, ipBytes } = transportOf(packet)
  const isTcp = protocol === ipv4.PROTOCOL_TCP
  const gsoTcp = version === 4 ? virtioNet.GSO_TCPV4 : virtioNet.GSO_TCPV6
  if (!isTcp && protocol !== ipv4.PROTOCOL_UDP) return 'protocol'
  if (vnet.checksumStart !== ipBytes) return 'checksum start'
  if (vnet.checksumOffset !== (isTcp ? tcp.CHECKSUM_OFFSET : udp.CHECKSUM_OFFSET)) return 'checksum offset'
  if (vnet.headerLength > packet.length) return 'header length'
  if (vnet.gsoType === virtioNet.GSO_NONE) return vnet.gsoSize === 0 ? null : 'size without a type'
  if (vnet.gsoSize === 0) return 'type without a size'
  return vnet.gsoType === (isTcp ? gsoTcp : virtioNet.GSO_UDP_L4) ? null : 'type'
}

/**
 * Null for a whole packet as plain UDP carries it, or for a VXLAN frame from A's VTEP to B's around one of the family
 * that its EtherType names. An IPv4 header checksum that came out of the TUN wrong leaves as it is.
 */
export function complaintAboutSent(frame: Uint8Array, encapsulation: EncapsulationName): string | null {
  if (encapsulation === 'udp') return complaintAboutInner(frame)
  const tunnel = vxlan.parse(frame, 0, frame.length)
  if (typeof tunnel === 'string') return tunnel
  const link = ethernet.parse(frame, vxlan.HEADER_LEN, frame.length)
  if (typeof link === 'string') return link
  if (link.destination !== NODE_B.mac || link.source !== NODE_A.mac) return 'MAC'
  const inner = frame.slice(ENCAP_BYTES)
  const isIpv6 = link.etherType === ethernet.ETHERTYPE_IPV6
  if (!isIpv6 && link.etherType !== ethernet.ETHERTYPE_IPV4) return 'EtherType'
  return complaintAboutInner(inner) ?? (transportOf(inner).version === (isIpv6 ? 6 : 4) ? null : 'EtherType')
}

function complaintAboutInner(packet: Uint8Array): string | null {
  const complaint = complaintAboutPacket(packet)
  if (complaint !== 'bad-checksum') return complaint
  return transportOf(packet).length === packet.length ? null : 'length'
}
