// Packets that a kernel next door left unfinished, at a TUN that does not take them so: finished here, written one by
// one and in order, none lost; only what is refused even then is dropped.
import { describe, expect, test } from 'vitest'
import { EAGAIN, EINVAL, EIO } from '../../../dataplane/io/errno.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { type Arrival, receiveDatagrams } from '../../support/arrival.ts'
import { isPlain, MTU, NODE_A, type NodeOptions, type Written } from '../../support/engine-pair.ts'
import { countingBytes, IPV6, ip, tcpPacket, udpPacket } from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

const ENOMEM = 12
const partial = { checksum: 'partial', identification: 7 } as const
const BULK = { ...partial, payload: countingBytes(20_000), flags: tcp.FLAG_ACK | tcp.FLAG_PSH }
const UDP_BULK = { ...partial, payload: countingBytes(6000) }
const packetsOf = (written: readonly Written[]) => written.map(({ packet }) => packet)
const errnoFor =
  (errno: number) =>
  (written: Written): number =>
    isPlain(written) ? 0 : errno

interface Unfinished {
  readonly packet: Uint8Array
  readonly segmentSize?: number
  /** What is given up when it goes on. */
  readonly downgrade: 'tun-gso-tcp4' | 'tun-gso-tcp6' | 'tun-gso-udp' | 'tun-short-tail' | 'tun-checksum'
}
const WHOLE_SEGMENTS = 14 * (MTU - 40)
const UNFINISHED: readonly (readonly [string, Unfinished])[] = [
  ['a TCP super-packet', { packet: tcpPacket(BULK), downgrade: 'tun-short-tail' }],
  [
    'a TCP super-packet of whole segments',
    { packet: tcpPacket({ ...BULK, payload: countingBytes(WHOLE_SEGMENTS) }), downgrade: 'tun-gso-tcp4' },
  ],
  [
    'a TCPv6 super-packet',
    { packet: tcpPacket({ ...IPV6, ...BULK, payload: countingBytes(10 * (MTU - 60)) }), downgrade: 'tun-gso-tcp6' },
  ],
  ['a UDP super-packet', { packet: udpPacket(UDP_BULK), segmentSize: 1200, downgrade: 'tun-gso-udp' }],
  [
    'a UDPv6 super-packet',
    { packet: udpPacket({ ...IPV6, ...UDP_BULK }), segmentSize: 1200, downgrade: 'tun-gso-udp' },
  ],
  [
    'an open TCP checksum',
    { packet: tcpPacket({ ...partial, payload: countingBytes(99) }), downgrade: 'tun-checksum' },
  ],
  [
    'an open UDP checksum',
    { packet: udpPacket({ ...partial, payload: countingBytes(99) }), downgrade: 'tun-checksum' },
  ],
  ['a large UDP datagram', { packet: udpPacket(UDP_BULK), downgrade: 'tun-checksum' }],
]

function receive({ packet, segmentSize }: Unfinished, options: NodeOptions = {}): Arrival {
  return receiveDatagrams([vxlanFrame(packet)], segmentSize === undefined ? {} : { segmentSize }, options)
}

/** What it stands for, as a kernel that takes it would see it. */
const finished = (unfinished: Unfinished) => receive(unfinished).written.flatMap(resplit)

