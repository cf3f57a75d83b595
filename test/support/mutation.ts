// Real packets, changed where it hurts: header field by header field, with values at the edges, cut off, drawn out, and
// healed again so that the change is seen deeper inside. From a seed, so that what was found is found again.
import { type Field, readField, writeField } from '../../dataplane/wire/field.ts'
import * as icmpv4 from '../../dataplane/wire/icmpv4.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import { DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING } from '../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import {
  countingBytes,
  IPV6,
  type IpOptions,
  icmpEcho,
  type TcpOptions,
  tcpPacket,
  udpPacket,
  viewOf,
} from './packets.ts'
import { inspect } from './reference-inspect.ts'
import { withChecksums } from './resplit.ts'
import { transportOf } from './transport-of.ts'

/** A header in a packet: its fields, and where it starts. */
export interface Layer {
  readonly fields: readonly Field[]
  readonly at: number
}

/** Values at which something changes in one header or another. */
const EDGES = [
  0, 1, 2, 5, 6, 7, 8, 15, 17, 20, 27, 28, 40, 43, 44, 47, 48, 51, 58, 59, 60, 61, 1280, 1450, 1472, 0xffff,
]

const FAR = [
  { source: '10.244.1.77', destination: '10.244.9.9' },
  { source: '10.244.7.7', destination: '10.244.2.9' },
  { source: '10.244.1.2', destination: '224.0.0.251' },
  { source: '10.244.1.2', destination: '169.254.1.1' },
  { source: 'fd00:10:244:1::2', destination: 'fd00:10:244:9::9' },
  { source: 'fd00:10:244:7::7', destination: 'fd00:10:244:2::3' },
  { source: 'fe80::1', destination: 'ff02::2' },
] as const

/** Packets of every kind that pods send, whole and right; most of them from node A's subnet to node B's. */
function bases(): Uint8Array[] {
  const near: IpOptions[] = [
    {},
    IPV6,
    { fragmentWord: 0 },
    { tos: 0x1a },
    { ...IPV6, tos: 0x1b },
    { ttl: 1 },
    { ...IPV6, ttl: 1 },
  ]
  const special: IpOptions[] = [
    { options: countingBytes(8) },
    { ...IPV6, extensions: [[HOP_BY_HOP, new Uint8Array(6)]] },
    { ...IPV6, extensions: Array.from({ length: 3 }, () => [DESTINATION_OPTIONS, countingBytes(14)] as const) },
    { ...IPV6, extensions: [[ROUTING, countingBytes(22)]] },
    { ...IPV6, extensions: [[FRAGMENT, countingBytes(6)]] },
    { ...IPV6, extensions: [[FRAGMENT, new Uint8Array(6)]] },
    { fragmentWord: ipv4.MORE_FRAGMENTS },
    { fragmentWord: 40 },
    { protocol: 47 },
    { ...IPV6, protocol: 132 },
  ]
  const payload = countingBytes(101)
  return [...near, ...special, ...FAR].flatMap((options) => [
    icmpEcho(options),
    udpPacket({ ...options, payload }),
    udpPacket({ ...options, payload, checksum: 'unused' }),
    udpPacket({ ...options, payload, checksum: 'partial' }),
    tcpPacket({ ...options, payload, flags: tcp.FLAG_ACK | tcp.FLAG_PSH }),
    tcpPacket({ ...options, payload, tcpOptions: countingBytes(12), checksum: 'partial' }),
    tcpPacket({ ...options, flags: tcp.FLAG_SYN }),
    tcpPacket({ ...options, payload, checksum: 'bad' }),
  ])
}

/** Headers of packets that are whole. */
function layersOf(packet: Uint8Array): Layer[] {
  const facts = inspect(packet)
  if (typeof facts === 'string') return []
  const fields = facts.version === 4 ? ipv4.FIELDS : ipv6.FIELDS
  const transport: Record<number, readonly Field[]> = {
    1: icmpv4.FIELDS,
    6: tcp.FIELDS,
    17: udp.FIELDS,
    58: icmpv4.FIELDS,
  }
  const behind = transport[facts.protocol]
  const layers = [{ fields, at: 0 }]
  return behind === undefined ? layers : [...layers, { fields: behind, at: facts.ipBytes }]
}

const LARGEST = 20_000
/** Payloads are pieces of this: made once, for there are millions of them. */
const PAYLOADS = countingBytes(LARGEST + 1000)

/** Bulk flows whose packets follow each other, so that there is something to join and to cut. */
const FLOWS: readonly TcpOptions[] = [
  {},
  IPV6,
  { tos: 2 },
  { fragmentWord: 0 },
  { ...IPV6, tos: 2 },
  { tcpOptions: countingBytes(12) },
  { ...IPV6, extensions: [[HOP_BY_HOP, new Uint8Array(6)]] },
  // Longer headers than a super-packet may have.
  { ...IPV6, extensions: Array.from({ length: 5 }, () => [DESTINATION_OPTIONS, countingBytes(14)] as const) },
]

interface Template {
  readonly packet: Uint8Array
  readonly layers: readonly Layer[]
  readonly ipBytes: number
  readonly payloadBytes: number
}

