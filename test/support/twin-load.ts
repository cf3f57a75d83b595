// What engine and reference engine are fed with: batches of real packets, mutated, for either direction.
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import * as vxlan from '../../dataplane/wire/vxlan.ts'
import { type EncapsulationName, NODE_A } from './engine-pair.ts'
import { Mutator } from './mutation.ts'
import { fromTun, openFromTun, superFromTun } from './packets.ts'
import type { Arriving } from './reference-engine.ts'
import { inspect } from './reference-inspect.ts'
import { seededRandom } from './seeded-random.ts'
import { Twin } from './twin.ts'
import { train, vxlanFrame } from './vxlan-frame.ts'

const BATCH = 24
/** Bytes of a train that a datagram can carry. */
const LARGEST_TRAIN = 65_000
const STRANGER = '192.0.2.99'
const VNET_LAYER = [{ fields: virtioNet.FIELDS, at: 0 }]
const TUNNEL_LAYERS = [
  { fields: vxlan.FIELDS, at: 0 },
  { fields: ethernet.FIELDS, at: vxlan.HEADER_LEN },
]

/** Reads from a TUN, none of them empty: packets as they are, open ones, super-packets, and lies about any of them. */
function tunBatch(mutator: Mutator): Uint8Array[] {
  const reads: Uint8Array[] = []
  while (reads.length < BATCH) {
    const kind = mutator.below(8)
    if (kind === 0) reads.push(...mutator.run(1 + mutator.below(8)).map((packet) => fromTun(packet)))
    else if (kind === 1) reads.push(...alikeReads(mutator))
    else reads.push(...[oneRead(mutator)].filter((read) => read.length > 0))
  }
  return reads
}

/**
 * Packets that follow each other, all open or none of them; here and there one with another byte in its headers, or its
 * length.
 */
function alikeReads(mutator: Mutator): Uint8Array[] {
  const isOpen = mutator.once(2)
  return mutator.run(2 + mutator.below(10)).map((packet) => {
    const facts = inspect(packet)
    const read = isOpen && typeof facts !== 'string' && facts.headerBytes > 0 ? openFromTun(packet) : fromTun(packet)
    if (mutator.once(10)) read[mutator.below(Math.min(read.length, 40))] = mutator.below(256)
    const resized = mutator.once(6) ? mutator.resize(read) : read
    return resized.length > 0 ? resized : read
  })
}

function oneRead(mutator: Mutator): Uint8Array {
  if (mutator.once(6)) {
    const read = superFromTun(
      mutator.large(),
      mutator.pick([100, 536, 1398, 1400, 1410, 1500]),
      mutator.pick([0, 0, 0x80]),
    )
    return mutator.once(3) ? mutator.resize(mutator.change(read, VNET_LAYER)) : read
  }
  const packet = mutator.packet()
  const facts = inspect(packet)
  const isOpen = typeof facts !== 'string' && facts.headerBytes > 0 && mutator.once(3)
  const read = isOpen ? openFromTun(packet) : fromTun(packet)
  return mutator.once(6) ? mutator.resize(mutator.change(read, VNET_LAYER)) : read
}

/** Datagrams as they arrive: single frames, trains, a kernel's super-packets, and what strangers send. */
function underlayBatch(mutator: Mutator, encapsulation: EncapsulationName): Arriving[] {
  const frame = (packet: Uint8Array): Uint8Array => {
    if (encapsulation === 'udp') return packet
    const whole = vxlanFrame(packet, { padding: mutator.pick([0, 0, 0, 6, 18]) })
    return mutator.once(12) ? mutator.resize(mutator.change(whole, TUNNEL_LAYERS)) : whole
  }
  const arriving = (bytes: Uint8Array, segmentSize = 0): Arriving => {
    const from = mutator.once(40) ? STRANGER : NODE_A.underlay
    return { bytes, from, tos: mutator.once(4) ? mutator.below(256) : 0, segmentSize }
  }
  const datagrams: Arriving[] = []
  while (datagrams.length < BATCH) {
    const kind = mutator.below(12)
    if (kind === 0) {
      const joined = train(mutator.run(2 + mutator.below(6)).map(frame))
      datagrams.push(arriving(joined.bytes, joined.segmentSize))
    } else if (kind === 5) {
      const joined = alikeTrain(mutator, encapsulation)
      datagrams.push(arriving(joined.bytes, joined.segmentSize))
    } else if (kind === 1) {
      datagrams.push(arriving(frame(mutator.large()), mutator.pick([0, 0, 100, 1398, 1448])))
    } else if (kind < 5) {
      datagrams.push(...mutator.run(1 + mutator.below(6)).map((packet) => arriving(frame(packet))))
    } else {
      datagrams.push(arriving(frame(mutator.packet()), mutator.once(10) ? 1 + mutator.below(200) : 0))
    }
  }
  return datagrams
}

/** A train of frames of one size that follow each other, perhaps a byte or two of it changed, anywhere. */
function alikeTrain(mutator: Mutator, encapsulation: EncapsulationName): ReturnType<typeof train> {
  const padding = mutator.pick([0, 0, 6])
  const packets = mutator.run(2 + mutator.below(mutator.once(6) ? 80 : 12))
  const frames = packets.map((packet) => (encapsulation === 'udp' ? packet : vxlanFrame(packet, { padding })))
  const joined = train(frames.slice(0, Math.floor(LARGEST_TRAIN / frames[0]!.length)))
  for (let change = mutator.pick([0, 0, 1, 2]); change > 0; change--) {
    joined.bytes[mutator.below(joined.bytes.length)] = mutator.below(256)
  }
  return joined
}

/** Runs at least so many frames each way through engine and reference. @throws Error at the first difference */
export function feedTwins(encapsulation: EncapsulationName, seed: number, frames: number): Twin {
  const twin = new Twin(encapsulation)
  const mutator = new Mutator(seededRandom(seed))
  for (const direction of ['outbound', 'inbound'] as const) {
    for (let fed = 0, batch = 0; fed < frames; batch++) {
      try {
        fed += direction === 'outbound' ? feedOutbound(twin, mutator) : feedInbound(twin, mutator, encapsulation)
      } catch (error) {
        throw new Error(`seed ${seed}, ${encapsulation}, ${direction} batch ${batch}`, { cause: error })
      }
    }
  }
  return twin
}

function feedOutbound(twin: Twin, mutator: Mutator): number {
  const reads = tunBatch(mutator)
  twin.outbound(reads)
  return reads.length
}

function feedInbound(twin: Twin, mutator: Mutator, encapsulation: EncapsulationName): number {
  const datagrams = underlayBatch(mutator, encapsulation)
  twin.inbound(datagrams)
  return datagrams.length
}
