// The slow twin of the engine: one packet at a time, on plain arrays, nothing kept from one packet to the next. It does
// not join, batch or share memory; what it says of a packet is what the fast engine must come to, whatever came before.
// Cutting is that of resplit.ts. Node A sends, node B receives; both are those of engine-pair.ts.

import type { DropReason } from '../../dataplane/drop-reason.ts'
import { OVERHEAD_BYTES } from '../../dataplane/encap/overhead.ts'
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import { readFields } from '../../dataplane/wire/field.ts'
import { finish, fold, sumPseudoHeader, sumPseudoHeader6, sumWords } from '../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import * as vxlan from '../../dataplane/wire/vxlan.ts'
import { type EncapsulationName, NODE_A, NODE_B, PORTS, VNI } from './engine-pair.ts'
import { ip, ip6, viewOf } from './packets.ts'
import { referenceAnswer } from './reference-answer.ts'
import { type Inspected, inspect } from './reference-inspect.ts'
import { resplit, withChecksums } from './resplit.ts'
import { vxlanFrame } from './vxlan-frame.ts'

/** Right, left open by a kernel, left out (UDP over IPv4), or wrong. */
export type ChecksumState = 'good' | 'partial' | 'unused' | 'bad'

/** What has to become of one packet: dropped for a reason, or passed on as these. */
export interface Fate {
  readonly reason: DropReason | null
  /** As they are counted: a super-packet as the packets it stands for when it is cut, as one when it is dropped. */
  readonly packets: number
  readonly bytes: number
  readonly out: readonly Uint8Array[]
  /** ECN bits of the outer header. */
  readonly outerEcn?: number
  /** What the pod is told about its packet. */
  readonly answer?: Uint8Array | null
  /** What became of an inbound transport checksum that is looked at. */
  readonly checksum?: ChecksumState
}

/** Longest headers of a super-packet that is cut: the limit of the engine's slab. */
const LONGEST_HEADERS = 120

const dropped = (reason: DropReason, bytes: number): Fate => ({ reason, packets: 1, bytes, out: [] })

const IPV4_SUBNET = (address: bigint): bigint => address >> 8n
const IPV6_SUBNET = (address: bigint): bigint => address >> 64n

/** Whether an address lies in the lease of a node. */
function isOf(node: typeof NODE_A, version: number, address: bigint): boolean {
  if (version === 4) return IPV4_SUBNET(address) === IPV4_SUBNET(BigInt(ip(node.subnet)))
  return IPV6_SUBNET(address) === IPV6_SUBNET(ip6(node.ipv6Subnet))
}

const mtuOf = (encapsulation: EncapsulationName): number => 1500 - OVERHEAD_BYTES[encapsulation]

/** What node A makes of a read from its TUN, virtio-net header first; it knows node B alone. */
export function referenceOutbound(read: Uint8Array, encapsulation: EncapsulationName): Fate {
  const bytes = read.slice(virtioNet.HEADER_LEN)
  const refuse = (reason: DropReason): Fate => dropped(reason, bytes.length)
  const packet = inspect(bytes)
  if (typeof packet === 'string') return refuse(packet)
  if (isNoise(packet)) return refuse('link-local-or-multicast')
  const vnet = readFields(virtioNet.FIELDS, read, 0)
  const gsoType = vnet.gsoType & ~virtioNet.GSO_ECN
  const lie = gsoType === virtioNet.GSO_NONE ? lieAboutOne(vnet, packet) : lieAboutMany(vnet, packet, bytes.length)
  if (lie !== null) return refuse(lie)
  const tell = (reason: DropReason): Fate => {
    return { ...refuse(reason), answer: referenceAnswer(bytes, packet, reason, mtuOf(encapsulation)) }
  }
  if (!isOf(NODE_B, packet.version, packet.destination)) return tell('no-route')
  const isSuper = gsoType !== virtioNet.GSO_NONE
  const size = isSuper ? packet.headerBytes + vnet.gsoSize : packet.length
  if (size > mtuOf(encapsulation) && !packet.mayFragment) return tell('too-big')
  let whole: Uint8Array = bytes.slice(0, packet.length)
  if (encapsulation === 'udp') {
    if (packet.ttl <= 1) return tell('ttl-expired')
    whole = withOneHopLess(whole, packet)
  }
  const out = isSuper
    ? resplit({ vnet: { ...vnet, flags: virtioNet.FLAG_NEEDS_CSUM, gsoType }, packet: whole })
    : [completed(whole, vnet)]
  const total = out.reduce((sum, piece) => sum + piece.length, 0)
  // CE stays between the endpoints: to the underlay the packet is merely ECN-capable.
  const outerEcn = (packet.tos & 3) === 3 ? 2 : packet.tos & 3
  const frames = encapsulation === 'udp' ? out : out.map((piece) => vxlanFrame(piece))
  return { reason: null, packets: out.length, bytes: total, out: frames, outerEcn }
}

type Vnet = virtioNet.VirtioNetHeader

