// The ICMP error that node A owes a pod for a packet that it does not forward: the slow twin of engine/icmp-answer.ts.
import type { DropReason } from '../../dataplane/drop-reason.ts'
import { formatAddress } from '../../dataplane/wire/address.ts'
import * as icmpv4 from '../../dataplane/wire/icmpv4.ts'
import { finish, sumPseudoHeader6, sumWords } from '../../dataplane/wire/internet-checksum.ts'
import { PROTOCOL_ICMP } from '../../dataplane/wire/ipv4.ts'
import { HEADER_LEN as IPV6_HEADER_LEN, PROTOCOL_ICMPV6 } from '../../dataplane/wire/ipv6.ts'
import { NODE_A } from './engine-pair.ts'
import { ip6, ipv4Packet, ipv6Packet, viewOf } from './packets.ts'
import type { Inspected } from './reference-inspect.ts'

/** Type and code by IP version (RFC 792, RFC 4443). */
const ANSWERS: Partial<Record<DropReason, Record<number, readonly [type: number, code: number]>>> = {
  'no-route': { 4: [3, 0], 6: [1, 0] },
  'too-big': { 4: [3, 4], 6: [2, 0] },
  'ttl-expired': { 4: [11, 0], 6: [3, 0] },
}
const ICMPV4_ERRORS = [3, 4, 5, 11, 12]
const FIRST_ICMPV6_QUERY = 128
const TTL = 8
const SMALLEST_IPV6_MTU = 1280

/** The answer to a packet dropped for that reason, `null` when none may be given. */
export function referenceAnswer(
  bytes: Uint8Array,
  packet: Inspected,
  reason: DropReason,
  mtuBytes: number,
): Uint8Array | null {
  const answer = ANSWERS[reason]?.[packet.version]
  if (answer === undefined || !mayBeAnswered(bytes, packet)) return null
  const rest = reason === 'too-big' ? mtuBytes : 0
  const most = packet.version === 4 ? packet.ipBytes + 8 : SMALLEST_IPV6_MTU - IPV6_HEADER_LEN - icmpv4.HEADER_LEN
  const quote = bytes.slice(0, Math.min(packet.length, most))
  const message = new Uint8Array(icmpv4.HEADER_LEN + quote.length)
  icmpv4.write(viewOf(message), 0, answer[0], answer[1], rest)
  message.set(quote, icmpv4.HEADER_LEN)
  const destination = formatAddress(packet.version === 4 ? Number(packet.source) : packet.source)
  if (packet.version === 4) {
    icmpv4.setChecksum(viewOf(message), 0, finish(sumWords(message, 0, message.length)))
    const options = { source: NODE_A.subnet, destination, ttl: TTL, fragmentWord: 0, identification: 0 }
    return ipv4Packet(PROTOCOL_ICMP, message, options)
  }
  const pseudo = sumPseudoHeader6(ip6(NODE_A.ipv6Subnet), packet.source, PROTOCOL_ICMPV6, message.length)
  icmpv4.setChecksum(viewOf(message), 0, finish(sumWords(message, 0, message.length, pseudo)))
  return ipv6Packet(PROTOCOL_ICMPV6, message, { source: NODE_A.ipv6Subnet, destination, ttl: TTL, flowLabel: 0 })
}

/** Never about an ICMP error, a later fragment, or a source that is not one host (RFC 1122 §3.2.2, RFC 4443 §2.4 e). */
function mayBeAnswered(bytes: Uint8Array, { version, source, protocol, ipBytes, length, isLater }: Inspected): boolean {
  if (isLater) return false
  if (version === 6 && (source <= 1n || source >> 120n === 0xffn)) return false
  if (version === 4 && (source === 0n || source >> 28n >= 0xen || source >> 24n === 127n)) return false
  if (protocol !== (version === 4 ? PROTOCOL_ICMP : PROTOCOL_ICMPV6)) return true
  if (length < ipBytes + icmpv4.HEADER_LEN) return false
  const type = bytes[ipBytes]!
  return version === 4 ? !ICMPV4_ERRORS.includes(type) : type >= FIRST_ICMPV6_QUERY
}
