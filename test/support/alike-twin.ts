// The slow, obvious twin of the kernel that counts how many frames of a train are alike: each frame is made to look
// like the one before it, by what may differ, and compared byte by byte.
import type { CountAlike, PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { fold, sumPseudoHeader, sumPseudoHeader6, sumWords } from '../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import { viewOf } from './packets.ts'

/** As the kernel of that memory. */
export function alikeTwin(memory: PacketMemory): CountAlike {
  return (at, stride, most, ipAt, ipBytes, headerBytes, length) => {
    const frame = (index: number) => memory.bytes.slice(at + index * stride, at + index * stride + ipAt + length)
    for (let count = 0; count < most; count++) {
      const [before, next] = [frame(count), frame(count + 1)]
      if (!checksumsAreRight(next.subarray(ipAt), ipBytes)) return count
      const wanted = successor(before, next, ipAt, ipBytes, headerBytes)
      const headers = ipAt + headerBytes
      if (Buffer.compare(wanted.subarray(0, headers), next.subarray(0, headers)) !== 0) return count
    }
    return most
  }
}

/** The frame that must come behind `before`: with what is free taken from `next`, and what counts up counted up. */
function successor(
  before: Uint8Array,
  next: Uint8Array,
  ipAt: number,
  ipBytes: number,
  headerBytes: number,
): Uint8Array {
  const wanted = before.slice()
  const [to, from] = [viewOf(wanted), viewOf(next)]
  const transport = ipAt + ipBytes
  if (ipv4.getVersion(to, ipAt) === 4) {
    const isFree = (ipv4.getFragmentWord(to, ipAt) & ipv4.DONT_FRAGMENT) !== 0
    const identification = isFree ? ipv4.getIdentification(from, ipAt) : ipv4.getIdentification(to, ipAt) + 1
    ipv4.setIdentification(to, ipAt, identification & 0xffff)
    ipv4.setChecksum(to, ipAt, ipv4.getChecksum(from, ipAt))
  }
  if (headerBytes - ipBytes === udp.HEADER_LEN) {
    udp.setChecksum(to, transport, udp.getChecksum(from, transport))
    return wanted
  }
  const payload = before.length - ipAt - headerBytes
  tcp.setSequence(to, transport, (tcp.getSequence(to, transport) + payload) >>> 0)
  tcp.setChecksum(to, transport, tcp.getChecksum(from, transport))
  return wanted
}

function checksumsAreRight(packet: Uint8Array, ipBytes: number): boolean {
  const view = viewOf(packet)
  const isIpv4 = ipBytes === ipv4.HEADER_LEN
  const protocol = isIpv4 ? ipv4.getProtocol(view, 0) : ipv6.getNextHeader(view, 0)
  const length = packet.length - ipBytes
  const pseudo = isIpv4
    ? sumPseudoHeader(ipv4.getSource(view, 0), ipv4.getDestination(view, 0), protocol, length)
    : sumPseudoHeader6(ipv6.getSource(view, 0), ipv6.getDestination(view, 0), protocol, length)
  if (isIpv4 && fold(sumWords(packet, 0, ipBytes)) !== 0xffff) return false
  if (protocol === ipv4.PROTOCOL_UDP && udp.getChecksum(view, ipBytes) === 0) return false
  return fold(sumWords(packet, ipBytes, packet.length, pseudo)) === 0xffff
}
