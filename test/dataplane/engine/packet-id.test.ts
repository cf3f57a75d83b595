// Packet ids: equal wherever a packet is seen, different for different packets.
import { describe, expect, it } from 'vitest'
import { packetId } from '../../../dataplane/engine/packet-id.ts'
import type { Step } from '../../../dataplane/step.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import { DESTINATION_OPTIONS, FRAGMENT } from '../../../dataplane/wire/ipv6-extension.ts'
import { enginePair, type MemoryNode, NODE_A, recordSteps } from '../../support/engine-pair.ts'
import {
  countingBytes,
  type Extension,
  fromTun,
  IPV6,
  icmpEcho,
  ip,
  ipPacket,
  ipv4Packet,
  superFromTun,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

const padding: Extension = [DESTINATION_OPTIONS, Uint8Array.from([1, 4, 0, 0, 0, 0])]
const fragment = (identification: number): Extension => [FRAGMENT, Uint8Array.from([0, 1, 0, 0, 0, identification])]

const idOf = (packet: Uint8Array): number => packetId(viewOf(packet), 0, packet.length)

function idsOf(node: MemoryNode, kind: Step['kind'], act: () => void): number[] {
  const steps = recordSteps(node)
  act()
  return steps.flatMap((step) => (step.kind === kind && 'id' in step ? [step.id] : []))
}

describe('an id', () => {
  it.each([
    ['ping', icmpEcho()],
    ['TCP', tcpPacket({ payload: countingBytes(50) })],
    ['TCP without payload', tcpPacket()],
    ['UDP', udpPacket({ payload: countingBytes(50) })],
    ['UDP without payload', udpPacket()],
    ['a later fragment', udpPacket({ payload: countingBytes(50), fragmentWord: 100 })],
    ['with options', udpPacket({ options: countingBytes(12) })],
    ['another protocol', ipv4Packet(47, countingBytes(5))],
    ['a bare header', ipv4Packet(99, new Uint8Array(0))],
    ['ping over IPv6', icmpEcho(IPV6)],
    ['TCP over IPv6', tcpPacket({ ...IPV6, payload: countingBytes(50) })],
    ['UDP over IPv6', udpPacket({ ...IPV6, payload: countingBytes(50) })],
    ['with extension headers', udpPacket({ ...IPV6, extensions: [padding] })],
    ['a fragment of IPv6', udpPacket({ ...IPV6, extensions: [fragment(7)] })],
    ['a bare IPv6 header', ipPacket(59, new Uint8Array(0), IPV6)],
  ])('is the same on both nodes: %s', (_, packet) => {
    const { a, b } = enginePair()
    const [sent] = idsOf(a, 'tun-read', () => a.sendFromTun(fromTun(packet)))
    const received = idsOf(b, 'decap', () => b.receive())
    expect(received).toEqual([sent])
    expect(sent).toBe(idOf(packet))
  })

  it.each([
    ['TCP', tcpPacket({ payload: countingBytes(1000), checksum: 'partial' })],
    ['UDP', udpPacket({ payload: countingBytes(1000), checksum: 'partial' })],
    ['UDP with pieces too small to be told by their payload', udpPacket({ payload: countingBytes(6) })],
    ['TCP over IPv6', tcpPacket({ ...IPV6, payload: countingBytes(1000), checksum: 'partial' })],
    ['UDP over IPv6', udpPacket({ ...IPV6, payload: countingBytes(1000), checksum: 'partial' })],
    ['with extension headers', tcpPacket({ ...IPV6, extensions: [padding], payload: countingBytes(1000) })],
  ])('of each packet cut from a super-packet is the same on both nodes: %s', (_, packet) => {
    const { a, b } = enginePair()
    const gsoSize = packet.length > 300 ? 300 : 2
    const sent = idsOf(a, 'segment', () => a.sendFromTun(superFromTun(packet, gsoSize)))
    const received = idsOf(b, 'decap', () => b.receive())
    expect(sent.length).toBeGreaterThan(2)
    expect(received).toEqual(sent)
    expect(new Set(sent).size).toBe(sent.length)
  })

  it('does not change with checksum, TTL, TOS or DF', () => {
    const ids = [
      tcpPacket({}),
      tcpPacket({ checksum: 'partial' }),
      tcpPacket({ ttl: 1 }),
      tcpPacket({ tos: 3 }),
      tcpPacket({ fragmentWord: 0 }),
    ].map(idOf)
    expect(new Set(ids).size).toBe(1)
  })

  it('does not change with hop limit or traffic class, nor on its way through a tunnel that counts as a hop', () => {
    const ids = [tcpPacket(IPV6), tcpPacket({ ...IPV6, ttl: 1 }), tcpPacket({ ...IPV6, tos: 3 })].map(idOf)
    expect(new Set(ids).size).toBe(1)
    for (const packet of [tcpPacket(IPV6), tcpPacket()]) {
      const { a, b } = enginePair({ encapsulation: 'udp' })
      const sent = idsOf(a, 'tun-read', () => a.sendFromTun(fromTun(packet)))
      expect(idsOf(b, 'decap', () => b.receive())).toEqual(sent)
    }
  })

  it('does not change with padding', () => {
    const packet = udpPacket()
    const { b } = enginePair()
    const padded = idsOf(b, 'decap', () => {
      b.socket.deliver(vxlanFrame(packet, { padding: 18 }), ip(NODE_A.underlay))
      b.receive()
    })
    expect(padded).toEqual([idOf(packet)])
  })

  it('differs when any field does that tells packets apart', () => {
    const variants = [
      udpPacket(),
      udpPacket({ source: '10.244.1.3' }),
      udpPacket({ destination: '10.244.2.4' }),
      udpPacket({ identification: 1001 }),
      udpPacket({ sourcePort: 4001 }),
      udpPacket({ destinationPort: 5001 }),
      udpPacket({ payload: countingBytes(8) }),
      udpPacket({ payload: countingBytes(8, 1) }),
      udpPacket({ payload: countingBytes(9) }),
      udpPacket({ fragmentWord: 5 }),
      tcpPacket(),
      tcpPacket({ sequence: 2 }),
      udpPacket(IPV6),
      udpPacket({ ...IPV6, source: 'fd01:10:244:1::2' }),
      udpPacket({ ...IPV6, source: 'fd00:10:244:1:1::2' }),
      udpPacket({ ...IPV6, destination: 'fd00:10:244:2::4' }),
      udpPacket({ ...IPV6, destinationPort: 5001 }),
      udpPacket({ ...IPV6, payload: countingBytes(8) }),
      udpPacket({ ...IPV6, payload: countingBytes(8, 1) }),
      udpPacket({ ...IPV6, extensions: [fragment(7)] }),
      udpPacket({ ...IPV6, extensions: [fragment(8)] }),
      tcpPacket({ ...IPV6, sequence: 2 }),
    ]
    expect(new Set(variants.map(idOf)).size).toBe(variants.length)
  })

  it('rarely collides: a hundred thousand packets of a flow have as many ids, but for a few', () => {
    const packet = tcpPacket({ payload: countingBytes(8) })
    const view = viewOf(packet)
    const ids = new Set<number>()
    for (let n = 0; n < 100_000; n++) {
      ipv4.setIdentification(view, 0, n & 0xffff)
      view.setUint32(24, n * 1448)
      ids.add(packetId(view, 0, packet.length))
    }
    expect(ids.size).toBeGreaterThan(99_990)
  })

  it('is given to any bytes', () => {
    const bytes = countingBytes(100)
    for (let length = 0; length <= 60; length++) {
      const id = packetId(viewOf(bytes), 0, length)
      expect(Number.isInteger(id) && id >= 0 && id < 2 ** 32).toBe(true)
    }
  })
})
