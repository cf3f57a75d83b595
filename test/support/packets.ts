// Builders of inner packets, from the wire files' own emitters. Checksums are right unless said otherwise. A source
// with colons makes the packet an IPv6 one: the same options then mean traffic class and hop limit.

import { parseIpv4, parseIpv6 } from '../../dataplane/wire/address.ts'
import * as icmpv4 from '../../dataplane/wire/icmpv4.ts'
import * as icmpv6 from '../../dataplane/wire/icmpv6.ts'
import { finish, fold, sumPseudoHeader, sumPseudoHeader6, sumWords } from '../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import { PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP } from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import { AUTHENTICATION } from '../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import { transportOf } from './transport-of.ts'

/** `10.244.1.2` to a number. @throws Error for anything else */
export function ip(text: string): number {
  const address = parseIpv4(text)
  if (address === null) throw new Error(`${text} is no IPv4 address`)
  return address
}

/** `fd00::1` to a bigint. @throws Error for anything else */
export function ip6(text: string): bigint {
  const address = parseIpv6(text)
  if (address === null) throw new Error(`${text} is no IPv6 address`)
  return address
}

/** The 16 bytes of an IPv6 address. */
export function bytesOfIpv6(address: bigint): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: 16 }, (_, index) => Number((address >> BigInt(120 - index * 8)) & 0xffn))
}

export interface IpOptions {
  readonly source?: string
  readonly destination?: string
  readonly tos?: number
  readonly ttl?: number
  readonly identification?: number
  /** Flags and fragment offset; DF by default. */
  readonly fragmentWord?: number
  readonly options?: Uint8Array
  readonly protocol?: number
  /** IPv6 alone. */
  readonly flowLabel?: number
  /** Extension headers of IPv6, in order. */
  readonly extensions?: readonly Extension[]
}

/** Kind of an extension header, and what follows its two first bytes: 6 bytes, or 6 and a multiple of 8. */
export type Extension = readonly [kind: number, data: Uint8Array]

/** From a pod of node A to one of node B, as the defaults for IPv4 are. */
export const IPV6 = { source: 'fd00:10:244:1::2', destination: 'fd00:10:244:2::3' } as const

/** How a transport checksum is left: right, wrong, absent (UDP), or only the pseudo-header sum. */
export type ChecksumState = 'good' | 'bad' | 'unused' | 'partial'

const DEFAULT_IP = {
  source: '10.244.1.2',
  destination: '10.244.2.3',
  tos: 0,
  ttl: 63,
  identification: 1000,
  fragmentWord: ipv4.DONT_FRAGMENT,
  options: new Uint8Array(0),
}

/** An IPv4 packet around a transport part. */
export function ipv4Packet(protocol: number, transport: Uint8Array, options: IpOptions = {}): Uint8Array {
  const given = { ...DEFAULT_IP, ...options }
  const headerBytes = ipv4.HEADER_LEN + given.options.length
  const packet = new Uint8Array(headerBytes + transport.length)
  ipv4.emit(
    {
      version: 4,
      headerWords: headerBytes / 4,
      dscp: given.tos >> 2,
      ecn: given.tos & 3,
      totalLength: packet.length,
      identification: given.identification & 0xffff,
      flags: given.fragmentWord >> 13,
      fragmentOffset: given.fragmentWord & ipv4.OFFSET_MASK,
      ttl: given.ttl,
      protocol: options.protocol ?? protocol,
      checksum: 0,
      source: ip(given.source),
      destination: ip(given.destination),
      options: given.options,
    },
    packet,
    0,
  )
  ipv4.setChecksum(viewOf(packet), 0, finish(sumWords(packet, 0, headerBytes)))
  packet.set(transport, headerBytes)
  return packet
}

