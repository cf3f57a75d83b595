// Two engines on the memory driver (whose copies are in the figures): how fast each direction is for one kind of
// packet, what is left to the garbage collector, and whether every packet is accounted for.
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks'
import { setImmediate as turn } from 'node:timers/promises'
import { UdpEncapsulation } from '../../dataplane/encap/udp.ts'
import { VxlanEncapsulation } from '../../dataplane/encap/vxlan.ts'
import { Counters } from '../../dataplane/engine/counters.ts'
import { ENGINE_MEMORY_BYTES, Engine } from '../../dataplane/engine/engine.ts'
import { encodeForwardingTable } from '../../dataplane/forwarding/forwarding-table.ts'
import { MemoryDevice } from '../../dataplane/io/memory/memory-device.ts'
import { MemoryUnderlay } from '../../dataplane/io/memory/memory-socket.ts'
import { SLOT_BYTES } from '../../dataplane/io/receive-slots.ts'
import type { UnderlaySocket } from '../../dataplane/io/underlay-socket.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { prefixAround } from '../../dataplane/wire/prefix.ts'
import { fromTun, IPV6, ip, ip6, superFromTun, tcpPacket, udpPacket } from '../../test/support/packets.ts'

export interface Scenario {
  readonly name: string
  /** VXLAN unless told otherwise. */
  readonly encapsulation?: 'vxlan' | 'udp'
  /** As the TUN of the sending node delivers it, virtio-net header first; all flows have packets of one length. */
  readonly packet: (flow: number) => Uint8Array
  /** Flows whose packets take turns; one unless told otherwise. */
  readonly flows?: number
  /**
   * Packets of that kind that one message of the underlay carries, roughly: bounds what is sent before it is received.
   */
  readonly readsPerTurn: number
}

export interface Way {
  readonly seconds: number
  readonly packetsPerSecond: number
  /** Inner bytes outbound, datagram bytes inbound. */
  readonly gbitPerSecond: number
}

export interface Figures {
  /** IP packets, those that a super-packet stands for counted one by one. */
  readonly packets: number
  readonly outbound: Way
  readonly inbound: Way
  readonly collections: number
  /** What the heap grew by for each packet; `null` when a collection made it unknowable. */
  readonly heapBytesPerPacket: number | null
  readonly dropped: number
  /** Packets read minus passed minus dropped, on both nodes: 0, or the accounting is broken. */
  readonly imbalance: number
}

/** What a kernel hands over for a bulk transfer. */
export const SUPER_PAYLOAD_BYTES = 64_000
const MTU_BYTES = 1450
/** TCP payload of a packet that fills the MTU: no options. */
export const MSS_BYTES = MTU_BYTES - 40
const MSS_IPV6_BYTES = MTU_BYTES - 60
const SMALL_PAYLOAD_BYTES = 64

/** A packet as an offload leaves it: payload of so many bytes, checksum open. */
export const partial = (bytes: number) => ({ checksum: 'partial', payload: new Uint8Array(bytes) }) as const

