// Walks a packet outermost in and describes every header on the way: what traces, the lab and captures print. Takes any
// bytes, truncated or hostile, and never throws; every step of the walk moves at least a header further, so it ends.
import * as arp from './arp.ts'
import * as ethernet from './ethernet.ts'
import { type FieldNote, hexOf, limitOf } from './field.ts'
import * as icmpv4 from './icmpv4.ts'
import * as icmpv6 from './icmpv6.ts'
import type { Carriage } from './internet-checksum.ts'
import * as ipv4 from './ipv4.ts'
import * as ipv6 from './ipv6.ts'
import * as extension from './ipv6-extension.ts'
import * as fragment from './ipv6-fragment.ts'
import * as tcp from './tcp.ts'
import * as udp from './udp.ts'
import * as virtioNet from './virtio-net.ts'
import * as vxlan from './vxlan.ts'

export type Layer = keyof typeof LAYERS

/** UDP port of VXLAN where none is configured: Linux's and flannel's, not IANA's 4789. */
export const VXLAN_PORT = 8472

/** A stretch of bytes that is to be described as one layer, and what the layers around it said. */
interface Stretch {
  readonly buf: Uint8Array
  readonly view: DataView
  readonly at: number
  readonly end: number
  /** Set by the IP layer, or by nobody when the walk starts further in. */
  readonly carriage: Carriage | undefined
  /**
   * The end is elsewhere, and that is no fault: the quote in an ICMP error, or what the first of several fragments
   * holds.
   */
  readonly cut: boolean
  readonly vxlanPort: number
}

/** The notes of one layer, and what lies behind it: another layer, or bytes of no known layer (`null`). */
interface Described {
  readonly notes: readonly FieldNote[]
  readonly next: Layer | null
  readonly rest: Stretch
}

/**
 * Notes of all layers of `buf[at, end)`, starting with `first`, and of the payload and the padding behind them.
 * Knows Ethernet → ARP, IPv4, IPv6 (with its extension headers) → ICMP (with the packet it quotes), TCP, UDP → VXLAN
 * (on `vxlanPort`) → Ethernet → …
 */
export function describeLayers(
  buf: Uint8Array,
  at: number,
  end: number,
  first: Layer,
  vxlanPort: number = VXLAN_PORT,
): FieldNote[] {
  const view = new DataView(buf.buffer, buf.byteOffset, buf.byteLength)
  const notes: FieldNote[] = []
  let layer: Layer | null = first
  let stretch: Stretch = { buf, view, at, end: limitOf(buf, end), carriage: undefined, cut: false, vxlanPort }
  while (layer !== null) {
    const described: Described = LAYERS[layer](stretch)
    notes.push(...described.notes.filter((note) => !(stretch.cut && note.problem === 'truncated')))
    layer = described.next
    stretch = described.rest
  }
  notes.push(...describeRest(stretch.at, stretch.end, 'payload', 'bytes that the headers carry'))
  return notes
}

function describeRest(at: number, end: number, name: string, about: string): FieldNote[] {
  const length = end - at
  return length <= 0 ? [] : [{ layer: name, name: 'bytes', at, length, value: String(length), about }]
}

const LAYERS = {
  'virtio-net': walkVirtioNet,
  ethernet: walkEthernet,
  arp: walkArp,
  ipv4: walkIpv4,
  ipv6: walkIpv6,
  icmpv4: walkIcmpv4,
  icmpv6: walkIcmpv6,
  udp: walkUdp,
  tcp: walkTcp,
  vxlan: walkVxlan,
} as const satisfies Readonly<Record<string, (stretch: Stretch) => Described>>

/** Whether a whole minimal header is there. */
function holds(stretch: Stretch, headerBytes: number): boolean {
  return stretch.end - stretch.at >= headerBytes
}

/** What is behind a header of so many bytes. */
function behind(stretch: Stretch, headerBytes: number): Stretch {
  return { ...stretch, at: Math.min(stretch.at + headerBytes, Math.max(stretch.at, stretch.end)) }
}

function walkVirtioNet(stretch: Stretch): Described {
  const { buf, view, at, end } = stretch
  const notes = virtioNet.describe(buf, at, end)
  const rest = behind(stretch, virtioNet.HEADER_LEN)
  if (!holds(stretch, virtioNet.HEADER_LEN)) return { notes, next: null, rest }
  const next = rest.at < end && ipv6.getVersion(view, rest.at) === 6 ? 'ipv6' : 'ipv4'
  const pending = (virtioNet.getFlags(view, at) & virtioNet.FLAG_NEEDS_CSUM) !== 0
  return { notes, next, rest: { ...rest, carriage: { source: 0, destination: 0, partial: false, pending } } }
}

