// What is timed piece by piece: taking headers apart, finding the peer, summing bytes, and each direction of the
// engine.
import type { Counters } from '../../dataplane/engine/counters.ts'
import { ENGINE_MEMORY_BYTES } from '../../dataplane/engine/engine.ts'
import { encodeForwardingTable, ForwardingTable } from '../../dataplane/forwarding/forwarding-table.ts'
import { SLOT_BYTES } from '../../dataplane/io/receive-slots.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import * as extension from '../../dataplane/wire/ipv6-extension.ts'
import { describeLayers } from '../../dataplane/wire/layers.ts'
import { prefixAround } from '../../dataplane/wire/prefix.ts'
import { fromTun, icmpEcho, ip, superFromTun, tcpPacket, udpPacket, viewOf } from '../../test/support/packets.ts'
import { vxlanFrame } from '../../test/support/vxlan-frame.ts'
import { buildNode, MSS_BYTES, NODES, PORT, partial, SUPER_PAYLOAD_BYTES } from '../engine/scenario.ts'
import { ReplaySocket, SinkSocket } from './ends.ts'

/** Something to be run again and again. */
export interface Subject {
  /** Returns what it found, so that the compiler cannot leave the work out. */
  readonly run: () => unknown
  /** Packets (or headers, addresses, stretches of bytes) that one run handles. */
  readonly packets: number
  /** Of an engine: where every packet has to be found. */
  readonly counters?: Counters
}

export interface Case {
  readonly name: string
  readonly prepare: () => Subject
}

const SMALL_BYTES = 64
const FULL_BYTES = 1400
/** Packets that the TUN gives before the engine is left alone. */
const READS = 62
const LEASES = 1000

/** Runs `once` on each of `values` in turn. */
function overAll<T>(values: readonly T[], once: (value: T) => unknown): Subject {
  let last: unknown
  const run = (): unknown => {
    for (const value of values) last = once(value)
    return last
  }
  return { run, packets: values.length }
}

function engineMemory(): PacketMemory {
  return new PacketMemory(2 * ENGINE_MEMORY_BYTES + 4 * SLOT_BYTES)
}

/** The sending node, to whose TUN `packet` is given `reads` times a run; `packets` of the wire come of it. */
function sender(memory: PacketMemory, packet: Uint8Array, reads: number, packets: number) {
  const sink = new SinkSocket(memory)
  const { device, engine, counters } = buildNode(NODES[0], NODES[1], memory, sink)
  const at = memory.reserve(packet.length)
  memory.bytes.set(packet, at)
  const run = (): void => {
    device.replay(at, packet.length, reads)
    while (engine.outbound() > 0);
  }
  return { run, packets, counters, sink }
}

/** The receiving node, to which the train that `from` sends comes again and again. */
function receiver(memory: PacketMemory, from: ReturnType<typeof sender>): Subject {
  from.run()
  const [train] = from.sink.first
  if (train === undefined) throw new Error('the sender sent nothing')
  const socket = new ReplaySocket(memory, train, { address: NODES[0].underlayAddress, port: PORT })
  const { engine, counters } = buildNode(NODES[1], NODES[0], memory, socket)
  const packets = train.segmentSize === 0 ? 1 : Math.ceil(train.bytes.length / train.segmentSize)
  const run = (): void => {
    socket.arm()
    while (engine.inbound() > 0);
  }
  return { run, packets, counters }
}

const smallUdp = () => fromTun(udpPacket({ payload: new Uint8Array(SMALL_BYTES) }))
const fullUdp = () => fromTun(udpPacket({ payload: new Uint8Array(FULL_BYTES) }))
const bulkTcp = () => superFromTun(tcpPacket(partial(SUPER_PAYLOAD_BYTES)), MSS_BYTES)
const SUPER_PACKETS = Math.ceil(SUPER_PAYLOAD_BYTES / MSS_BYTES)

function sums(bytes: number): Subject {
  const memory = new PacketMemory(4 * SLOT_BYTES)
  const places = Array.from({ length: 32 }, () => memory.reserve(bytes))
  return overAll(places, (at) => memory.sum(at, bytes))
}