export const SCENARIOS: readonly Scenario[] = [
  { name: '64-byte UDP', packet: () => fromTun(udpPacket({ payload: new Uint8Array(64) })), readsPerTurn: 1024 },
  { name: '1400-byte UDP', packet: () => fromTun(udpPacket({ payload: new Uint8Array(1400) })), readsPerTurn: 512 },
  {
    name: 'TCP super-packets',
    packet: () => superFromTun(tcpPacket(partial(SUPER_PAYLOAD_BYTES)), MSS_BYTES),
    readsPerTurn: 16,
  },
  {
    name: 'UDP super-packets',
    packet: () => superFromTun(udpPacket(partial(SMALL_PAYLOAD_BYTES * 60)), SMALL_PAYLOAD_BYTES),
    readsPerTurn: 32,
  },
  {
    name: '64-byte UDPv6',
    packet: () => fromTun(udpPacket({ ...IPV6, payload: new Uint8Array(64) })),
    readsPerTurn: 1024,
  },
  {
    name: 'TCPv6 super-packets',
    packet: () => superFromTun(tcpPacket({ ...IPV6, ...partial(SUPER_PAYLOAD_BYTES) }), MSS_IPV6_BYTES),
    readsPerTurn: 16,
  },
  {
    name: 'UDPv6 super-packets',
    packet: () => superFromTun(udpPacket({ ...IPV6, ...partial(SMALL_PAYLOAD_BYTES * 60) }), SMALL_PAYLOAD_BYTES),
    readsPerTurn: 32,
  },
  {
    name: '64-byte UDP in plain UDP',
    encapsulation: 'udp',
    packet: () => fromTun(udpPacket({ payload: new Uint8Array(64) })),
    readsPerTurn: 1024,
  },
  {
    name: '64-byte UDP of 32 flows in turns',
    packet: (flow) => fromTun(udpPacket({ sourcePort: 40_000 + flow, payload: new Uint8Array(64) })),
    flows: 32,
    readsPerTurn: 512,
  },
  {
    name: 'TCPv6 super-packets in plain UDP',
    encapsulation: 'udp',
    packet: () => superFromTun(tcpPacket({ ...IPV6, ...partial(SUPER_PAYLOAD_BYTES) }), MSS_IPV6_BYTES),
    readsPerTurn: 16,
  },
]

const WHOLE_COLLECTIONS = [constants.NODE_PERFORMANCE_GC_MINOR, constants.NODE_PERFORMANCE_GC_MAJOR]
const VNI = 1
export const PORT = 8472
export const NODES = [
  {
    subnet: prefixAround(ip('10.244.1.0'), 24),
    ipv6Subnet: prefixAround(ip6('fd00:10:244:1::'), 64),
    underlayAddress: ip('192.168.56.11'),
    mac: 0x02_00_00_00_00_01,
  },
  {
    subnet: prefixAround(ip('10.244.2.0'), 24),
    ipv6Subnet: prefixAround(ip6('fd00:10:244:2::'), 64),
    underlayAddress: ip('192.168.56.12'),
    mac: 0x02_00_00_00_00_02,
  },
] as const
type NodePlan = (typeof NODES)[number]
const QUEUE_LENGTH = 64
/** As a daemon has by default. */
const SENDERS = 16

/** A node of the pair that sends and receives through `socket`. */
export function buildNode(
  self: NodePlan,
  other: NodePlan,
  memory: PacketMemory,
  socket: UnderlaySocket,
  encapsulation: 'vxlan' | 'udp' = 'vxlan',
) {
  const isVxlan = encapsulation === 'vxlan'
  const device = new MemoryDevice(memory)
  const counters = new Counters()
  const engine = new Engine({
    memory,
    device,
    socket,
    counters,
    encapsulation: isVxlan ? new VxlanEncapsulation({ vni: VNI, mac: self.mac }) : new UdpEncapsulation(),
    settings: {
      overlayAddress: self.subnet.address,
      overlayIpv6: self.ipv6Subnet.address,
      ipv6Subnet: self.ipv6Subnet,
      countsHop: !isVxlan,
      subnet: self.subnet,
      mtuBytes: MTU_BYTES,
      sourceCheck: 'strict',
      mergeUdp: true,
    },
    nowMs: () => performance.now(),
  })
  const vtep = { underlayAddress: other.underlayAddress, port: PORT, mac: other.mac, vni: VNI }
  engine.replaceTable(
    encodeForwardingTable(
      [
        { prefix: other.subnet, vtep },
        { prefix: other.ipv6Subnet, vtep },
      ],
      1,
    ),
  )
  return { engine, device, counters }
}

/** A sending and a receiving node, and the packet in their memory. */
class Pair {
  readonly sender
  readonly receiver
  readonly outboundMs = { spent: 0 }
  readonly inboundMs = { spent: 0 }
  readonly #packetAt: number
  readonly #packetLength: number
  readonly #readsPerTurn: number
  readonly #flows: number