/** An IPv6 packet around a transport part. */
export function ipv6Packet(protocol: number, transport: Uint8Array, options: IpOptions = {}): Uint8Array {
  const { source = IPV6.source, destination = IPV6.destination, tos = 0, ttl = 63, flowLabel = 0xabcde } = options
  const { extensions = [], protocol: last = protocol } = options
  const kinds = [...extensions.map(([kind]) => kind), last]
  const chain = extensions.flatMap(([kind, data], index) => {
    const length = kind === AUTHENTICATION ? (data.length - 6) / 4 : (data.length - 6) / 8
    return [kinds[index + 1]!, length, ...data]
  })
  const packet = new Uint8Array(ipv6.HEADER_LEN + chain.length + transport.length)
  ipv6.emit(
    {
      version: 6,
      dscp: tos >> 2,
      ecn: tos & 3,
      flowLabel,
      payloadLength: packet.length - ipv6.HEADER_LEN,
      nextHeader: kinds[0]!,
      hopLimit: ttl,
      source: ip6(source),
      destination: ip6(destination),
    },
    packet,
    0,
  )
  packet.set(chain, ipv6.HEADER_LEN)
  packet.set(transport, ipv6.HEADER_LEN + chain.length)
  return packet
}

function isIpv6({ source = '' }: IpOptions): boolean {
  return source.includes(':')
}

/** A packet of the family of its source. */
export function ipPacket(protocol: number, transport: Uint8Array, options: IpOptions = {}): Uint8Array {
  return isIpv6(options) ? ipv6Packet(protocol, transport, options) : ipv4Packet(protocol, transport, options)
}

export interface UdpOptions extends IpOptions {
  readonly sourcePort?: number
  readonly destinationPort?: number
  readonly payload?: Uint8Array
  readonly checksum?: ChecksumState
}

export function udpPacket(options: UdpOptions = {}): Uint8Array {
  const payload = options.payload ?? new Uint8Array(0)
  const transport = new Uint8Array(udp.HEADER_LEN + payload.length)
  const header = {
    sourcePort: options.sourcePort ?? 4000,
    destinationPort: options.destinationPort ?? 5000,
    length: transport.length,
    checksum: 0,
  }
  udp.emit(header, transport, 0)
  transport.set(payload, udp.HEADER_LEN)
  const sum = finishTransport(PROTOCOL_UDP, transport, options)
  udp.setChecksum(viewOf(transport), 0, sum)
  return ipPacket(PROTOCOL_UDP, transport, options)
}

export interface TcpOptions extends IpOptions {
  readonly sourcePort?: number
  readonly destinationPort?: number
  readonly sequence?: number
  readonly acknowledgment?: number
  readonly flags?: number
  readonly accurateEcn?: number
  readonly window?: number
  readonly urgentPointer?: number
  /** A multiple of 4 bytes. */
  readonly tcpOptions?: Uint8Array
  readonly payload?: Uint8Array
  readonly checksum?: ChecksumState
}

export function tcpPacket(options: TcpOptions = {}): Uint8Array {
  const payload = options.payload ?? new Uint8Array(0)
  const tcpOptions = options.tcpOptions ?? new Uint8Array(0)
  const headerBytes = tcp.HEADER_LEN + tcpOptions.length
  const transport = new Uint8Array(headerBytes + payload.length)
  const view = viewOf(transport)
  transport.set(tcpOptions, tcp.HEADER_LEN)
  tcp.emit(
    {
      reserved: 0,
      accurateEcn: options.accurateEcn ?? 0,
      flags: options.flags ?? tcp.FLAG_ACK,
      checksum: 0,
      sourcePort: options.sourcePort ?? 40000,
      destinationPort: options.destinationPort ?? 80,
      sequence: options.sequence ?? 1,
      acknowledgment: options.acknowledgment ?? 7,
      headerWords: headerBytes / 4,
      window: options.window ?? 500,
      urgentPointer: options.urgentPointer ?? 0,
      options: tcpOptions,
    },
    transport,
    0,
  )
  transport.set(payload, headerBytes)
  tcp.setChecksum(view, 0, finishTransport(PROTOCOL_TCP, transport, options))
  return ipPacket(PROTOCOL_TCP, transport, options)
}

