// The recorder behind live traces: so many steps and no more, with the time and the bytes of each.
import { describe, expect, it } from 'vitest'
import { StepRecorder } from '../../../dataplane/worker/step-recorder.ts'
import { enginePair } from '../../support/engine-pair.ts'
import { fromTun, icmpEcho } from '../../support/packets.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex')

function recording(steps: number) {
  const { memory, a } = enginePair()
  let time = 0n
  const recorder = new StepRecorder(memory, steps, () => ++time)
  a.engine.setSink(recorder)
  return { a, recorder }
}

describe('a recorder', () => {
  it('keeps steps in order, with the time of each', () => {
    const { a, recorder } = recording(100)
    a.sendFromTun(fromTun(icmpEcho()))
    const steps = recorder.take()
    expect(steps.map(({ step }) => step.kind)).toEqual(['tun-read', 'lookup', 'fit', 'encap', 'send'])
    expect(steps.map(({ timeNs }) => timeNs)).toEqual([1n, 2n, 3n, 4n, 5n])
    expect(recorder.isFull).toBe(false)
  })

  it('keeps the bytes of what was read and of what was made of it', () => {
    const { a, recorder } = recording(100)
    a.sendFromTun(fromTun(icmpEcho()))
    const [read, lookup, , encap] = recorder.take()
    expect(read!.snap).toBe(hex(icmpEcho()))
    expect(lookup!.snap).toBe('')
    expect(encap!.snap.startsWith(hex(vxlanFrame(icmpEcho())))).toBe(true)
  })

  it('cuts the bytes of large packets', () => {
    const { a, recorder } = recording(1)
    a.sendFromTun(fromTun(icmpEcho({ payload: new Uint8Array(1000) })))
    expect(recorder.take()[0]!.snap).toBe(hex(icmpEcho({ payload: new Uint8Array(1000) }).slice(0, 192)))
  })

  it('stops at the number asked for', () => {
    const { a, recorder } = recording(3)
    a.sendFromTun(fromTun(icmpEcho()), fromTun(icmpEcho()))
    expect(recorder.isFull).toBe(true)
    expect(recorder.take()).toHaveLength(3)
  })

  it('gives each step once', () => {
    const { a, recorder } = recording(100)
    a.sendFromTun(fromTun(icmpEcho()))
    recorder.take()
    expect(recorder.take()).toEqual([])
  })
})
