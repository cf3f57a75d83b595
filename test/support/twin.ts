// Engine and reference engine side by side: the same batches to both, and an error with the bytes in it at the first
// packet, drop or count in which they differ.
import { DROP_REASON_NAMES } from '../../dataplane/drop-reason.ts'
import type { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import type { SendBatch } from '../../dataplane/io/send-batch.ts'
import type { UnderlaySocket } from '../../dataplane/io/underlay-socket.ts'
import type { CountAlike, PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import type { Direction } from '../../dataplane/step.ts'
import { fold, sumWords } from '../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import { type EncapsulationName, type EnginePair, enginePair, type MemoryNode } from './engine-pair.ts'
import { ip, viewOf } from './packets.ts'
import { type Arriving, type Fate, referenceInbound, referenceOutbound, referenceTarget } from './reference-engine.ts'
import { inspect } from './reference-inspect.ts'
import { resplit } from './resplit.ts'
import { readMessage, type SentMessage } from './underlay-tap.ts'

/** Takes every message and delivers none. */
class Sink implements UnderlaySocket {
  readonly maxSegments: number
  readonly messages: SentMessage[] = []
  readonly #memory: PacketMemory
  readonly #inner: UnderlaySocket

  constructor(inner: UnderlaySocket, memory: PacketMemory) {
    this.#inner = inner
    this.#memory = memory
    this.maxSegments = inner.maxSegments
  }

  receive(slots: ReceiveSlots): number {
    return this.#inner.receive(slots)
  }

  send(batch: SendBatch): void {
    for (let message = 0; message < batch.count; message++)
      this.messages.push(readMessage(this.#memory, batch, message))
  }
}

const hex = (bytes: Uint8Array | undefined): string =>
  bytes === undefined ? 'nothing' : Buffer.from(bytes).toString('hex')

export class Twin {
  readonly pair: EnginePair
  /** Frames that the engine took together with the one before them. */
  alike = 0
  readonly #encapsulation: EncapsulationName
  readonly #sinks: Sink[] = []
  /** What the reference has counted, by names as in counters. */
  readonly #expected = new Map<string, number>()
  #nowMs = 0

  constructor(encapsulation: EncapsulationName) {
    this.#encapsulation = encapsulation
    this.pair = enginePair({
      encapsulation,
      wrapSocket: (inner, memory) => {
        const sink = new Sink(inner, memory)
        this.#sinks.push(sink)
        return sink
      },
      // So late each time that no answer is held back.
      nowMs: () => (this.#nowMs += 1_000_000),
    })
    const { countAlike } = this.pair.memory
    const counted: CountAlike = (...facts) => {
      const count = countAlike(...facts)
      this.alike += count
      return count
    }
    Object.assign(this.pair.memory, { countAlike: counted })
  }

  /** Times that the reference came to this end: `passed`, or the name of a drop reason. */
  seen(direction: Direction, end: string): number {
    return this.#expected.get(`${direction} ${end} packets`) ?? 0
  }

  /** Reads from node A's TUN, virtio-net header first. @throws Error at the first difference */
  outbound(reads: readonly Uint8Array[]): void {
    const { a } = this.pair
    const fates = reads.map((read) => referenceOutbound(read, this.#encapsulation))
    a.sendFromTun(...reads)
    this.#compareAnswers(
      a.takeWritten().map(({ packet }) => packet),
      fates.flatMap(({ answer }) => answer ?? []),
    )
    const sent = this.#sinks[0]!.messages.splice(0)
    const frames = sent.flatMap(({ frames: all, ...rest }) => all.map((frame) => ({ ...rest, frame })))
    const { address, port } = referenceTarget(this.#encapsulation)
    let next = 0
    for (const [index, fate] of fates.entries()) {
      for (const wanted of fate.out) {
        const found = frames[next++]
        const isSame = found !== undefined && Buffer.compare(found.frame, wanted) === 0
        const isAddressed = found?.address === address && found.port === port && found.tos === fate.outerEcn
        if (isSame && isAddressed) continue
        throw new Error(`read ${hex(reads[index])}: sent ${hex(found?.frame)}, ECN ${found?.tos}; not ${hex(wanted)}`)
      }
    }
    if (next !== frames.length) throw new Error(`sent besides: ${hex(frames[next]?.frame)}`)
    this.#count(a, 'outbound', fates)
  }

  #compareAnswers(found: readonly Uint8Array[], right: readonly Uint8Array[]): void {
    for (const [index, wanted] of right.entries()) {
      if (hex(found[index]) !== hex(wanted)) throw new Error(`answered ${hex(found[index])}, not ${hex(wanted)}`)
    }
    if (found.length > right.length) throw new Error(`answered besides: ${hex(found[right.length])}`)
  }

  /** Datagrams for node B. @throws Error at the first difference */
  inbound(datagrams: readonly Arriving[]): void {
    const { b } = this.pair
    const fates = datagrams.flatMap((datagram) => referenceInbound(datagram, this.#encapsulation))
    for (const { bytes, from, ...facts } of datagrams) b.socket.deliver(bytes, ip(from), facts)
    const written = byFlow(b.receive().flatMap(resplit))
    const wanted = byFlow(fates.flatMap((fate) => fate.out))
    for (const flow of new Set([...written.keys(), ...wanted.keys()])) {
      const [found, right] = [written.get(flow) ?? [], wanted.get(flow) ?? []]
      const index = right.findIndex((packet, at) => found[at] === undefined || Buffer.compare(packet, found[at]) !== 0)
      if (index < 0 && found.length === right.length) continue
      const at = index < 0 ? right.length : index
      const given = datagrams.map(({ bytes, ...rest }) => `${JSON.stringify(rest)} ${hex(bytes)}`).join('\n')
      throw new Error(`number ${at} of a flow: wrote ${hex(found[at])}\nnot ${hex(right[at])}\ngiven\n${given}`)
    }
    this.#count(b, 'inbound', fates)
    this.#countChecksums(b, fates)
  }

  #countChecksums(node: MemoryNode, fates: readonly Fate[]): void {
    for (const state of ['partial', 'bad'] as const) {
      this.#add(`checksum ${state}`, fates.filter(({ checksum }) => checksum === state).length)
      const [found, right] = [node.counters.get(`inbound.checksum.${state}`), this.#expected.get(`checksum ${state}`)]
      if (found !== right) throw new Error(`${found} checksums ${state}, not ${right}`)
    }
  }

  #count(node: MemoryNode, direction: Direction, fates: readonly Fate[]): void {
    for (const { reason, packets, bytes } of fates) {
      this.#add(`${direction} ${reason ?? 'passed'} packets`, packets)
      this.#add(`${direction} ${reason ?? 'passed'} bytes`, bytes)
    }
    const passed = {
      packets: node.counters.get(`${direction}.packets.passed`),
      bytes: node.counters.get(`${direction}.bytes.passed`),
    }
    this.#expect(direction, 'passed', passed)
    for (const reason of DROP_REASON_NAMES) this.#expect(direction, reason, node.counters.dropped(direction, reason))
    const { packets, bytes } = node.counters.imbalance()
    if (packets !== 0 || bytes !== 0) throw new Error(`the books are out by ${packets} packets, ${bytes} bytes`)
  }

  #add(name: string, amount: number): void {
    this.#expected.set(name, (this.#expected.get(name) ?? 0) + amount)
  }

  #expect(direction: Direction, end: string, found: { readonly packets: number; readonly bytes: number }): void {
    for (const unit of ['packets', 'bytes'] as const) {
      const right = this.#expected.get(`${direction} ${end} ${unit}`) ?? 0
      if (found[unit] !== right) throw new Error(`${direction} ${end}: ${found[unit]} ${unit}, not ${right}`)
    }
  }
}

/** Packets of each flow in order. Between flows there is none: joining may let one overtake another. */
function byFlow(packets: readonly Uint8Array[]): Map<string, Uint8Array[]> {
  const flows = new Map<string, Uint8Array[]>()
  for (const packet of packets) {
    const facts = inspect(packet)
    if (typeof facts === 'string') throw new Error(`${facts}: wrote ${hex(packet)}`)
    const { version, source, destination, protocol, headerBytes, ipBytes } = facts
    const ports = headerBytes > 0 ? hex(packet.subarray(ipBytes, ipBytes + 4)) : ''
    const flow = `${source} ${destination} ${protocol} ${ports}`
    const kept = version === 4 ? withoutIdentification(packet, headerBytes) : packet
    const before = flows.get(flow)
    if (before === undefined) flows.set(flow, [kept])
    else before.push(kept)
  }
  return flows
}

/**
 * The packet with what joining does not keep taken out: with DF nobody reassembles, and the identification may be
 * another.
 * @throws Error when the header checksum is wrong
 */
function withoutIdentification(packet: Uint8Array, headerBytes: number): Uint8Array {
  const kept = packet.slice()
  const view = viewOf(kept)
  if (fold(sumWords(kept, 0, ipv4.getHeaderBytes(view, 0))) !== 0xffff)
    throw new Error(`wrote ${hex(packet)}: checksum`)
  const isFree = headerBytes > 0 && (ipv4.getFragmentWord(view, 0) & ipv4.DONT_FRAGMENT) !== 0
  if (!isFree) return kept
  ipv4.setIdentification(view, 0, 0)
  ipv4.setChecksum(view, 0, 0)
  return kept
}
