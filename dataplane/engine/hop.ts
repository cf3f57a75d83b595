// Counting a hop: what a router does to TTL and hop limit (RFC 791 §3.2, RFC 8200 §3).
import type { PacketMemory } from '../memory/packet-memory.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6 from '../wire/ipv6.ts'
import type { InnerPacket } from './inner-packet.ts'
import { setHeaderChecksum } from './transport-checksum.ts'

/** Takes one off. False when none would be left: the packet must not go on, and is left as it was. */
export function takeHop(memory: PacketMemory, packet: InnerPacket): boolean {
  const { view } = memory
  if (packet.version === 4) {
    const ttl = ipv4.getTtl(view, packet.at)
    if (ttl <= 1) return false
    ipv4.setTtl(view, packet.at, ttl - 1)
    setHeaderChecksum(memory, packet.at, packet.ipBytes)
    return true
  }
  const hopLimit = ipv6.getHopLimit(view, packet.at)
  if (hopLimit <= 1) return false
  ipv6.setHopLimit(view, packet.at, hopLimit - 1)
  return true
}
