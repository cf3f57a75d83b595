// Which source port a packet's frames leave from: one for a flow, whatever form its packets take.
import { describe, expect, it } from 'vitest'
import { InnerPacket } from '../../../dataplane/engine/inner-packet.ts'
import { senderOf } from '../../../dataplane/engine/sender-of.ts'
import { enginePair } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  type IpOptions,
  icmpEcho,
  ipv4Packet,
  superFromTun,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'

const POOL = 16
const MORE_FRAGMENTS = 0x2000
const UDP = 17

function senderFor(bytes: Uint8Array, senders = POOL): number {
  const packet = new InnerPacket()
  expect(packet.read(viewOf(bytes), 0, bytes.length)).toBeNull()
  return senderOf(viewOf(bytes), packet, senders)
}

/** A node with so many source ports, and what its socket was given: sender, frames and kinds of each message. */
function sending() {
  const sent: { readonly sender: number; readonly packets: number }[] = []
  const pair = enginePair({
    wrapSocket: (socket) => ({
      maxSegments: socket.maxSegments,
      senders: POOL,
      receive: (slots) => socket.receive(slots),
      send: (batch) => {
        for (let n = 0; n < batch.count; n++) sent.push({ sender: batch.sender[n]!, packets: batch.packets[n]! })
        socket.send(batch)
      },
    }),
  })
  return { ...pair, sent }
}

describe('the source port of a flow', () => {
  it('is one for its small, large and empty packets', () => {
    const senders = [0, 1, 1400].map((size) => senderFor(udpPacket({ payload: countingBytes(size) })))
    expect(new Set(senders).size).toBe(1)
  })

  it('is one for the first and the later fragments of a datagram, and for those of every other between the hosts', () => {
    const fragment = (fragmentWord: number, payload: Uint8Array, more: IpOptions = {}) =>
      senderFor(ipv4Packet(UDP, payload, { fragmentWord, ...more }))
    const ports = (n: number) => Uint8Array.of(n, n, n, n, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)
    const first = Array.from({ length: 30 }, (_, n) => fragment(MORE_FRAGMENTS, ports(n)))
    const later = Array.from({ length: 30 }, (_, n) => fragment(MORE_FRAGMENTS | (n + 1), ports(n)))
    const last = fragment(100, ports(9))
    expect(new Set([...first, ...later, last]).size).toBe(1)
  })

  it('follows the ports of whole packets', () => {
    const senders = Array.from({ length: 200 }, (_, n) => senderFor(udpPacket({ sourcePort: 10_000 + n })))
    expect(new Set(senders).size).toBe(POOL)
  })

  it('follows the hosts alone where the protocol has no ports', () => {
    const senders = Array.from({ length: 30 }, (_, n) => senderFor(icmpEcho({ payload: countingBytes(n, n) })))
    expect(new Set(senders).size).toBe(1)
  })

  it('is that of a packet too short for its ports, without reading beyond it', () => {
    expect(senderFor(ipv4Packet(UDP, Uint8Array.of(1, 2, 3)))).toBe(senderFor(ipv4Packet(UDP, Uint8Array.of(9, 9, 9))))
  })

  it('is the only one there is when the socket has no more', () => {
    expect(senderFor(udpPacket(), 1)).toBe(0)
  })
})

describe('messages', () => {
  it('of a super-packet leave from one port, as its flow does when it sends small ones', () => {
    const { a, sent } = sending()
    a.sendFromTun(superFromTun(tcpPacket({ payload: countingBytes(60_000), checksum: 'partial' }), 500))
    a.sendFromTun(fromTun(tcpPacket({ payload: countingBytes(10) })))
    expect(sent.length).toBeGreaterThan(2)
    expect(new Set(sent.map(({ sender }) => sender)).size).toBe(1)
  })

  it('hold what leaves from one port, in order, and never frames of two', () => {
    const { a, b, sent } = sending()
    const flows = Array.from({ length: 40 }, (_, n) => udpPacket({ sourcePort: 7000 + n, payload: countingBytes(64) }))
    a.sendFromTun(...flows.map((packet) => fromTun(packet)))
    const bySender = [...new Set(flows.map((packet) => senderFor(packet)))].map((sender) =>
      flows.filter((packet) => senderFor(packet) === sender),
    )
    expect(sent.map(({ packets }) => packets)).toEqual(bySender.map((packets) => packets.length))
    expect(sent.map(({ sender }) => sender)).toEqual(bySender.map(([packet]) => senderFor(packet!)))
    expect(b.receive().map(({ packet }) => packet)).toEqual(bySender.flat())
  })

  it('of a flow join as before', () => {
    const { a, sent } = sending()
    a.sendFromTun(...Array.from({ length: 20 }, () => fromTun(udpPacket({ payload: countingBytes(64) }))))
    expect(sent.map(({ packets }) => packets)).toEqual([20])
  })
})
