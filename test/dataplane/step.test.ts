// Steps: every kind is told by the engine at its place in the flow, with what a reader needs to explain it.
import { describe, expect, it } from 'vitest'
import { STEPS, type Step, type StepKind } from '../../dataplane/step.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import { enginePair, entryFor, MTU, NODE_A, NODE_B, PORT, recordSteps } from '../support/engine-pair.ts'
import { countingBytes, fromTun, icmpEcho, ip, superFromTun, tcpPacket, udpPacket } from '../support/packets.ts'
import { ENCAP_BYTES, vxlanFrame } from '../support/vxlan-frame.ts'

const pieces = () => superFromTun(tcpPacket({ payload: countingBytes(250), checksum: 'partial' }), 100)

/** Steps of both nodes for packets read from A's TUN and taken in by B. */
function stepsOf(...packets: Uint8Array[]): { out: Step[]; back: Step[] } {
  const { a, b } = enginePair()
  const [out, back] = [recordSteps(a), recordSteps(b)]
  a.sendFromTun(...packets)
  b.receive()
  return { out, back }
}

const of = <K extends StepKind>(steps: readonly Step[], kind: K) =>
  steps.filter((step): step is Extract<Step, { kind: K }> => step.kind === kind)

describe('steps', () => {
  it('of every kind are told', () => {
    const open = { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 20, checksumOffset: 6 }
    const { out, back } = stepsOf(
      pieces(),
      fromTun(udpPacket({ checksum: 'partial' }), open),
      fromTun(icmpEcho({ destination: '10.244.9.9' })),
    )
    const told = new Set([...out, ...back].map((step) => step.kind))
    expect([...told].sort()).toEqual(Object.keys(STEPS).sort())
  })

  it('stand in the order of their numbers for one packet, each in its own direction', () => {
    const { out, back } = stepsOf(pieces())
    const check = (steps: readonly Step[], direction: string) => {
      for (const { kind } of steps) expect([direction, 'both']).toContain(STEPS[kind].direction)
    }
    check(out, 'outbound')
    check(back, 'inbound')
    const first = of(out, 'segment')[0]!.id
    const numbers = back.filter((step) => 'id' in step && step.id === first).map((step) => STEPS[step.kind].number)
    expect(numbers).toEqual([...numbers].sort())
    expect(numbers.length).toBeGreaterThan(4)
  })

  it('cost nothing when nobody looks: no sink, same bytes', () => {
    const [traced, quiet] = [enginePair(), enginePair()]
    recordSteps(traced.a)
    recordSteps(traced.b)
    for (const { a } of [traced, quiet]) a.sendFromTun(pieces(), fromTun(icmpEcho()))
    expect(traced.b.receive()).toEqual(quiet.b.receive())
  })

  it('end when the sink is taken away', () => {
    const { a } = enginePair()
    const steps = recordSteps(a)
    a.engine.setSink(null)
    a.sendFromTun(fromTun(icmpEcho()))
    expect(steps).toEqual([])
  })
})

