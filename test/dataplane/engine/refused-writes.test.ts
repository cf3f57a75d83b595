// Joined packets that the TUN refuses: each is written by itself, as it came, and a kind that is refused again and
// again is not joined any more.
import { describe, expect, test } from 'vitest'
import { EINVAL, EIO } from '../../../dataplane/io/errno.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { type Arrival, receivePackets } from '../../support/arrival.ts'
import { NODE_A, type Written } from '../../support/engine-pair.ts'
import {
  countingBytes,
  IPV6,
  ip,
  type TcpOptions,
  tcpPacket,
  type UdpOptions,
  udpPacket,
} from '../../support/packets.ts'
import { resplit } from '../../support/resplit.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

const SIZE = 100
const segment = (n: number, options: TcpOptions = {}): Uint8Array =>
  tcpPacket({
    ...{ sequence: 1000 + n * SIZE, identification: 50 + n, payload: countingBytes(SIZE, n) },
    ...options,
  })
const datagram = (n: number, options: UdpOptions = {}): Uint8Array =>
  udpPacket({ payload: countingBytes(SIZE, n), identification: 50 + n, ...options })

const isJoined = ({ vnet }: Written): boolean => vnet.gsoType !== virtioNet.GSO_NONE
const refuseJoined = (written: Written): number => (isJoined(written) ? EINVAL : 0)
const packetsOf = (written: readonly Written[]) => written.map(({ packet }) => packet)

const { FLAG_ACK, FLAG_PSH } = tcp
const TCP = [0, 1, 2, 3].map((n) => segment(n, { flags: n === 3 ? FLAG_ACK | FLAG_PSH : FLAG_ACK }))
const UDP = [0, 1, 2, 3].map((n) => datagram(n))
const SHORT_TAIL = [segment(0), segment(1), segment(2, { payload: countingBytes(30) })]

describe('packets whose joining is refused with EINVAL', () => {
  test.each([
    ['TCP', TCP],
    ['TCP with a short tail', SHORT_TAIL],
    ['TCP with options', [0, 1].map((n) => segment(n, { tcpOptions: countingBytes(12) }))],
    ['TCPv6', [0, 1, 2].map((n) => segment(n, { ...IPV6, flags: n === 2 ? FLAG_ACK | FLAG_PSH : FLAG_ACK }))],
    ['UDPv6', [0, 1, 2].map((n) => datagram(n, IPV6))],
    ['UDP', UDP],
    ['UDP with a short tail', [datagram(0), datagram(1, { payload: countingBytes(7) })]],
  ])('are written one by one, byte for byte as they came: %s', (_, packets) => {
    const { written, b } = receivePackets(packets, { refuseWrite: refuseJoined })
    expect(packetsOf(written)).toEqual(packets)
    expect(written.every(({ vnet }) => vnet.flags === 0)).toBe(true)
    expect(b.counters.get('inbound.packets.passed')).toBe(packets.length)
    expect(b.counters.get('inbound.super-packets.refused')).toBe(1)
    expect(b.counters.get('inbound.super-packets')).toBe(0)
  })

  test('keep the open checksum of those that had one', () => {
    const packets = [segment(0, { checksum: 'partial' }), segment(1), segment(2, { checksum: 'partial' })]
    const { written } = receivePackets(packets, { refuseWrite: refuseJoined })
    expect(packetsOf(written)).toEqual(packets)
    expect(written.map(({ vnet }) => vnet.flags)).toEqual([1, 0, 1])
    expect(written.flatMap(resplit)).toEqual([0, 1, 2].map((n) => segment(n)))
  })

  test('keep their place among the packets of other flows', () => {
    const other = segment(9, { sourcePort: 777 })
    const packets = [TCP[0]!, other, TCP[1]!]
    const { written } = receivePackets(packets, { refuseWrite: refuseJoined })
    expect(packetsOf(written)).toEqual([TCP[0], TCP[1], other])
  })

  test('are dropped one by one where even that is refused', () => {
    const { written, b } = receivePackets(UDP, { refuseWrite: () => EINVAL })
    expect(written).toEqual([])
    expect(b.counters.dropped('inbound', 'tun-rejected').packets).toBe(UDP.length)
    expect(b.counters.get('downgrade.tun-gso-udp')).toBe(0)
  })
})

test('joined packets that fail for another reason are dropped together', () => {
  const { b } = receivePackets(UDP, { refuseWrite: () => EIO })
  expect(b.counters.get('inbound.calls.write')).toBe(1)
  expect(b.counters.dropped('inbound', 'tun-down').packets).toBe(UDP.length)
})

/** Lets the same packets arrive again at a node: what it writes. */
function again({ b }: Arrival, packets: readonly Uint8Array[]): Written[] {
  for (const packet of packets) b.socket.deliver(vxlanFrame(packet), ip(NODE_A.underlay))
  const written = b.receive()
  expect(b.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return written
}

describe('a kind of joined packets that is refused three times', () => {
  test.each([
    ['TCP', TCP, 'downgrade.tun-gso-tcp4'],
    ['TCPv6', [0, 1].map((n) => segment(n, IPV6)), 'downgrade.tun-gso-tcp6'],
    ['UDP', UDP, 'downgrade.tun-gso-udp'],
  ] as const)('is given up, and counted once: %s', (_, packets, downgrade) => {
    const node = receivePackets(packets, { refuseWrite: refuseJoined })
    again(node, packets)
    expect(node.b.counters.get(downgrade)).toBe(0)
    again(node, packets)
    expect(node.b.counters.get(downgrade)).toBe(1)
    for (let round = 0; round < 4; round++) expect(packetsOf(again(node, packets))).toEqual(packets)
    expect(node.b.counters.get('inbound.super-packets.refused')).toBe(3)
    expect(node.b.counters.get(downgrade)).toBe(1)
  })

  test('leaves the other kinds alone', () => {
    const refuseUdp = ({ vnet }: Written): number => (vnet.gsoType === virtioNet.GSO_UDP_L4 ? EINVAL : 0)
    const node = receivePackets(UDP, { refuseWrite: refuseUdp })
    for (let round = 0; round < 4; round++) again(node, UDP)
    const written = again(node, TCP)
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(TCP)
  })
})

describe('a kernel that refuses a short last segment (Linux 6.6.44, 6.10.3)', () => {
  const refuseShortTail = ({ vnet, packet }: Written): number =>
    vnet.gsoType !== virtioNet.GSO_NONE && (packet.length - vnet.headerLength) % vnet.gsoSize !== 0 ? EINVAL : 0

  test('gets joined packets without one from the third time on', () => {
    const node = receivePackets(SHORT_TAIL, { refuseWrite: refuseShortTail })
    again(node, SHORT_TAIL)
    again(node, SHORT_TAIL)
    expect(node.b.counters.get('downgrade.tun-short-tail')).toBe(1)
    const written = again(node, SHORT_TAIL)
    expect(written.map(isJoined)).toEqual([true, false])
    expect(written.flatMap(resplit)).toEqual(SHORT_TAIL)
    expect(node.b.counters.get('downgrade.tun-gso-tcp4')).toBe(0)
  })
})