  constructor(scenario: Scenario) {
    this.#flows = scenario.flows ?? 1
    const packets = Array.from({ length: this.#flows }, (_, flow) => scenario.packet(flow))
    const packet = packets[0]!
    const underlay = new MemoryUnderlay(
      new PacketMemory(2 * (ENGINE_MEMORY_BYTES + (QUEUE_LENGTH + 1) * SLOT_BYTES) + SLOT_BYTES * 2),
    )
    const open = ({ underlayAddress }: NodePlan) =>
      underlay.open({ address: underlayAddress, port: PORT, queueLength: QUEUE_LENGTH, senders: SENDERS })
    this.sender = buildNode(NODES[0], NODES[1], underlay.memory, open(NODES[0]), scenario.encapsulation)
    this.receiver = buildNode(NODES[1], NODES[0], underlay.memory, open(NODES[1]), scenario.encapsulation)
    this.#packetAt = underlay.memory.reserve(packet.length * this.#flows)
    this.#packetLength = packet.length
    this.#readsPerTurn = scenario.readsPerTurn
    packets.forEach((one, flow) => {
      underlay.memory.bytes.set(one, this.#packetAt + flow * packet.length)
    })
  }

  /** Reads, sends, receives and writes until `packets` more have been read. */
  move(packets: number): void {
    const until = this.read + packets
    while (this.read < until) {
      const start = performance.now()
      this.sender.device.replay(this.#packetAt, this.#packetLength, this.#readsPerTurn, this.#flows)
      while (this.sender.engine.outbound() > 0);
      const between = performance.now()
      while (this.receiver.engine.inbound() > 0);
      this.outboundMs.spent += between - start
      this.inboundMs.spent += performance.now() - between
    }
  }

  get read(): number {
    return this.sender.counters.get('outbound.packets.read')
  }
}

/**
 * Moves at least `packets` packets, after a tenth of that to warm up. Once a process: a second packet memory has a
 * second checksum function, and the compiler, which had bet on the first, starts over.
 */
export async function runScenario(scenario: Scenario, packets: number): Promise<Figures> {
  const pair = new Pair(scenario)
  const { sender, receiver } = pair
  pair.move(packets / 10)
  const before = { packets: pair.read, sent: sender.counters.snapshot(), received: receiver.counters.snapshot() }
  pair.outboundMs.spent = 0
  pair.inboundMs.spent = 0
  const { collections, heapBytes } = await watchHeap(() => pair.move(packets))
  const moved = pair.read - before.packets
  const sent = sender.counters.get('outbound.bytes.read') - (before.sent['outbound.bytes.read'] ?? 0)
  const received = receiver.counters.get('inbound.bytes.read') - (before.received['inbound.bytes.read'] ?? 0)
  return {
    packets: moved,
    outbound: way(moved, sent, pair.outboundMs.spent),
    inbound: way(moved, received, pair.inboundMs.spent),
    collections,
    heapBytesPerPacket: collections > 0 ? null : heapBytes / moved,
    dropped: pair.read - receiver.counters.get('inbound.packets.passed'),
    imbalance: Math.abs(sender.counters.imbalance().packets) + Math.abs(receiver.counters.imbalance().packets),
  }
}

function way(packets: number, bytes: number, milliseconds: number): Way {
  const seconds = milliseconds / 1000
  return { seconds, packetsPerSecond: Math.round(packets / seconds), gbitPerSecond: (bytes * 8) / 1e9 / seconds }
}

/**
 * Runs `work`, which must not wait, and counts the collections in it; steps of an incremental one are not counted
 * apart.
 */
export async function watchHeap(work: () => void): Promise<{ collections: number; heapBytes: number }> {
  let collections = 0
  const count = (entries: readonly PerformanceEntry[]): void => {
    for (const { detail } of entries)
      if (WHOLE_COLLECTIONS.includes((detail as { kind: number }).kind)) collections += 1
  }
  const observer = new PerformanceObserver((list) => count(list.getEntries()))
  await turn() // collections before this line are over and told
  observer.observe({ entryTypes: ['gc'] })
  const heap = process.memoryUsage().heapUsed
  work()
  const heapBytes = process.memoryUsage().heapUsed - heap
  await turn() // entries are delivered by the event loop
  count(observer.takeRecords())
  observer.disconnect()
  return { collections, heapBytes }
}