function lookups(): Subject {
  const entries = Array.from({ length: LEASES }, (_, index) => ({
    prefix: prefixAround(ip('10.0.0.0') + index * 256, 24),
    vtep: { underlayAddress: index + 1, port: PORT, mac: index + 1, vni: 1 },
  }))
  const table = new ForwardingTable(encodeForwardingTable(entries, 1))
  // Strides that meet every part of the table, and below 2^31, where numbers are not boxed.
  const addresses = Array.from({ length: 64 }, (_, index) => ip('10.0.0.5') + ((index * 617) % LEASES) * 256)
  return overAll(addresses, (address) => table.lookup(address))
}

/** An IPv6 packet without payload, behind so many destination options headers of 8 bytes. */
function ipv6Packet(extensions: number): Uint8Array {
  const packet = new Uint8Array(ipv6.HEADER_LEN + extensions * extension.MIN_BYTES)
  const follows = (index: number) => (index < extensions ? extension.DESTINATION_OPTIONS : extension.NO_NEXT_HEADER)
  const addresses = { source: 0xfd00n << 112n, destination: (0xfd00n << 112n) | 1n }
  const numbers = { version: 6, dscp: 0, ecn: 0, flowLabel: 0, hopLimit: 64, nextHeader: follows(0) }
  ipv6.emit({ ...numbers, ...addresses, payloadLength: packet.length - ipv6.HEADER_LEN }, packet, 0)
  for (let index = 0; index < extensions; index++) {
    const at = ipv6.HEADER_LEN + index * extension.MIN_BYTES
    extension.emit({ nextHeader: follows(index + 1), length: 0, options: new Uint8Array(6) }, packet, at)
  }
  return packet
}

export const CASES: readonly Case[] = [
  {
    name: 'parse: IPv4 header',
    prepare: () => overAll([tcpPacket()], (packet) => ipv4.parse(packet, 0, packet.length)),
  },
  {
    name: 'parse: IPv6 header',
    prepare: () => overAll([ipv6Packet(0)], (packet) => ipv6.parse(packet, 0, packet.length)),
  },
  {
    name: 'walk: IPv6 extension headers',
    prepare: () =>
      overAll([0, 1, 2, 3].map(ipv6Packet).map(viewOf), (view) => extension.walkExtensions(view, 0, view.byteLength)),
  },
  {
    name: 'describe: a VXLAN frame',
    prepare: () => overAll([vxlanFrame(tcpPacket())], (frame) => describeLayers(frame, 0, frame.length, 'vxlan')),
  },
  { name: `lookup: ${LEASES} leases`, prepare: lookups },
  { name: `checksum: ${SMALL_BYTES} bytes`, prepare: () => sums(SMALL_BYTES) },
  { name: `checksum: ${FULL_BYTES} bytes`, prepare: () => sums(FULL_BYTES) },
  { name: `encap: ${SMALL_BYTES}-byte UDP`, prepare: () => sender(engineMemory(), smallUdp(), READS, READS) },
  { name: `encap: ${FULL_BYTES}-byte UDP`, prepare: () => sender(engineMemory(), fullUdp(), READS, READS) },
  { name: 'segment: TCP super-packet', prepare: () => sender(engineMemory(), bulkTcp(), 1, SUPER_PACKETS) },
  {
    name: `decap: ${SMALL_BYTES}-byte ICMP`,
    prepare: () => {
      const memory = engineMemory()
      const echo = fromTun(icmpEcho({ payload: new Uint8Array(SMALL_BYTES) }))
      return receiver(memory, sender(memory, echo, READS, READS))
    },
  },
  {
    name: `coalesce: ${SMALL_BYTES}-byte UDP`,
    prepare: () => {
      const memory = engineMemory()
      return receiver(memory, sender(memory, smallUdp(), READS, READS))
    },
  },
  {
    name: 'coalesce: TCP train',
    prepare: () => {
      const memory = engineMemory()
      return receiver(memory, sender(memory, bulkTcp(), 1, SUPER_PACKETS))
    },
  },
]
