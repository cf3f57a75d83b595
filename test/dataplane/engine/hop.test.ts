// Counting a hop: one off, the checksum patched, nothing touched when none is left.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { takeHop } from '../../../dataplane/engine/hop.ts'
import { InnerPacket } from '../../../dataplane/engine/inner-packet.ts'
import { PacketMemory } from '../../../dataplane/memory/packet-memory.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import { IPV6, udpPacket, viewOf } from '../../support/packets.ts'

const memory = new PacketMemory(1 << 16)
const at = memory.reserve(2048)

/** The packet after one hop, and whether it may go on. */
function afterHop(packet: Uint8Array): { readonly goesOn: boolean; readonly packet: Uint8Array } {
  memory.bytes.set(packet, at)
  const inner = new InnerPacket()
  expect(inner.read(memory.view, at, packet.length)).toBeNull()
  const goesOn = takeHop(memory, inner)
  return { goesOn, packet: memory.bytes.slice(at, at + packet.length) }
}

describe('a hop', () => {
  const options = fc.record({
    ttl: fc.integer({ min: 2, max: 255 }),
    identification: fc.nat(0xffff),
    tos: fc.nat(255),
    options: fc.integer({ min: 0, max: 10 }).map((words) => new Uint8Array(words * 4).fill(1)),
  })

  it('takes one off the TTL, and the checksum is the one computed anew', () => {
    fc.assert(
      fc.property(options, (given) => {
        const { goesOn, packet } = afterHop(udpPacket(given))
        expect(goesOn).toBe(true)
        expect(packet).toEqual(udpPacket({ ...given, ttl: given.ttl - 1 }))
      }),
    )
  })

  it('has every checksum right, also around the carry', () => {
    for (let identification = 0; identification < 0x10000; identification += 5) {
      const packet = udpPacket({ identification })
      const expected = udpPacket({ identification, ttl: 62 })
      if (Buffer.compare(afterHop(packet).packet, expected) !== 0) expect.fail(`identification ${identification}`)
    }
  })

  it('leaves a damaged checksum damaged', () => {
    const damaged = udpPacket()
    ipv4.setChecksum(viewOf(damaged), 0, ipv4.getChecksum(viewOf(damaged), 0) ^ 1)
    const { packet } = afterHop(damaged)
    expect(ipv4.getChecksum(viewOf(packet), 0)).not.toBe(ipv4.getChecksum(viewOf(udpPacket({ ttl: 62 })), 0))
  })

  it('takes one off the hop limit and touches nothing else', () => {
    for (let ttl = 2; ttl < 256; ttl++) {
      expect(afterHop(udpPacket({ ...IPV6, ttl }))).toEqual({
        goesOn: true,
        packet: udpPacket({ ...IPV6, ttl: ttl - 1 }),
      })
    }
  })

  it.each([0, 1])('is one too many at %i: the packet stays as it was', (ttl) => {
    for (const packet of [udpPacket({ ttl }), udpPacket({ ...IPV6, ttl })]) {
      expect(afterHop(packet)).toEqual({ goesOn: false, packet })
    }
  })
})
