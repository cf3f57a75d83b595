// Two workers on one device and one port, each with a queue of its own: all of them forward, none of the flows changes
// its worker once both sides have spoken, and its source port does not depend on who sends it.
import { describe, expect, onTestFinished, test } from 'vitest'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { openUdpSocket } from '../../dataplane/io/linux/udp-open.ts'
import { UdpSocket } from '../../dataplane/io/linux/udp-socket.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import type { RecordedStep } from '../../dataplane/worker/messages.ts'
import { entryFor } from '../support/engine-pair.ts'
import { inNetwork, NamespaceSocket } from '../support/namespace-socket.ts'
import { countingBytes, ip, udpPacket, viewOf } from '../support/packets.ts'
import { FAR_POD, HERE, POD, runningWorkers, THERE, UNDERLAY_PORT, until } from '../support/running-worker.ts'
import { ENCAP_BYTES, vxlanFrame } from '../support/vxlan-frame.ts'

const FLOWS = 24
const ROUNDS = 4
const FIRST_PORT = 6000
const SOURCE_PORTS = 8
/** Where a datagram's source port, which says its flow, stands behind an IPv4 header. */
const SOURCE_PORT_AT = 20
const IPV4_PROTOCOL_AT = 9
const UDP = 17

/** Flow `n` is between this port of the pod and the same of the far pod. */
const portOf = (n: number) => FIRST_PORT + n
const flowOf = (packet: Uint8Array) => viewOf(packet).getUint16(SOURCE_PORT_AT) - FIRST_PORT

/** Where the workers send to: which flow came from which port. */
class Sink {
  readonly #memory = new PacketMemory(8 * 1024 * 1024, libc.addressOf)
  readonly #slots = new ReceiveSlots(this.#memory, 64)
  readonly #socket: UdpSocket

  constructor(namespace: string) {
    // As on a kernel too old to be trusted with merging: one datagram a slot.
    const opened = inNetwork(namespace, () => openUdpSocket(ip(THERE.underlay), UNDERLAY_PORT, '5.10.0'))
    if ('errno' in opened) throw new Error(`${opened.step}: errno ${opened.errno}`)
    onTestFinished(() => void libc.close(opened.fd))
    this.#socket = new UdpSocket(this.#memory, opened)
  }

