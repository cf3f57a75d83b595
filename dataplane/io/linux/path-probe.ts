// What the kernel knows of the way to a receiver: a socket of its own is given the receiver, which makes the kernel look up
// its route, and is asked for that route's MTU (IP_MTU in ip(7), IPV6_MTU in ipv6(7)). Sends nothing. What routers have
// said in ICMP about datagrams of the other sockets is part of the answer for as long as the kernel remembers it.
import * as ipv4 from '../../wire/ipv4.ts'
import * as ipv6 from '../../wire/ipv6.ts'
import * as udp from '../../wire/udp.ts'
import type { SocketAddresses } from '../socket-addresses.ts'
import * as libc from './libc.ts'
import { SOCKADDR_BYTES, socketAddress, WIDE_ADDRESS } from './message-header.ts'

const SOL_IP = 0
const IP_MTU = 14
const SOL_IPV6 = 41
const IPV6_MTU = 24

/** What stands in the place of an address until it is written: a whole one of IPv6. */
const UNSPECIFIED = 0n

export class PathProbe {
  readonly #fd: number
  readonly #wide: SocketAddresses | null

  /** `wide` for a socket of IPv6. */
  constructor(fd: number, wide: SocketAddresses | null) {
    this.#fd = fd
    this.#wide = wide
  }

  /** Largest UDP payload that goes to the receiver (as a SendBatch names it) in one piece, or -errno. */
  payloadTo(number: number, port: number): number {
    const wide = this.#wide
    const connected = libc.connect(
      this.#fd,
      wide === null ? socketAddress(number >>> 0, port) : nameOf(wide, number, port),
    )
    if (connected < 0) return connected
    const mtu =
      wide === null ? libc.getsockopt(this.#fd, SOL_IP, IP_MTU) : libc.getsockopt(this.#fd, SOL_IPV6, IPV6_MTU)
    if (mtu < 0) return mtu
    return Math.max(0, mtu - (wide === null ? ipv4.HEADER_LEN : ipv6.HEADER_LEN) - udp.HEADER_LEN)
  }
}

function nameOf(wide: SocketAddresses, number: number, port: number): Uint8Array {
  const name = socketAddress(UNSPECIFIED, port)
  wide.write(number, new DataView(name.buffer, 0, SOCKADDR_BYTES), WIDE_ADDRESS)
  return name
}
