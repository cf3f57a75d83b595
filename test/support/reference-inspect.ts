// What the slow twin of the engine knows of an inner packet: read from scratch, field by field, on a plain array.
import type { DropReason } from '../../dataplane/drop-reason.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import * as ipv6Fragment from '../../dataplane/wire/ipv6-fragment.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import { viewOf } from './packets.ts'

export interface Inspected {
  readonly version: number
  /** By the packet's own header. */
  readonly length: number
  /** Where the transport header starts. */
  readonly ipBytes: number
  /** Where the IPv4 header ends; the fixed header of IPv6. */
  readonly optionsEnd: number
  readonly protocol: number
  readonly tos: number
  readonly ttl: number
  readonly source: bigint
  readonly destination: bigint
  /** Whether routers may fragment it. */
  readonly mayFragment: boolean
  /** IP and transport header, 0 unless it is a whole TCP or UDP packet whose lengths agree. */
  readonly headerBytes: number
  /** A fragment other than the first. */
  readonly isLater: boolean
}

/** Header numbers that lead on to another header (RFC 8200 section 4). */
const HOP_BY_HOP = 0
const ROUTING = 43
const FRAGMENT = 44
const AUTHENTICATION = 51
const DESTINATION_OPTIONS = 60
const EXTENSIONS = [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS]
const MOST_EXTENSIONS = 8

/** The packet at the beginning of these bytes, or why there is none. */
export function inspect(bytes: Uint8Array): Inspected | DropReason {
  const first = bytes[0]
  if (first === undefined) return 'truncated'
  if (first >> 4 === 4) return inspectIpv4(bytes)
  return first >> 4 === 6 ? inspectIpv6(bytes) : 'not-ip'
}

function inspectIpv4(bytes: Uint8Array): Inspected | DropReason {
  if (bytes.length < ipv4.HEADER_LEN) return 'truncated'
  const view = viewOf(bytes)
  const ipBytes = ipv4.getHeaderBytes(view, 0)
  const length = ipv4.getTotalLength(view, 0)
  if (ipBytes < ipv4.HEADER_LEN || ipBytes > length) return 'bad-header-length'
  if (length > bytes.length) return 'truncated'
  const word = ipv4.getFragmentWord(view, 0)
  const isWhole = word === 0 || word === ipv4.DONT_FRAGMENT
  const protocol = ipv4.getProtocol(view, 0)
  return {
    version: 4,
    length,
    ipBytes,
    optionsEnd: ipBytes,
    protocol,
    tos: ipv4.getTos(view, 0),
    ttl: ipv4.getTtl(view, 0),
    source: BigInt(ipv4.getSource(view, 0)),
    destination: BigInt(ipv4.getDestination(view, 0)),
    mayFragment: (word & ipv4.DONT_FRAGMENT) === 0,
    headerBytes: isWhole ? headersOf(bytes.slice(0, length), ipBytes, protocol) : 0,
    isLater: (word & ipv4.OFFSET_MASK) !== 0,
  }
}

function inspectIpv6(bytes: Uint8Array): Inspected | DropReason {
  if (bytes.length < ipv6.HEADER_LEN) return 'truncated'
  const view = viewOf(bytes)
  const length = ipv6.HEADER_LEN + ipv6.getPayloadLength(view, 0)
  if (length > bytes.length) return 'truncated'
  const packet = bytes.slice(0, length)
  const carried = behindExtensions(packet)
  if (typeof carried === 'string') return carried
  const { protocol, ipBytes } = carried
  return {
    version: 6,
    length,
    ipBytes,
    optionsEnd: ipv6.HEADER_LEN,
    protocol,
    tos: ipv6.getTrafficClass(view, 0),
    ttl: ipv6.getHopLimit(view, 0),
    source: ipv6.getSource(view, 0),
    destination: ipv6.getDestination(view, 0),
    mayFragment: false,
    headerBytes: headersOf(packet, ipBytes, protocol),
    isLater: protocol === FRAGMENT && ipv6Fragment.getOffsetBytes(view, ipBytes) > 0,
  }
}

/**
 * What the fixed header and its extensions lead to. A fragment header ends the walk: behind it is a piece of something.
 */
function behindExtensions(packet: Uint8Array): { protocol: number; ipBytes: number } | DropReason {
  let protocol = ipv6.getNextHeader(viewOf(packet), 0)
  let ipBytes: number = ipv6.HEADER_LEN
  for (let passed = 0; EXTENSIONS.includes(protocol); passed++) {
    if (passed === MOST_EXTENSIONS) return 'too-many-extensions'
    const header = packet.slice(ipBytes)
    const [next = 0, units = 0] = header
    if (header.length < 8) return 'truncated'
    if (protocol === FRAGMENT) break
    const headerBytes = 8 + units * (protocol === AUTHENTICATION ? 4 : 8)
    if (headerBytes > header.length) return 'truncated'
    protocol = next
    ipBytes += headerBytes
  }
  return { protocol, ipBytes }
}

function headersOf(packet: Uint8Array, ipBytes: number, protocol: number): number {
  const transport = packet.slice(ipBytes)
  const view = viewOf(transport)
  if (protocol === ipv4.PROTOCOL_UDP && transport.length >= udp.HEADER_LEN) {
    return udp.getLength(view, 0) === transport.length ? ipBytes + udp.HEADER_LEN : 0
  }
  if (protocol === ipv4.PROTOCOL_TCP && transport.length >= tcp.HEADER_LEN) {
    const headerBytes = tcp.getHeaderBytes(view, 0)
    return headerBytes >= tcp.HEADER_LEN && headerBytes <= transport.length ? ipBytes + headerBytes : 0
  }
  return 0
}