describe('a step tells', () => {
  it('what was read', () => {
    const [read] = of(stepsOf(pieces()).out, 'tun-read')
    expect(read).toMatchObject({ length: 290, gsoType: virtioNet.GSO_TCPV4, gsoSize: 100, needsChecksum: true })
  })

  it('which entry of which table decided, or that none did', () => {
    const { out } = stepsOf(fromTun(icmpEcho()), fromTun(icmpEcho({ destination: '10.244.9.9' })))
    expect(of(out, 'lookup')).toMatchObject([
      { destination: ip('10.244.2.3'), generation: 1, entry: entryFor(NODE_B) },
      { destination: ip('10.244.9.9'), generation: 1, entry: null },
    ])
  })

  it('what was compared with the MTU: the packets that will leave', () => {
    const { out } = stepsOf(pieces(), fromTun(icmpEcho()))
    expect(of(out, 'fit')).toMatchObject([
      { length: 140, mtuBytes: MTU },
      { length: 84, mtuBytes: MTU },
    ])
  })

  it('both views of a super-packet: its own id, and one for each packet cut from it', () => {
    const { out } = stepsOf(pieces())
    const [read] = of(out, 'tun-read')
    const segments = of(out, 'segment')
    expect(segments.map(({ parent, index, payloadLength }) => [parent, index, payloadLength])).toEqual([
      [read!.id, 0, 100],
      [read!.id, 1, 100],
      [read!.id, 2, 50],
    ])
    expect(of(out, 'encap').map(({ id }) => id)).toEqual(segments.map(({ id }) => id))
  })

  it('in which message a frame left, and what that message was', () => {
    const { out } = stepsOf(pieces(), fromTun(icmpEcho()))
    const [first, second] = of(out, 'send')
    expect(of(out, 'encap').map(({ message }) => message)).toEqual([first, first, first, second].map((s) => s!.message))
    expect(first).toMatchObject({
      address: ip(NODE_B.underlay),
      port: PORT,
      packets: 3,
      bytes: 370 + 3 * ENCAP_BYTES,
      segmentSize: 140 + ENCAP_BYTES,
      errno: 0,
    })
  })

  it('where the encapsulated bytes lie', () => {
    const { a, memory } = enginePair()
    const frames: Uint8Array[] = []
    a.engine.setSink({
      step: (step) => {
        if (step.kind === 'encap') frames.push(memory.bytes.slice(step.at, step.at + ENCAP_BYTES + 84))
      },
    })
    a.sendFromTun(fromTun(icmpEcho()))
    expect(frames).toEqual([vxlanFrame(icmpEcho())])
  })

  it('from whom a datagram came, and which frames were in it', () => {
    const { back } = stepsOf(pieces())
    const [received] = of(back, 'receive')
    expect(received).toMatchObject({ address: ip(NODE_A.underlay), port: PORT, segmentSize: 140 + ENCAP_BYTES })
    expect(of(back, 'decap').map(({ datagram, length }) => [datagram, length])).toEqual([
      [received!.datagram, 140],
      [received!.datagram, 140],
      [received!.datagram, 90],
    ])
  })

  it('whose lease allowed the source', () => {
    const { back } = stepsOf(fromTun(icmpEcho()))
    expect(of(back, 'source-check')).toMatchObject([
      { source: ip('10.244.1.2'), entry: entryFor(NODE_A), generation: 1 },
    ])
  })

  it('what became of a checksum', () => {
    const verdicts = (packet: Uint8Array) => of(stepsOf(fromTun(packet)).back, 'checksum').map((step) => step.verdict)
    expect(verdicts(udpPacket())).toEqual(['verified'])
    expect(verdicts(udpPacket({ checksum: 'unused' }))).toEqual(['unused'])
    expect(verdicts(udpPacket({ checksum: 'partial' }))).toEqual(['partial'])
    expect(verdicts(udpPacket({ checksum: 'bad' }))).toEqual(['bad'])
  })

  it('which packets were joined into which write', () => {
    const { back } = stepsOf(pieces())
    const ids = of(back, 'decap').map(({ id }) => id)
    expect(of(back, 'merge').map(({ id, into, index }) => [id, into, index])).toEqual([
      [ids[0], ids[0], 0],
      [ids[1], ids[0], 1],
      [ids[2], ids[0], 2],
    ])
    expect(of(back, 'tun-write')).toMatchObject([
      { id: ids[0], packets: 3, gsoType: virtioNet.GSO_TCPV4, gsoSize: 100, errno: 0 },
    ])
  })

  it('that the pod was answered, or why not', () => {
    const { out } = stepsOf(
      fromTun(icmpEcho({ destination: '10.244.9.9' })),
      fromTun(icmpEcho({ destination: '10.244.9.9', source: '0.0.0.0' })),
    )
    expect(of(out, 'icmp-answer')).toMatchObject([
      { to: ip('10.244.1.2'), type: 3, code: 0, suppressed: false },
      { to: 0, type: 3, code: 0, suppressed: true },
    ])
  })
})