  /** The next `count` datagrams. */
  async senders(count: number): Promise<{ readonly flow: number; readonly port: number }[]> {
    const all: { readonly flow: number; readonly port: number }[] = []
    await until(() => {
      const received = this.#socket.receive(this.#slots)
      for (let slot = 0; slot < received; slot++) {
        const at = this.#slots.at(slot) + ENCAP_BYTES
        all.push({ flow: flowOf(this.#memory.bytes.slice(at, at + 64)), port: this.#slots.port[slot]! })
      }
      return all.length >= count
    })
    return all
  }
}

/**
 * Two workers, the pod's socket of each flow, and a peer that sends each flow from a port of its own, as a kernel
 * would.
 */
async function twoWorkers() {
  const running = await runningWorkers(2, SOURCE_PORTS)
  const { namespace, group } = running
  const flows = Array.from({ length: FLOWS }, (_, n) => n)
  const pods = flows.map((n) => NamespaceSocket.udp(namespace, { from: [POD, portOf(n)], to: [FAR_POD, portOf(n)] }))
  const peers = flows.map((n) =>
    NamespaceSocket.udp(namespace, { from: [THERE.underlay, 40_000 + n], to: [HERE.underlay, UNDERLAY_PORT] }),
  )
  onTestFinished(() => {
    for (const socket of [...pods, ...peers]) socket.close()
  })
  const sink = new Sink(namespace)
  await group.replaceTable([entryFor(THERE)])
  return { ...running, pods, peers, sink }
}

const toFlow = (n: number, bytes: number) =>
  vxlanFrame(
    udpPacket({
      source: FAR_POD,
      destination: POD,
      sourcePort: portOf(n),
      destinationPort: portOf(n),
      payload: countingBytes(bytes),
    }),
    { destinationMac: HERE.mac, sourceMac: THERE.mac },
  )

/** Flows of the UDP packets that a worker read from the TUN. */
function flowsRead(steps: readonly RecordedStep[]): number[] {
  return steps
    .filter(({ step }) => step.kind === 'tun-read')
    .map(({ snap }) => Uint8Array.from(Buffer.from(snap, 'hex')))
    .filter((packet) => packet[IPV4_PROTOCOL_AT] === UDP)
    .map(flowOf)
}

describe('two workers', () => {
  test('both forward, and each flow has one of them for both directions', async () => {
    const { group, pods, peers, sink } = await twoWorkers()
    const steps: RecordedStep[][] = [[], []]
    for (const [index, worker] of group.workers.entries()) {
      worker.trace(10_000, (more) => void steps[index]!.push(...more))
    }
    await group.replaceTable([entryFor(THERE)]) // commands are obeyed in order
    for (let round = 0; round < ROUNDS; round++) {
      for (const [n, peer] of peers.entries()) await peer.write(toFlow(n, 100 + round))
      for (const pod of pods) expect(await pod.readMany(1)).toEqual([countingBytes(100 + round)])
      // The kernel remembers the queue of a flow once it has handed its packet over (drivers/net/tun.c).
      await until(() => group.counters()['inbound.packets.passed'] === FLOWS * (round + 1))
      for (const pod of pods) await pod.write(countingBytes(50 + round))
      expect(await sink.senders(FLOWS)).toHaveLength(FLOWS)
    }
    await until(() => steps.flatMap(flowsRead).length === FLOWS * ROUNDS)
    await until(() => group.counters()['outbound.packets.passed'] === FLOWS * ROUNDS)
    const [first, second] = steps.map((one) => new Set(flowsRead(one)))
    expect(first!.size).toBeGreaterThan(0)
    expect(second!.size).toBeGreaterThan(0)
    expect([...first!].filter((flow) => second!.has(flow))).toEqual([])
    // The worker that reads a flow is the one that receives it.
    for (const [index, worker] of group.workers.entries()) {
      const flows = new Set(flowsRead(steps[index]!)).size
      expect(worker.counters.get('inbound.packets.passed')).toBe(flows * ROUNDS)
      expect(worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
    }
  })

  test('record no more steps together than they were asked for', async () => {
    const { group, pods, sink } = await twoWorkers()
    const counts: number[] = []
    group.trace(20, (steps) => counts.push(steps.length))
    await group.replaceTable([entryFor(THERE)])
    for (const pod of pods) await pod.write(countingBytes(50))
    expect(await sink.senders(FLOWS)).toHaveLength(FLOWS)
    await until(() => counts.reduce((sum, count) => sum + count, 0) >= 20)
    for (const pod of pods) await pod.write(countingBytes(50))
    expect(await sink.senders(FLOWS)).toHaveLength(FLOWS)
    expect(counts.reduce((sum, count) => sum + count)).toBe(20)
  })

  test('are one in counters and tables', async () => {
    const { group, pods, peers, sink } = await twoWorkers()
    for (const [n, peer] of peers.entries()) await peer.write(toFlow(n, 100))
    for (const pod of pods) await pod.write(countingBytes(50))
    expect(await sink.senders(FLOWS)).toHaveLength(FLOWS)
    await until(() => group.counters()['inbound.packets.passed'] === FLOWS)
    await until(() => group.counters()['outbound.packets.passed'] === FLOWS)
    expect(group.workers.every((worker) => worker.counters.get('inbound.packets.passed') > 0)).toBe(true)
    await group.replaceTable([])
    for (const pod of pods) await pod.write(countingBytes(50))
    await until(() => group.counters()['outbound.dropped.no-route'] === FLOWS)
  })

  test('send a flow from the same port, whichever of them reads it', async () => {
    const { group, pods, peers, sink } = await twoWorkers()
    const ports = Array.from({ length: FLOWS }, () => new Set<number>())
    // Nobody has answered yet: the kernel chooses the worker by its own hash, and by the peer's answers after them.
    for (let round = 0; round < 2; round++) {
      for (const pod of pods) await pod.write(countingBytes(50))
      for (const { port, flow } of await sink.senders(FLOWS)) ports[flow]!.add(port)
      for (const [n, peer] of peers.entries()) await peer.write(toFlow(n, 100))
      for (const pod of pods) expect(await pod.readMany(1)).toHaveLength(1)
    }
    expect(ports.map((seen) => seen.size)).toEqual(ports.map(() => 1))
    const pool = new Set(ports.flatMap((seen) => [...seen]))
    expect(pool.size).toBeGreaterThan(SOURCE_PORTS / 2)
    expect(pool.size).toBeLessThanOrEqual(SOURCE_PORTS)
    expect(pool.has(UNDERLAY_PORT)).toBe(false)
    await until(() => group.counters()['outbound.packets.passed'] === 2 * FLOWS)
  })
})
