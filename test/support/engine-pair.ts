// Two nodes in memory, as the fixture of most engine tests: node A holds 10.244.1.0/24 and fd00:10:244:1::/64 at
// 192.0.2.1, node B 10.244.2.0/24 and fd00:10:244:2::/64 at 192.0.2.2. VXLAN with VNI 1 on port 8472, or plain UDP on
// 8285. What either writes into its TUN is kept.
import { OVERHEAD_BYTES } from '../../dataplane/encap/overhead.ts'
import { UdpEncapsulation } from '../../dataplane/encap/udp.ts'
import { VxlanEncapsulation } from '../../dataplane/encap/vxlan.ts'
import { Counters } from '../../dataplane/engine/counters.ts'
import { ENGINE_MEMORY_BYTES, Engine } from '../../dataplane/engine/engine.ts'
import type { EngineSettings } from '../../dataplane/engine/settings.ts'
import { encodeForwardingTable } from '../../dataplane/forwarding/forwarding-table.ts'
import type { ForwardingEntry } from '../../dataplane/forwarding/remote-vtep.ts'
import { gather, MemoryDevice } from '../../dataplane/io/memory/memory-device.ts'
import { type MemorySocket, MemoryUnderlay } from '../../dataplane/io/memory/memory-socket.ts'
import type { UnderlaySocket } from '../../dataplane/io/underlay-socket.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import type { Step } from '../../dataplane/step.ts'
import { prefixAround } from '../../dataplane/wire/prefix.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import { ip, ip6 } from './packets.ts'

export type EncapsulationName = keyof typeof OVERHEAD_BYTES

export const VNI = 1
export const PORTS = { vxlan: 8472, udp: 8285 } as const
export const PORT = PORTS.vxlan
export const MTU = 1500 - OVERHEAD_BYTES.vxlan
/** Of plain UDP. */
export const UDP_MTU = 1500 - OVERHEAD_BYTES.udp

export interface NodeFacts {
  readonly underlay: string
  readonly subnet: string
  /** The /64 of the node; pods use it too. */
  readonly ipv6Subnet: string
  readonly mac: number
}

export const NODE_A: NodeFacts = {
  underlay: '192.0.2.1',
  subnet: '10.244.1.0',
  ipv6Subnet: 'fd00:10:244:1::',
  mac: 0x0a0000000001,
}
export const NODE_B: NodeFacts = {
  underlay: '192.0.2.2',
  subnet: '10.244.2.0',
  ipv6Subnet: 'fd00:10:244:2::',
  mac: 0x0a0000000002,
}

/** The forwarding entry by which others reach the IPv4 subnet of a node. */
export function entryFor(node: Omit<NodeFacts, 'ipv6Subnet'>, prefixLength = 24): ForwardingEntry {
  return {
    prefix: prefixAround(ip(node.subnet), prefixLength),
    vtep: { underlayAddress: ip(node.underlay), port: PORT, mac: node.mac, vni: VNI },
  }
}

/** The entries for both families. */
export function entriesFor(node: NodeFacts, encapsulation: EncapsulationName = 'vxlan'): ForwardingEntry[] {
  const { prefix, vtep } = entryFor(node)
  const there = { ...vtep, port: PORTS[encapsulation] }
  return [
    { prefix, vtep: there },
    { prefix: prefixAround(ip6(node.ipv6Subnet), 64), vtep: there },
  ]
}

/** One write into a TUN: its virtio-net header and the packet behind it. */
export interface Written {
  readonly vnet: virtioNet.VirtioNetHeader
  readonly packet: Uint8Array
}

export interface NodeOptions {
  readonly encapsulation?: EncapsulationName
  readonly settings?: Partial<EngineSettings>
  readonly receivesMerged?: boolean
  readonly queueLength?: number
  /** Puts something between engine and socket. */
  readonly wrapSocket?: (socket: UnderlaySocket, memory: PacketMemory) => UnderlaySocket
  readonly nowMs?: () => number
  /** Errno with which the TUN refuses a write, 0 to take it. */
  readonly refuseWrite?: (written: Written) => number
}

