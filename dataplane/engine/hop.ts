// Counting a hop: what a router does to TTL and hop limit (RFC 791 §3.2, RFC 8200 §3).
import type { PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import type { InnerPacket } from './inner-packet.ts'

/** Taking one off the TTL, the upper byte of its word, adds that much to the checksum. */
const CHECKSUM_STEP = 0x0100

/** Takes one off. False when none would be left: the packet must not go on, and is left as it was. */
export function takeHop(memory: PacketMemory, packet: InnerPacket): boolean {
  const { view } = memory
  if (packet.version === 4) {
    const ttl = ipv4.getTtl(view, packet.at)
    if (ttl <= 1) return false
    ipv4.setTtl(view, packet.at, ttl - 1)
    // Patched, not computed anew (RFC 1624): a header that was damaged before stays so. 0xffff is never the right sum.
    const patched = ipv4.getChecksum(view, packet.at) + CHECKSUM_STEP
    ipv4.setChecksum(view, packet.at, (patched + (patched >= 0xffff ? 1 : 0)) & 0xffff)
    return true
  }
  const hopLimit = ipv6.getHopLimit(view, packet.at)
  if (hopLimit <= 1) return false
  ipv6.setHopLimit(view, packet.at, hopLimit - 1)
  return true
}