describe.each(UNFINISHED)('%s that the TUN refuses', (_, unfinished) => {
  test.each([
    ['EINVAL', EINVAL],
    ['EIO', EIO],
    ['ENOMEM', ENOMEM],
  ])('with %s is written finished, packet by packet, in order', (_name, errno) => {
    const expected = finished(unfinished)
    const { written, b } = receive(unfinished, { refuseWrite: errnoFor(errno) })
    expect(packetsOf(written)).toEqual(expected)
    expect(written.every(isPlain)).toBe(true)
    expect(b.counters.get('inbound.packets.passed')).toBe(expected.length)
    const counter =
      unfinished.downgrade === 'tun-checksum' ? 'inbound.checksum.refused' : 'inbound.super-packets.refused'
    expect(b.counters.get(counter)).toBe(1)
  })

  test('again and again is finished without asking, and the downgrade is counted once', () => {
    const { b } = receive(unfinished, { refuseWrite: errnoFor(EINVAL) })
    const again = () => {
      const { packet, segmentSize = 0 } = unfinished
      b.socket.deliver(vxlanFrame(packet), ip(NODE_A.underlay), { segmentSize })
      return b.receive()
    }
    const expected = finished(unfinished)
    for (let round = 0; round < 2; round++) expect(packetsOf(again())).toEqual(expected)
    expect(b.counters.get(`downgrade.${unfinished.downgrade}`)).toBe(1)
    const calls = b.counters.get('inbound.calls.write')
    expect(packetsOf(again())).toEqual(expected)
    expect(b.counters.get('inbound.calls.write')).toBe(calls + expected.length)
    expect(b.counters.get(`downgrade.${unfinished.downgrade}`)).toBe(1)
  })

  test('in every form is dropped, and nothing is given up', () => {
    const { written, b } = receive(unfinished, { refuseWrite: () => EINVAL })
    expect(written).toEqual([])
    expect(b.counters.dropped('inbound', 'tun-rejected').packets).toBe(finished(unfinished).length)
    for (let round = 0; round < 3; round++) {
      b.socket.deliver(vxlanFrame(unfinished.packet), ip(NODE_A.underlay), { segmentSize: unfinished.segmentSize ?? 0 })
      b.receive()
    }
    expect(b.counters.get(`downgrade.${unfinished.downgrade}`)).toBe(0)
  })

  test('because it is full is not cut: every piece would wait', () => {
    const { b } = receive(unfinished, { refuseWrite: () => EAGAIN })
    expect(b.counters.dropped('inbound', 'tun-backpressure').packets).toBe(1)
    expect(b.counters.get('inbound.calls.write')).toBe(1)
  })

  test('because it is down costs one call more', () => {
    const { b } = receive(unfinished, { refuseWrite: () => EIO })
    expect(b.counters.dropped('inbound', 'tun-down').packets).toBe(finished(unfinished).length)
    expect(b.counters.get('inbound.calls.write')).toBe(2)
  })
})

test('a piece that is refused by itself is dropped alone', () => {
  let writes = 0
  const unfinished = { packet: tcpPacket(BULK), downgrade: 'tun-short-tail' } as const
  const expected = finished(unfinished)
  const refuseWrite = (written: Written): number => (isPlain(written) && ++writes !== 3 ? 0 : EINVAL)
  const { written, b } = receive(unfinished, { refuseWrite })
  expect(packetsOf(written)).toEqual(expected.filter((_, index) => index !== 2))
  expect(b.counters.dropped('inbound', 'tun-rejected')).toEqual({ packets: 1, bytes: MTU - 40 })
})

test('a refused super-packet keeps its place in its flow', () => {
  const segment = (identification: number, sequence: number, bytes: number) =>
    tcpPacket({ ...partial, sequence, identification, payload: countingBytes(bytes) })
  const given = [segment(1, 1, 100), segment(2, 101, 5000), segment(6, 5101, 100), segment(7, 5201, 100)]
  const whole = receiveDatagrams(given.map((packet) => vxlanFrame(packet)))
  const { written } = receiveDatagrams(
    given.map((packet) => vxlanFrame(packet)),
    {},
    { refuseWrite: errnoFor(EINVAL) },
  )
  expect(packetsOf(written)).toEqual(whole.written.flatMap(resplit))
})

test('packets that were joined here and are refused keep no open checksum that is refused as well', () => {
  const segments = [0, 1, 2].map((n) =>
    tcpPacket({ ...partial, sequence: n * 100, identification: n, payload: countingBytes(100, n) }),
  )
  const { written } = receiveDatagrams(
    segments.map((packet) => vxlanFrame(packet)),
    {},
    { refuseWrite: errnoFor(EINVAL) },
  )
  expect(packetsOf(written)).toEqual(segments.map(withChecksums))
})

test('packets with work left in them are still written so after another kind was given up', () => {
  const open = { packet: udpPacket({ ...partial, payload: countingBytes(99) }), downgrade: 'tun-checksum' } as const
  const { b } = receive(open, { refuseWrite: (written) => (written.vnet.gsoType === virtioNet.GSO_NONE ? 0 : EINVAL) })
  for (let round = 0; round < 4; round++) {
    b.socket.deliver(vxlanFrame(tcpPacket(BULK)), ip(NODE_A.underlay), {})
    b.receive()
  }
  b.socket.deliver(vxlanFrame(open.packet), ip(NODE_A.underlay), {})
  expect(b.receive()).toMatchObject([{ vnet: { flags: virtioNet.FLAG_NEEDS_CSUM } }])
})