/** An engine with a memory TUN and a memory socket. */
export class MemoryNode {
  readonly facts: NodeFacts
  readonly device: MemoryDevice
  readonly socket: MemorySocket
  readonly counters = new Counters()
  readonly engine: Engine
  readonly written: Written[] = []
  /** Errno that the next writes into the TUN give, 0 for success. */
  writeErrno = 0
  #generation = 0

  constructor(underlay: MemoryUnderlay, facts: NodeFacts, options: NodeOptions = {}) {
    const { memory } = underlay
    this.facts = facts
    this.device = new MemoryDevice(memory, (iovecs, count) => {
      const write = toWritten(gather(memory, iovecs, count))
      const errno = this.writeErrno || (options.refuseWrite?.(write) ?? 0)
      if (errno === 0) this.written.push(write)
      return errno
    })
    const { receivesMerged = true, queueLength = 64, encapsulation = 'vxlan' } = options
    const isVxlan = encapsulation === 'vxlan'
    const port = PORTS[encapsulation]
    this.socket = underlay.open({ address: ip(facts.underlay), port, receivesMerged, queueLength })
    this.engine = new Engine({
      memory,
      device: this.device,
      socket: options.wrapSocket?.(this.socket, memory) ?? this.socket,
      encapsulation: isVxlan ? new VxlanEncapsulation({ vni: VNI, mac: facts.mac }) : new UdpEncapsulation(),
      counters: this.counters,
      settings: {
        overlayAddress: ip(facts.subnet),
        subnet: prefixAround(ip(facts.subnet), 24),
        mtuBytes: isVxlan ? MTU : UDP_MTU,
        sourceCheck: 'strict',
        overlayIpv6: ip6(facts.ipv6Subnet),
        ipv6Subnet: prefixAround(ip6(facts.ipv6Subnet), 64),
        countsHop: !isVxlan,
        mergeUdp: true,
        ...options.settings,
      },
      nowMs: options.nowMs ?? (() => 0),
    })
  }

  /** Forwards by these entries from now on. */
  learn(...entries: ForwardingEntry[]): void {
    this.engine.replaceTable(encodeForwardingTable(entries, ++this.#generation))
  }

  /** Sends packets (virtio-net header first) as if the host had put them into the TUN. */
  sendFromTun(...packets: Uint8Array[]): void {
    for (const packet of packets) this.device.queue(packet)
    while (this.engine.outbound() > 0);
  }

  /** Takes in everything that has arrived; returns what was written into the TUN since the last call. */
  receive(): Written[] {
    while (this.engine.inbound() > 0);
    return this.written.splice(0)
  }

  /** What was written into the TUN without anything received: ICMP answers. */
  takeWritten(): Written[] {
    return this.written.splice(0)
  }
}

export interface EnginePair {
  readonly memory: PacketMemory
  readonly underlay: MemoryUnderlay
  readonly a: MemoryNode
  readonly b: MemoryNode
}

/** Nodes A and B that know each other. */
export function enginePair(options: NodeOptions = {}): EnginePair {
  const rings = 2 * 64 * (options.queueLength ?? 64) * 1024
  const memory = new PacketMemory(4 * ENGINE_MEMORY_BYTES + rings + 4 * 1024 * 1024)
  const underlay = new MemoryUnderlay(memory)
  const a = new MemoryNode(underlay, NODE_A, options)
  const b = new MemoryNode(underlay, NODE_B, options)
  a.learn(...entriesFor(NODE_B, options.encapsulation))
  b.learn(...entriesFor(NODE_A, options.encapsulation))
  return { memory, underlay, a, b }
}

/** Everything that happens on a node from now on. */
export function recordSteps(node: MemoryNode): Step[] {
  const steps: Step[] = []
  node.engine.setSink({ step: (step) => steps.push(step) })
  return steps
}

/** A write, taken apart. @throws Error without a virtio-net header */
export function toWritten(bytes: Uint8Array): Written {
  const vnet = virtioNet.parse(bytes, 0, bytes.length)
  if (typeof vnet === 'string') throw new Error(`a write without a virtio-net header: ${vnet}`)
  return { vnet, packet: bytes.slice(virtioNet.HEADER_LEN) }
}

/** Whether a write is a packet as it stands, behind an all-zero header. */
export function isPlain({ vnet }: Written): boolean {
  return Object.values(vnet).every((value) => value === 0)
}
