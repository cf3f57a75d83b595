// Packet ids: equal at every capture point and on every host, from inner fields that encapsulation leaves alone.
// Used only while somebody traces.
import * as ipv4 from '../wire/ipv4.ts'
import * as ipv6Fragment from '../wire/ipv6-fragment.ts'
import * as tcp from '../wire/tcp.ts'
import * as udp from '../wire/udp.ts'
import { InnerPacket } from './inner-packet.ts'

/** One round of a 32-bit multiplicative hash (the mixing constant of MurmurHash3's finaliser). */
function mix(hash: number, word: number): number {
  const mixed = Math.imul(hash ^ word, 0x85ebca6b)
  return (mixed ^ (mixed >>> 15)) >>> 0
}

/**
 * Id of the inner packet of `length` bytes at `at`, an unsigned 32-bit number. TTL, TOS and checksums are left out:
 * routers, congestion and offloads change them on the way; so is padding. Any bytes are accepted. `payloadAt` says
 * where the transport payload lies when it does not follow its header, as in a packet cut from a super-packet.
 */
export function packetId(view: DataView, at: number, length: number, payloadAt = -1): number {
  const packet = new InnerPacket()
  if (packet.read(view, at, length) !== null) return mix(length, 0)
  const transport = at + packet.ipBytes
  const left = packet.length - packet.ipBytes
  let id = mix(packet.protocol, packet.length)
  for (let done = 0; done < packet.addressBytes; done += 4) id = mix(id, view.getUint32(packet.addressesAt + done))
  if (packet.version === 4) {
    id = mix(id, (ipv4.getIdentification(view, at) << 16) | (ipv4.getFragmentWord(view, at) & ipv4.OFFSET_MASK))
  }
  if (packet.version === 6 && packet.isFragment) id = mix(id, ipv6Fragment.getIdentification(view, transport))
  if (left >= udp.HEADER_LEN) id = mix(id, udp.getPorts(view, transport))
  if (packet.protocol === ipv4.PROTOCOL_TCP && left >= tcp.HEADER_LEN) {
    id = mix(id, tcp.getSequence(view, transport))
  } else if (left >= udp.HEADER_LEN + 4) {
    id = mix(id, view.getUint32(payloadAt < 0 ? transport + udp.HEADER_LEN : payloadAt))
  }
  return id
}
