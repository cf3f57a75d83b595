// Super-packets and single packets in one run: whatever shares a send, waits for the next read or fills the memory, the
// wire carries every packet once, whole and in the order in which it was read.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Step } from '../../../dataplane/step.ts'
import { recordSteps } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  icmpEcho,
  sameBytes,
  superFromTun,
  tcpPacket,
  udpPacket,
} from '../../support/packets.ts'
import { packetsOf } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'

const MSS = 1400

/** A TCP super-packet of so many full segments and some bytes. */
const segments = (count: number, rest = 0, n = 0): Uint8Array =>
  superFromTun(
    tcpPacket({
      payload: countingBytes(count * MSS + rest, n),
      sequence: n * 1000,
      identification: n,
      checksum: 'partial',
    }),
    MSS,
  )

function run(reads: readonly Uint8Array[]) {
  const pair = tappedPair({ queueLength: 256 })
  const steps = recordSteps(pair.a)
  pair.a.sendFromTun(...reads)
  expect(pair.a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return { ...pair, steps }
}

describe('super-packets of a flow that follow each other', () => {
  it('fill their sends up together', () => {
    const { tap } = run([segments(30, 0, 0), segments(30, 0, 1), segments(30, 0, 2)])
    expect(tap.messages.map(({ frames }) => frames.length)).toEqual([44, 44, 2])
  })

  it('leave at once where the last packet is shorter: nothing can join it', () => {
    const { tap } = run([segments(3, 7), segments(3, 7, 1)])
    expect(tap.messages.map(({ frames }) => frames.length)).toEqual([4, 4])
    expect(tap.sends).toBe(2)
  })

  it('do not wait beyond the run: what is left over leaves when the TUN is empty', () => {
    const { tap, a } = run([segments(2)])
    expect(tap.messages.map(({ frames }) => frames.length)).toEqual([2])
    a.sendFromTun(segments(2, 0, 1))
    expect(tap.messages.map(({ frames }) => frames.length)).toEqual([2, 2])
  })

  it('are fewer bytes than the memory holds, or leave before it is full', () => {
    const reads = Array.from({ length: 40 }, (_, n) => segments(46, 0, n))
    const { tap } = run(reads)
    expect(sameBytes(tap.takePackets(), reads.flatMap(packetsOf))).toBe(true)
  })

  it('of tiny segments may need more headers than there are', () => {
    const tiny = (n: number) => superFromTun(udpPacket({ payload: countingBytes(300, n), checksum: 'partial' }), 1)
    const reads = [tiny(0), tiny(1), fromTun(icmpEcho()), tiny(2), tiny(3)]
    const { tap } = run(reads)
    expect(sameBytes(tap.takePackets(), reads.flatMap(packetsOf))).toBe(true)
  })
})

describe('any run', () => {
  const read = fc.oneof(
    fc.tuple(fc.integer({ min: 1, max: 46 }), fc.constantFrom(0, 0, 1, 700)).map(([count, rest]) => ({ count, rest })),
    fc.constantFrom(20, 100, MSS + 12).map((payload) => ({ payload })),
    fc.constant({ dropped: true }),
  )
  type Read = typeof read extends fc.Arbitrary<infer T> ? T : never

  const bytesOf = (one: Read, n: number): Uint8Array => {
    if ('dropped' in one) return fromTun(new Uint8Array(30))
    if ('payload' in one) return fromTun(udpPacket({ payload: countingBytes(one.payload, n), identification: n }))
    return segments(one.count, one.rest, n)
  }

  it('puts every packet on the wire once, whole and in order', () => {
    fc.assert(
      fc.property(fc.array(read, { maxLength: 25 }), (plan) => {
        const reads = plan.map(bytesOf)
        const expected = reads.filter((_, n) => !('dropped' in plan[n]!)).flatMap(packetsOf)
        expect(sameBytes(run(reads).tap.takePackets(), expected)).toBe(true)
      }),
      { numRuns: 60 },
    )
  })

  it('tells for each packet the message in which it left', () => {
    fc.assert(
      fc.property(fc.array(read, { maxLength: 12 }), (plan) => {
        const { steps } = run(plan.map(bytesOf))
        const told = new Map<number, number>()
        for (const step of steps) if (step.kind === 'encap') told.set(step.message, (told.get(step.message) ?? 0) + 1)
        const sent = steps.filter((step): step is Extract<Step, { kind: 'send' }> => step.kind === 'send')
        expect([...told]).toEqual(sent.map(({ message, packets }) => [message, packets]))
      }),
      { numRuns: 60 },
    )
  })
})