function isNoise({ version, destination }: Inspected): boolean {
  if (version === 6) return destination >> 120n === 0xffn || destination >> 118n === 0xfe80n >> 6n
  return destination >> 28n >= 0xen || destination >> 16n === 0xa9fen
}

function lieAboutOne(vnet: Vnet, packet: Inspected): DropReason | null {
  if ((vnet.flags & virtioNet.FLAG_NEEDS_CSUM) === 0) return null
  const field = vnet.checksumStart + vnet.checksumOffset
  return vnet.checksumStart < packet.ipBytes || field + 2 > packet.length ? 'vnet-inconsistent' : null
}

function lieAboutMany(vnet: Vnet, packet: Inspected, length: number): DropReason | null {
  const gsoType = vnet.gsoType & ~virtioNet.GSO_ECN
  const right: Record<string, number> = {
    '4 6': virtioNet.GSO_TCPV4,
    '6 6': virtioNet.GSO_TCPV6,
    '4 17': virtioNet.GSO_UDP_L4,
    '6 17': virtioNet.GSO_UDP_L4,
  }
  const isHonest =
    gsoType === right[`${packet.version} ${packet.protocol}`] &&
    vnet.gsoSize > 0 &&
    packet.headerBytes > 0 &&
    packet.length === length &&
    packet.length > packet.headerBytes
  if (!isHonest) return 'vnet-inconsistent'
  return packet.headerBytes > LONGEST_HEADERS ? 'headers-too-long' : null
}

/** An open checksum is completed where the virtio-net header says that it is. */
function completed(packet: Uint8Array, vnet: Vnet): Uint8Array {
  if ((vnet.flags & virtioNet.FLAG_NEEDS_CSUM) === 0) return packet
  const checksum = finish(sumWords(packet, vnet.checksumStart, packet.length))
  const isUdp = vnet.checksumOffset === udp.CHECKSUM_OFFSET
  const done = packet.slice()
  viewOf(done).setUint16(vnet.checksumStart + vnet.checksumOffset, checksum || (isUdp ? 0xffff : 0))
  return done
}

/** The header checksum of IPv4 goes along with the TTL: one that was wrong stays as wrong as it was. */
function withOneHopLess(packet: Uint8Array, { version, ttl }: Inspected): Uint8Array {
  const next = packet.slice()
  const view = viewOf(next)
  if (version === 6) ipv6.setHopLimit(view, 0, ttl - 1)
  else {
    ipv4.setTtl(view, 0, ttl - 1)
    const checksum = fold(ipv4.getChecksum(view, 0) + 0x0100)
    ipv4.setChecksum(view, 0, checksum === 0xffff ? 0 : checksum)
  }
  return next
}

/** A datagram as the kernel hands it to node B. */
export interface Arriving {
  readonly bytes: Uint8Array
  /** Underlay address of the sender. */
  readonly from: string
  readonly tos: number
  /** Of a merged train, or of a kernel's inner super-packet; 0 for neither. */
  readonly segmentSize: number
}

/** What node B makes of a datagram: one fate for each frame in it. It knows node A alone. */
export function referenceInbound(datagram: Arriving, encapsulation: EncapsulationName): Fate[] {
  const { bytes, segmentSize } = datagram
  const inner = inspect(bytes.slice(headersOf(encapsulation)))
  const fills = typeof inner !== 'string' && inner.length === bytes.length - headersOf(encapsulation)
  if (segmentSize === 0 || segmentSize >= bytes.length || fills) return [frameFate(datagram, encapsulation)]
  const fates: Fate[] = []
  for (let at = 0; at < bytes.length; at += segmentSize) {
    const frame = { ...datagram, bytes: bytes.slice(at, at + segmentSize), segmentSize: 0 }
    fates.push(frameFate(frame, encapsulation))
  }
  return fates
}

const headersOf = (encapsulation: EncapsulationName): number =>
  encapsulation === 'udp' ? 0 : vxlan.HEADER_LEN + ethernet.HEADER_LEN

function frameFate({ bytes, from, tos, segmentSize }: Arriving, encapsulation: EncapsulationName): Fate {
  const refuse = (reason: DropReason): Fate => dropped(reason, bytes.length)
  const flaw = encapsulation === 'udp' ? null : flawOfVxlan(bytes)
  if (flaw !== null) return refuse(flaw)
  const behind = bytes.slice(headersOf(encapsulation))
  const packet = inspect(behind)
  if (typeof packet === 'string') return refuse(packet)
  if (packet.version === 4 && fold(sumWords(behind, 0, packet.optionsEnd)) !== 0xffff) return refuse('bad-checksum')
  if (!isOf(NODE_B, packet.version, packet.destination)) return refuse('inner-destination-foreign')
  if (from !== NODE_A.underlay) return refuse('unknown-peer')
  if (!isOf(NODE_A, packet.version, packet.source)) return refuse('inner-source-spoofed')
  let whole = marked(behind.slice(0, packet.length), packet, tos & 3)
  if (whole === null) return refuse('ecn-illegal')
  if (encapsulation === 'udp') {
    if (packet.ttl <= 1) return refuse('ttl-expired')
    whole = withOneHopLess(whole, packet)
  }
  const checksum = packet.headerBytes === 0 ? 'unused' : checksumOf(whole, packet)
  const out = checksum === 'partial' ? finished(whole, packet, segmentSize, mtuOf(encapsulation)) : [whole]
  return { reason: null, packets: 1, bytes: bytes.length, out, checksum }
}