function walkEthernet(stretch: Stretch): Described {
  const { buf, view, at, end } = stretch
  const notes = ethernet.describe(buf, at, end)
  const next = holds(stretch, ethernet.HEADER_LEN) ? LAYER_OF_ETHERTYPE[ethernet.getEtherType(view, at)] : undefined
  return { notes, next: next ?? null, rest: behind(stretch, ethernet.HEADER_LEN) }
}

function walkArp(stretch: Stretch): Described {
  const { buf, at, end } = stretch
  const rest = behind(stretch, arp.HEADER_LEN)
  const padding = describeRest(rest.at, end, 'padding', 'bytes behind the end of the ARP packet')
  return { notes: [...arp.describe(buf, at, end), ...padding], next: null, rest: { ...rest, end: rest.at } }
}

const LAYER_OF_ETHERTYPE: Readonly<Record<number, Layer>> = {
  [ethernet.ETHERTYPE_IPV4]: 'ipv4',
  [ethernet.ETHERTYPE_ARP]: 'arp',
  [ethernet.ETHERTYPE_IPV6]: 'ipv6',
}

const LAYER_OF_PROTOCOL: Readonly<Record<number, Layer>> = {
  [ipv4.PROTOCOL_ICMP]: 'icmpv4',
  [ipv4.PROTOCOL_TCP]: 'tcp',
  [ipv4.PROTOCOL_UDP]: 'udp',
  [ipv6.PROTOCOL_ICMPV6]: 'icmpv6',
}

/** What an IP packet of that family carries; each family has its own ICMP. */
function layerOf(protocol: number, foreign: Layer): Layer | null {
  const layer = LAYER_OF_PROTOCOL[protocol] ?? null
  return layer === foreign ? null : layer
}

function walkIpv4(stretch: Stretch): Described {
  const { buf, view, at, end, cut } = stretch
  const notes = ipv4.describe(buf, at, end, cut)
  const lost = { notes, next: null, rest: behind(stretch, ipv4.HEADER_LEN) }
  if (!holds(stretch, ipv4.HEADER_LEN)) return lost
  const headerBytes = ipv4.getHeaderBytes(view, at)
  const totalLength = ipv4.getTotalLength(view, at)
  if (ipv4.getVersion(view, at) !== 4 || headerBytes < ipv4.HEADER_LEN || totalLength < headerBytes) return lost
  const packetEnd = Math.min(end, at + totalLength)
  const word = ipv4.getFragmentWord(view, at)
  const fragment = (word & (ipv4.MORE_FRAGMENTS | ipv4.OFFSET_MASK)) !== 0
  const carriage = {
    source: ipv4.getSource(view, at),
    destination: ipv4.getDestination(view, at),
    partial: fragment || cut || packetEnd < at + totalLength,
    pending: stretch.carriage?.pending === true,
  }
  // A later fragment has no transport header: its first bytes are payload.
  const later = (word & ipv4.OFFSET_MASK) !== 0
  return {
    notes: [...notes, ...describeRest(packetEnd, end, 'padding', 'bytes behind the end of the IPv4 packet')],
    next: later ? null : layerOf(ipv4.getProtocol(view, at), 'icmpv6'),
    rest: { ...behind({ ...stretch, end: packetEnd }, headerBytes), carriage, cut: cut || fragment },
  }
}

function walkIcmpv4(stretch: Stretch): Described {
  const { buf, view, at, end } = stretch
  const notes = icmpv4.describe(buf, at, end, stretch.carriage?.partial === true)
  const rest = behind(stretch, icmpv4.HEADER_LEN)
  const quotes = holds(stretch, icmpv4.HEADER_LEN) && icmpv4.isError(icmpv4.getType(view, at))
  return quotes ? { notes, next: 'ipv4', rest: { ...rest, cut: true } } : { notes, next: null, rest }
}

function walkIpv6(stretch: Stretch): Described {
  const { buf, view, at, end, cut } = stretch
  const notes = ipv6.describe(buf, at, end, cut)
  let rest = behind(stretch, ipv6.HEADER_LEN)
  if (!holds(stretch, ipv6.HEADER_LEN) || ipv6.getVersion(view, at) !== 6) return { notes, next: null, rest }
  const announced = rest.at + ipv6.getPayloadLength(view, at)
  rest = { ...rest, end: Math.min(end, announced) }
  const inside = walkExtensions(rest, ipv6.getNextHeader(view, at))
  const carriage = {
    source: ipv6.getSource(view, at),
    destination: ipv6.getDestination(view, at),
    partial: cut || inside.fragment || inside.routed || rest.end < announced,
    pending: stretch.carriage?.pending === true,
  }
  const padding = describeRest(rest.end, end, 'padding', 'bytes behind the end of the IPv6 packet')
  return {
    notes: [...notes, ...inside.notes, ...padding],
    next: inside.later ? null : layerOf(inside.protocol, 'icmpv4'),
    rest: { ...rest, at: inside.at, carriage, cut: cut || inside.fragment },
  }
}

