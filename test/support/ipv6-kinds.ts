// IPv6 packets of every kind that a pod may send: transports, sizes, marks, extension headers, fragments.
import { DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING } from '../../dataplane/wire/ipv6-extension.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import { type IpOptions, icmpEcho, countingBytes as payload, tcpPacket, udpPacket } from './packets.ts'

/** What is particular about a packet → the packet between two pods. */
export type Packets = Readonly<Record<string, (path: IpOptions) => Uint8Array>>

/** PadN of four bytes: any node passes over it (RFC 8200 §4.2). */
const PADDING = Uint8Array.of(1, 4, 0, 0, 0, 0)
/** An option for experiments that may be passed over (RFC 4727 §3): Linux drops longer padding. */
const OPTION = Uint8Array.of(0x1e, 12, ...payload(12))
/** Type 253 is for experiments (RFC 3692); no segment left, so nobody on the way has to know it. */
const DONE_ROUTING = Uint8Array.of(253, 0, 0, 0, 0, 0)
/** The fragment header's offset in units of 8 bytes, the flag for more, and the identification. */
const fragment = (offset: number, more: 0 | 1) => Uint8Array.of(offset >> 5, ((offset << 3) & 0xff) | more, 0, 0, 0, 7)

/** For an MTU of 1450. */
export const IPV6_PACKETS: Packets = {
  'an ICMPv6 echo request': (path) => icmpEcho(path),
  'an ICMPv6 echo request without payload': (path) => icmpEcho({ ...path, payload: payload(0) }),
  'an ICMPv6 echo request of odd length': (path) => icmpEcho({ ...path, payload: payload(57) }),
  'UDPv6 without payload': (path) => udpPacket(path),
  'UDPv6 of one byte': (path) => udpPacket({ ...path, payload: payload(1) }),
  'UDPv6 of odd length': (path) => udpPacket({ ...path, payload: payload(777) }),
  'UDPv6 that fills the MTU': (path) => udpPacket({ ...path, payload: payload(1402) }),
  'UDPv6 one byte below the MTU': (path) => udpPacket({ ...path, payload: payload(1401) }),
  'UDPv6 without a checksum': (path) => udpPacket({ ...path, payload: payload(64), checksum: 'unused' }),
  'UDPv6 with a wrong checksum': (path) => udpPacket({ ...path, payload: payload(64), checksum: 'bad' }),
  'a TCPv6 segment': (path) => tcpPacket({ ...path, payload: payload(100) }),
  'a TCPv6 segment of odd length': (path) => tcpPacket({ ...path, payload: payload(1001) }),
  'a TCPv6 segment that fills the MTU': (path) => tcpPacket({ ...path, payload: payload(1390) }),
  'a TCPv6 SYN with options': (path) =>
    tcpPacket({ ...path, flags: tcp.FLAG_SYN, tcpOptions: Uint8Array.of(2, 4, 5, 0x6e, 1, 1, 4, 2) }),
  'IPv6 with DSCP': (path) => udpPacket({ ...path, tos: 0xb8, payload: payload(20) }),
  'IPv6 with ECT(1)': (path) => udpPacket({ ...path, tos: 1, payload: payload(20) }),
  'IPv6 with ECT(0)': (path) => tcpPacket({ ...path, tos: 2, payload: payload(20) }),
  'IPv6 with CE': (path) => tcpPacket({ ...path, tos: 3, payload: payload(20) }),
  'IPv6 with CE and DSCP': (path) => icmpEcho({ ...path, tos: 0xbb }),
  'a hop limit about to end': (path) => udpPacket({ ...path, ttl: 2, payload: payload(20) }),
  'hop-by-hop options': (path) => udpPacket({ ...path, extensions: [[HOP_BY_HOP, PADDING]], payload: payload(20) }),
  'TCPv6 behind hop-by-hop options': (path) =>
    tcpPacket({ ...path, extensions: [[HOP_BY_HOP, OPTION]], payload: payload(99) }),
  'destination options': (path) =>
    tcpPacket({ ...path, extensions: [[DESTINATION_OPTIONS, OPTION]], payload: payload(20) }),
  'a routing header that is done': (path) =>
    icmpEcho({ ...path, extensions: [[ROUTING, DONE_ROUTING]], payload: payload(20) }),
  'a first IPv6 fragment': (path) =>
    udpPacket({ ...path, extensions: [[FRAGMENT, fragment(0, 1)]], payload: payload(64) }),
  'a later IPv6 fragment': (path) =>
    udpPacket({ ...path, extensions: [[FRAGMENT, fragment(181, 0)]], payload: payload(63) }),
  'an atomic IPv6 fragment': (path) =>
    udpPacket({ ...path, extensions: [[FRAGMENT, fragment(0, 0)]], payload: payload(64) }),
  'a fragment behind hop-by-hop and destination options': (path) =>
    udpPacket({
      ...path,
      extensions: [
        [HOP_BY_HOP, PADDING],
        [DESTINATION_OPTIONS, PADDING],
        [FRAGMENT, fragment(0, 1)],
      ],
      payload: payload(1360),
    }),
}