function flawOfVxlan(bytes: Uint8Array): DropReason | null {
  if (bytes.length < headersOf('vxlan')) return 'vxlan-short'
  const tunnel = readFields(vxlan.FIELDS, bytes, 0)
  if ((tunnel.flags & vxlan.FLAG_VNI_VALID) === 0) return 'vxlan-no-vni'
  if (tunnel.vni !== VNI) return 'vni-unknown'
  if (tunnel.flags !== vxlan.FLAG_VNI_VALID || tunnel.reserved1 + tunnel.reserved2 > 0) return 'vxlan-reserved-bits'
  const link = readFields(ethernet.FIELDS, bytes, vxlan.HEADER_LEN)
  if (link.destination !== NODE_B.mac) return 'inner-destination-mac'
  const isGroup = Math.floor(link.source / 2 ** 40) % 2 === 1
  if (isGroup || link.source === 0 || link.source === NODE_B.mac) return 'inner-source-mac'
  const versions: Record<number, number> = { [ethernet.ETHERTYPE_IPV4]: 4, [ethernet.ETHERTYPE_IPV6]: 6 }
  const version = versions[link.etherType]
  if (version === undefined) return 'inner-ethertype'
  const first = bytes[headersOf('vxlan')]
  if (first === undefined) return 'truncated'
  return first >> 4 === version ? null : 'bad-version'
}

/** RFC 6040 section 4.2, by rows of its table: the inner bits, and what each outer value makes of them. */
const ECN_TABLE: readonly (readonly (number | null)[])[] = [
  // outer Not-ECT, ECT(1), ECT(0), CE
  [0, 0, 0, null],
  [1, 1, 1, 3],
  [2, 1, 2, 3],
  [3, 3, 3, 3],
]

/** The packet with its congestion mark; null when the combination is illegal. */
function marked(packet: Uint8Array, { version, tos, optionsEnd }: Inspected, outer: number): Uint8Array | null {
  const ecn = ECN_TABLE[tos & 3]![outer]!
  if (ecn === null) return null
  const next = packet.slice()
  const view = viewOf(next)
  if (version === 6) ipv6.setTrafficClass(view, 0, (tos & ~3) | ecn)
  else if (ecn !== (tos & 3)) {
    ipv4.setTos(view, 0, (tos & ~3) | ecn)
    ipv4.setChecksum(view, 0, 0)
    ipv4.setChecksum(view, 0, finish(sumWords(next, 0, optionsEnd)))
  }
  return next
}

/** What the pod's stack sees of what a kernel left open: the checksum complete, and what was to be cut, cut. */
function finished(packet: Uint8Array, facts: Inspected, segmentSize: number, mtu: number): readonly Uint8Array[] {
  const isTcp = facts.protocol === ipv4.PROTOCOL_TCP
  const isTrain = !isTcp && segmentSize > 0 && packet.length - facts.headerBytes > segmentSize
  const isWhole = (packet.length <= mtu && !isTrain) || (!isTcp && segmentSize === 0)
  if (isWhole) return [withChecksums(packet)]
  const gsoSize = segmentSize > 0 ? segmentSize : mtu - facts.headerBytes
  const gsoType = isTcp ? virtioNet.GSO_TCPV4 : virtioNet.GSO_UDP_L4
  const vnet = {
    flags: virtioNet.FLAG_NEEDS_CSUM,
    gsoType,
    gsoSize,
    headerLength: 0,
    checksumStart: 0,
    checksumOffset: 0,
  }
  return resplit({ vnet, packet })
}

/** Open is a field that holds the pseudo-header sum and nothing else. A sum that happens to be right is right. */
function checksumOf(packet: Uint8Array, facts: Inspected): ChecksumState {
  const { version, protocol, ipBytes, source, destination } = facts
  const length = packet.length - ipBytes
  const pseudo =
    version === 4
      ? sumPseudoHeader(Number(source), Number(destination), protocol, length)
      : sumPseudoHeader6(source, destination, protocol, length)
  const view = viewOf(packet)
  const isUdp = protocol === ipv4.PROTOCOL_UDP
  const stored = isUdp ? udp.getChecksum(view, ipBytes) : tcp.getChecksum(view, ipBytes)
  if (isUdp && stored === 0) return version === 4 ? 'unused' : 'bad'
  if (fold(sumWords(packet, ipBytes, packet.length, pseudo)) === 0xffff) return 'good'
  return stored === fold(pseudo) ? 'partial' : 'bad'
}

/** Destination of all that node A sends. */
export const referenceTarget = (encapsulation: EncapsulationName) => ({
  address: ip(NODE_B.underlay),
  port: PORTS[encapsulation],
})