export function icmpEcho(options: IpOptions & { readonly payload?: Uint8Array } = {}): Uint8Array {
  const payload = options.payload ?? new Uint8Array(56)
  const transport = new Uint8Array(icmpv4.HEADER_LEN + payload.length)
  const view = viewOf(transport)
  icmpv4.write(view, 0, isIpv6(options) ? icmpv6.TYPE_ECHO_REQUEST : icmpv4.TYPE_ECHO_REQUEST, 0, 0x00010001)
  transport.set(payload, icmpv4.HEADER_LEN)
  const pseudo = isIpv6(options) ? sumPseudo(ipv6.PROTOCOL_ICMPV6, transport.length, options) : 0
  icmpv4.setChecksum(view, 0, finish(sumWords(transport, 0, transport.length, pseudo)))
  return ipPacket(isIpv6(options) ? ipv6.PROTOCOL_ICMPV6 : PROTOCOL_ICMP, transport, options)
}

function sumPseudo(protocol: number, length: number, options: IpOptions): number {
  if (isIpv6(options)) {
    const { source = IPV6.source, destination = IPV6.destination } = options
    return sumPseudoHeader6(ip6(source), ip6(destination), protocol, length)
  }
  const { source = DEFAULT_IP.source, destination = DEFAULT_IP.destination } = options
  return sumPseudoHeader(ip(source), ip(destination), protocol, length)
}

function finishTransport(
  protocol: number,
  transport: Uint8Array,
  options: IpOptions & { readonly checksum?: ChecksumState },
): number {
  const pseudo = sumPseudo(protocol, transport.length, options)
  const state = options.checksum ?? 'good'
  if (state === 'unused') return 0
  if (state === 'partial') return fold(pseudo)
  const good = finish(sumWords(transport, 0, transport.length, pseudo)) || (protocol === PROTOCOL_UDP ? 0xffff : 0)
  return state === 'good' ? good : good ^ 0x0101
}

export interface VnetOptions {
  readonly flags?: number
  readonly gsoType?: number
  readonly headerLength?: number
  readonly gsoSize?: number
  readonly checksumStart?: number
  readonly checksumOffset?: number
}

/** A packet as a TUN gives it: the virtio-net header (all zero by default) in front. */
export function fromTun(packet: Uint8Array, vnet: VnetOptions = {}): Uint8Array {
  const bytes = new Uint8Array(virtioNet.HEADER_LEN + packet.length)
  const { flags = 0, gsoType = 0, headerLength = 0, gsoSize = 0, checksumStart = 0, checksumOffset = 0 } = vnet
  virtioNet.write(viewOf(bytes), 0, flags, gsoType, headerLength, gsoSize, checksumStart, checksumOffset)
  bytes.set(packet, virtioNet.HEADER_LEN)
  return bytes
}

/** A super-packet as a TUN gives it: checksum open, to be cut at `gsoSize`. */
export function superFromTun(packet: Uint8Array, gsoSize: number, gsoFlags = 0): Uint8Array {
  const { version, protocol, ipBytes } = transportOf(packet)
  const isTcp = protocol === PROTOCOL_TCP
  const gsoTcp = version === 4 ? virtioNet.GSO_TCPV4 : virtioNet.GSO_TCPV6
  return fromTun(packet, {
    flags: virtioNet.FLAG_NEEDS_CSUM,
    gsoType: (isTcp ? gsoTcp : virtioNet.GSO_UDP_L4) | gsoFlags,
    gsoSize,
    checksumStart: ipBytes,
    checksumOffset: isTcp ? tcp.CHECKSUM_OFFSET : udp.CHECKSUM_OFFSET,
  })
}

/** A TCP or UDP packet as a TUN gives it when its checksum is left open. */
export function openFromTun(packet: Uint8Array): Uint8Array {
  const { protocol, ipBytes } = transportOf(packet)
  const checksumOffset = protocol === PROTOCOL_TCP ? tcp.CHECKSUM_OFFSET : udp.CHECKSUM_OFFSET
  return fromTun(packet, { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: ipBytes, checksumOffset })
}

/** Bytes 0, 1, 2, … so that a shifted or repeated slice is seen; `from` continues an earlier run. */
export function countingBytes(length: number, from = 0): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => ((from + index) * 7 + ((from + index) >> 8)) & 0xff)
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Whether both lists are the same bytes: quicker by far than `toEqual` where there are many. */
export function sameBytes(left: readonly Uint8Array[], right: readonly Uint8Array[]): boolean {
  return left.length === right.length && left.every((bytes, index) => Buffer.compare(bytes, right[index]!) === 0)
}
