// Congestion bits on the way out; the way in is tested where frames arrive.
import { describe, expect, it } from 'vitest'
import { encapsulateEcn } from '../../../dataplane/engine/ecn.ts'
import { countingBytes, fromTun, IPV6, superFromTun, tcpPacket, udpPacket } from '../../support/packets.ts'
import { tappedPair } from '../../support/underlay-tap.ts'

const EXPECTED = [0, 1, 2, 2]

describe('the outer TOS', () => {
  it('carries the inner congestion bits, CE as ECT(0), and never the DSCP', () => {
    for (let tos = 0; tos < 256; tos++) expect(encapsulateEcn(tos)).toBe(EXPECTED[tos & 3])
  })

  it.each([0, 1, 2, 3])('is set on what is sent: inner %i', (ecn) => {
    const { a, tap } = tappedPair()
    a.sendFromTun(fromTun(udpPacket({ tos: 0xb8 | ecn })))
    a.sendFromTun(superFromTun(tcpPacket({ tos: 0xb8 | ecn, payload: countingBytes(300), checksum: 'partial' }), 100))
    const over = { ...IPV6, tos: 0xb8 | ecn }
    a.sendFromTun(fromTun(udpPacket(over)))
    a.sendFromTun(superFromTun(tcpPacket({ ...over, payload: countingBytes(300), checksum: 'partial' }), 100))
    expect(tap.messages.map(({ tos }) => tos)).toEqual(Array(4).fill(EXPECTED[ecn]))
  })

  it('survives the way to the other node: the inner bits arrive as they left', () => {
    for (let tos = 0; tos < 256; tos++) {
      const { a, b } = tappedPair()
      const packets = [udpPacket({ tos }), udpPacket({ ...IPV6, tos })]
      a.sendFromTun(...packets.map((packet) => fromTun(packet)))
      expect(b.receive().map(({ packet }) => packet)).toEqual(packets)
    }
  })
})
