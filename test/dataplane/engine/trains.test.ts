// Frames of a train that are alike pass in one go: what is written and counted is what it would be if each were looked
// at, also when the TUN wants them taken apart again.
import { describe, expect, it } from 'vitest'
import { EINVAL } from '../../../dataplane/io/errno.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { enginePair, NODE_A, type NodeOptions, recordSteps } from '../../support/engine-pair.ts'
import { Mutator } from '../../support/mutation.ts'
import { countingBytes, ip, udpPacket } from '../../support/packets.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { train, vxlanFrame } from '../../support/vxlan-frame.ts'

const TRAINS = 40
const MOST_BYTES = 65_000

type Train = ReturnType<typeof train>

/** A node B, and how many frames it has taken in numbers; never any when it `looks` at each. */
function receiver(options: NodeOptions, looks: boolean) {
  const { b, memory } = enginePair(options)
  const { countAlike } = memory
  const taken = { frames: 0 }
  const counted: typeof countAlike = (...facts) => {
    const count = looks ? 0 : countAlike(...facts)
    taken.frames += count
    return count
  }
  Object.assign(memory, { countAlike: counted })
  const take = (trains: readonly Train[]) => {
    for (const { bytes, segmentSize } of trains) b.socket.deliver(bytes, ip(NODE_A.underlay), { segmentSize, tos: 0 })
    return b.receive().map(({ vnet, packet }) => `${JSON.stringify(vnet)} ${Buffer.from(packet).toString('hex')}`)
  }
  return { b, take, taken }
}

function trains(seed: number): Train[] {
  const mutator = new Mutator(seededRandom(seed))
  return Array.from({ length: TRAINS }, () => {
    const frames = mutator.run(1 + mutator.below(140)).map((packet) => vxlanFrame(packet))
    const joined = train(frames.slice(0, Math.floor(MOST_BYTES / frames[0]!.length)))
    // The last frame of a train may be shorter than the others.
    const end = joined.bytes.length - (mutator.once(4) ? mutator.below(joined.segmentSize) : 0)
    return { bytes: joined.bytes.slice(0, end), segmentSize: joined.segmentSize }
  })
}

const OPTIONS: readonly { readonly name: string; readonly options: NodeOptions }[] = [
  { name: 'a TUN that takes all', options: {} },
  {
    name: 'a TUN that takes nothing joined',
    options: { refuseWrite: ({ vnet }) => (vnet.gsoType === virtioNet.GSO_NONE ? 0 : EINVAL) },
  },
  { name: 'UDP not to be joined', options: { settings: { mergeUdp: false } } },
]

describe.each(OPTIONS)('with $name', ({ options }) => {
  it.each([1, 2])('a train is written and counted as if each frame were looked at (seed %i)', (seed) => {
    const [quick, slow] = [receiver(options, false), receiver(options, true)]
    const all = trains(seed)
    for (const one of all) expect(quick.take([one]).join('\n')).toBe(slow.take([one]).join('\n'))
    expect(quick.take(all.slice(0, 9)).join('\n')).toBe(slow.take(all.slice(0, 9)).join('\n'))
    expect(quick.b.counters.snapshot()).toEqual(slow.b.counters.snapshot())
    expect(quick.b.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
    expect(quick.taken.frames).toBeGreaterThan(0)
  })
})

it('is taken frame by frame while somebody looks on', () => {
  const node = receiver({}, false)
  const steps = recordSteps(node.b)
  const joined = train(
    Array.from({ length: 5 }, (_, index) => vxlanFrame(udpPacket({ payload: countingBytes(9, index) }))),
  )
  node.take([joined])
  expect(steps.filter(({ kind }) => kind === 'checksum')).toHaveLength(5)
  node.b.engine.setSink(null)
  node.take([joined])
  expect(node.taken.frames).toBe(4)
})

it('is taken frame by frame where each frame loses a hop', () => {
  const node = receiver({ encapsulation: 'udp' }, false)
  const packets = Array.from({ length: 5 }, (_, index) => udpPacket({ payload: countingBytes(9, index) }))
  expect(node.take([train(packets)])).toHaveLength(1)
  expect(node.taken.frames).toBe(0)
})