/** The extension headers at the beginning of a stretch: their notes, and what they say about what is behind them. */
function walkExtensions({ buf, view, at, end, cut }: Stretch, first: number) {
  const inside = { notes: [] as FieldNote[], at, protocol: first, fragment: false, later: false, routed: false }
  while (extension.isExtension(inside.protocol)) {
    const kind = inside.protocol
    inside.notes.push(...extension.describe(buf, inside.at, end, kind, cut))
    const bytes = extension.bytesAt(view, inside.at, end, kind)
    if (bytes === 0) return { ...inside, at: end }
    if (kind === extension.ROUTING && extension.getSegmentsLeft(view, inside.at) > 0) inside.routed = true
    if (kind === extension.FRAGMENT) {
      inside.later = fragment.getOffsetBytes(view, inside.at) > 0
      inside.fragment ||= inside.later || fragment.getMoreFragments(view, inside.at) === 1
    }
    inside.protocol = extension.getNext(view, inside.at)
    inside.at += bytes
    // A later fragment has no header of what is carried: its first bytes are payload.
    if (inside.later) break
  }
  return inside
}

function walkIcmpv6(stretch: Stretch): Described {
  const { buf, view, at, end } = stretch
  const notes = icmpv6.describe(buf, at, end, stretch.carriage)
  const type = holds(stretch, icmpv6.HEADER_LEN) ? icmpv6.getType(view, at) : icmpv6.TYPE_ECHO_REQUEST
  const rest = behind(stretch, icmpv6.isNeighbour(type) ? icmpv6.NEIGHBOUR_LEN : icmpv6.HEADER_LEN)
  return icmpv6.isError(type) ? { notes, next: 'ipv6', rest: { ...rest, cut: true } } : { notes, next: null, rest }
}

function walkTcp(stretch: Stretch): Described {
  const { buf, view, at, end } = stretch
  const notes = tcp.describe(buf, at, end, stretch.carriage)
  const headerBytes = holds(stretch, tcp.HEADER_LEN) ? Math.max(tcp.HEADER_LEN, tcp.getHeaderBytes(view, at)) : end - at
  return { notes, next: null, rest: behind(stretch, headerBytes) }
}

function walkUdp(stretch: Stretch): Described {
  const { buf, view, at, end, vxlanPort } = stretch
  const notes = udp.describe(buf, at, end, stretch.carriage)
  const tunnel = holds(stretch, udp.HEADER_LEN) && udp.getDestinationPort(view, at) === vxlanPort
  return { notes, next: tunnel ? 'vxlan' : null, rest: behind(stretch, udp.HEADER_LEN) }
}

function walkVxlan(stretch: Stretch): Described {
  const { buf, at, end, cut } = stretch
  const notes = vxlan.describe(buf, at, end, cut)
  const frame = holds(stretch, vxlan.HEADER_LEN + ethernet.HEADER_LEN)
  return { notes, next: frame ? 'ethernet' : null, rest: { ...behind(stretch, vxlan.HEADER_LEN), carriage: undefined } }
}

const BYTES_PER_LINE = 16

/**
 * Lines of 16 bytes: offset from `at` in hex, the bytes in two groups of eight, and what of them is printable ASCII.
 * `0010  40 00 40 11 b7 5c c0 a8  38 0b c0 a8 38 0c d4 31  |@.@..\..8...8..1|`
 */
export function hexDump(buf: Uint8Array, at: number, end: number): string[] {
  const limit = limitOf(buf, end)
  const lines: string[] = []
  for (let start = at; start < limit; start += BYTES_PER_LINE) {
    const bytes = buf.subarray(start, Math.min(start + BYTES_PER_LINE, limit))
    const half = BYTES_PER_LINE / 2
    const groups = [bytes.subarray(0, half), bytes.subarray(half)].map((group) =>
      hexOf(group, ' ').padEnd(half * 3 - 1),
    )
    const ascii = Array.from(bytes, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('')
    lines.push(`${(start - at).toString(16).padStart(4, '0')}  ${groups.join('  ')}  |${ascii}|`)
  }
  return lines
}
