// Words for steps: every kind has its sentence, with the values of the step in it.
import { describe, expect, it } from 'vitest'
import { type ForwardingEntry, STEPS, type Step, type StepKind } from '../../../dataplane/index.ts'
import { explainStep } from '../../../src/trace/explain.ts'
import { entryFor, NODE_B } from '../../support/engine-pair.ts'
import { ip } from '../../support/packets.ts'

const entry: ForwardingEntry = entryFor(NODE_B)

const EXAMPLES: { readonly [K in StepKind]: readonly [Extract<Step, { kind: K }>, string] } = {
  'tun-read': [
    { kind: 'tun-read', id: 1, at: 0, length: 9000, gsoType: 1, gsoSize: 1398, needsChecksum: true },
    '9000 bytes from the TUN, a TCPv4 super-packet to be cut at 1398, checksum open',
  ],
  lookup: [
    { kind: 'lookup', id: 1, destination: ip('10.244.2.3'), generation: 7, entry },
    '10.244.2.3 is behind 10.244.2.0/24 → 192.0.2.2 (VTEP 0a:00:00:00:00:02) (table generation 7)',
  ],
  fit: [{ kind: 'fit', id: 1, length: 84, mtuBytes: 1450 }, '84 bytes, the tunnel takes 1450'],
  segment: [
    { kind: 'segment', id: 2, parent: 1, index: 2, at: 0, headerLength: 40, payloadAt: 0, payloadLength: 60 },
    'piece 3: 100 bytes',
  ],
  checksum: [{ kind: 'checksum', id: 1, verdict: 'partial' }, 'transport checksum partial'],
  encap: [
    { kind: 'encap', id: 1, at: 0, headerLength: 22, outerTos: 2, message: 1 },
    '22 bytes of tunnel header in front, outer ECN ECT(0)',
  ],
  send: [
    {
      kind: 'send',
      message: 1,
      address: ip('192.0.2.2'),
      port: 8472,
      packets: 3,
      bytes: 318,
      segmentSize: 106,
      errno: 101,
    },
    '3 packets, 318 bytes to 192.0.2.2:8472: failed, errno 101',
  ],
  receive: [
    {
      kind: 'receive',
      datagram: 1,
      at: 0,
      length: 318,
      address: ip('192.0.2.1'),
      port: 8472,
      tos: 0,
      segmentSize: 106,
    },
    '318 bytes from 192.0.2.1:8472, a train of 106 bytes each',
  ],
  decap: [
    { kind: 'decap', id: 1, datagram: 1, at: 0, length: 84 },
    'tunnel header is ours and for us: 84 bytes inside',
  ],
  'source-check': [
    { kind: 'source-check', id: 1, source: ip('10.244.7.9'), generation: 7, entry: null },
    'no lease covers the inner source 10.244.7.9',
  ],
  ecn: [{ kind: 'ecn', id: 1, innerBefore: 2, outer: 3, inner: 3 }, 'outer CE, inner ECT(0) → CE'],
  merge: [{ kind: 'merge', id: 2, into: 1, index: 4 }, 'joins it as number 5'],
  'tun-write': [
    { kind: 'tun-write', id: 1, packets: 5, bytes: 530, gsoType: 5, gsoSize: 64, errno: 0 },
    '5 packets into the TUN, a UDP super-packet to be cut at 64',
  ],
  drop: [{ kind: 'drop', id: 1, direction: 'outbound', reason: 'no-route', at: 0, length: 84 }, 'dropped: no-route'],
  'icmp-answer': [
    { kind: 'icmp-answer', id: 1, to: ip('10.244.1.2'), type: 3, code: 4, suppressed: false },
    'told 10.244.1.2: ICMP type 3 code 4',
  ],
}

describe('a step in words', () => {
  it.each(Object.keys(STEPS) as StepKind[])('says what happened: %s', (kind) => {
    const [step, sentence] = EXAMPLES[kind]
    const { number } = STEPS[kind]
    expect(explainStep(step)).toBe(`${number === 0 ? ' ' : number} ${kind.padEnd(12)} ${sentence}`)
  })

  it.each([
    [1, 'TCPv4'],
    [0x81, 'TCPv4'],
    [4, 'TCPv6'],
    [5, 'UDP'],
    [9, 'type 9'],
  ])('names the kind of a super-packet: %i', (gsoType, name) => {
    const write: Step = { kind: 'tun-write', id: 1, packets: 1, bytes: 1500, gsoType, gsoSize: 1398, errno: 0 }
    expect(explainStep(write)).toContain(` 1 packet into the TUN, a ${name} super-packet to be cut at 1398`)
  })

  it('says that no lease covers a destination', () => {
    const miss: Step = { kind: 'lookup', id: 1, destination: ip('10.244.9.7'), generation: 3, entry: null }
    expect(explainStep(miss)).toContain('no lease covers 10.244.9.7')
  })
})