export class Mutator {
  readonly #random: () => number
  readonly #bases: readonly { readonly packet: Uint8Array; readonly layers: readonly Layer[] }[]
  readonly #templates = new Map<string, Template>()
  readonly #sequences: number[] = FLOWS.map(() => 1)

  constructor(random: () => number) {
    this.#random = random
    this.#bases = bases().map((packet) => ({ packet, layers: layersOf(packet) }))
  }

  below(limit: number): number {
    return Math.floor(this.#random() * limit)
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!
  }

  /** True once in `times`. */
  once(times: number): boolean {
    return this.below(times) === 0
  }

  /** A packet of one of many kinds, changed or not. */
  packet(): Uint8Array {
    const { packet, layers } = this.pick(this.#bases)
    const copy = packet.slice()
    const changes = this.pick([0, 0, 1, 1, 1, 2, 3])
    for (let change = 0; change < changes; change++) this.change(copy, layers)
    return this.resize(this.once(2) ? this.heal(copy) : copy)
  }

  #payload(length: number): Uint8Array {
    const from = this.below(256)
    return PAYLOADS.subarray(from, from + length)
  }

  /** `count` packets of a flow, the next ones of it: alike but for what counts up, and perhaps for one of them. */
  run(count: number): Uint8Array[] {
    const flow = this.below(FLOWS.length)
    const isTcp = !this.once(3)
    const template = this.#template(flow, isTcp, this.pick([1, 64, 100, 1000]))
    const odd = this.below(count * 2)
    return Array.from({ length: count }, (_, index) => {
      const packet = this.#next(flow, isTcp, template)
      return index === odd ? this.heal(this.change(packet, template.layers)) : packet
    })
  }

  #template(flow: number, isTcp: boolean, bytes: number): Template {
    const key = `${flow} ${isTcp} ${bytes}`
    const kept = this.#templates.get(key)
    if (kept !== undefined) return kept
    const options = { ...FLOWS[flow]!, payload: this.#payload(bytes) }
    const packet = isTcp ? tcpPacket(options) : udpPacket(options)
    const made = { packet, layers: layersOf(packet), ipBytes: transportOf(packet).ipBytes, payloadBytes: bytes }
    this.#templates.set(key, made)
    return made
  }

  /** The packet that comes next in the flow: sequence or identification counted up, the payload another one. */
  #next(flow: number, isTcp: boolean, { packet, ipBytes, payloadBytes }: Template): Uint8Array {
    const sequence = this.#sequences[flow]!
    this.#sequences[flow] = (sequence + (isTcp ? payloadBytes : 1)) >>> 0
    const next = packet.slice()
    const view = viewOf(next)
    if (ipv4.getVersion(view, 0) === 4) ipv4.setIdentification(view, 0, sequence & 0xffff)
    if (isTcp) tcp.setSequence(view, ipBytes, sequence)
    next[next.length - 1] = this.below(256)
    return withChecksums(next)
  }

  /** A whole TCP or UDP packet with more payload than one packet takes, checksum open. */
  large(): Uint8Array {
    const options = { ...this.pick(FLOWS), payload: this.#payload(200 + this.below(this.once(12) ? LARGEST : 3000)) }
    const flags = this.pick([tcp.FLAG_ACK, tcp.FLAG_ACK | tcp.FLAG_PSH | tcp.FLAG_FIN, tcp.FLAG_ACK | tcp.FLAG_CWR])
    return this.once(2)
      ? tcpPacket({ ...options, flags, sequence: this.below(2) * 0xffff_f000, checksum: 'partial' })
      : udpPacket({ ...options, checksum: 'partial' })
  }

  /** Sets one field of one header to something else. */
  change(bytes: Uint8Array, layers: readonly Layer[]): Uint8Array {
    const layer = layers.length === 0 || this.once(8) ? null : this.pick(layers)
    const field = layer === null ? null : this.pick(layer.fields)
    if (layer === null || field === null || field.bits > 48 || layer.at + (field.bit + field.bits) / 8 > bytes.length) {
      if (bytes.length > 0) bytes[this.below(Math.min(bytes.length, 80))] = this.below(256)
      return bytes
    }
    const now = readField(bytes, layer.at, field)
    const all = 2 ** field.bits
    const value = this.pick([0, 1, all - 1, now + 1, now + all - 1, now + 8, this.pick(EDGES), this.below(all)])
    writeField(bytes, layer.at, field, value % all)
    return bytes
  }

  /** Checksums made right again, where there is enough of a packet for it. */
  heal(bytes: Uint8Array): Uint8Array {
    const facts = inspect(bytes)
    if (typeof facts === 'string') return bytes
    if (facts.headerBytes > 0 && facts.length === bytes.length && this.once(2)) return withChecksums(bytes)
    if (facts.version === 4) ipv4.setChecksum(viewOf(bytes), 0, ipv4.computeChecksum(bytes, 0))
    return bytes
  }

  /** Mostly as it is; sometimes cut off, sometimes with something behind it. */
  resize(bytes: Uint8Array): Uint8Array {
    if (!this.once(8)) return bytes
    const length = this.pick([this.below(bytes.length + 1), this.below(64), bytes.length + this.below(60), 40, 20, 0])
    const other = new Uint8Array(length).fill(0xa5)
    other.set(bytes.subarray(0, length))
    return other
  }
}
