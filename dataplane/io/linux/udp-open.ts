// Opening the sockets of the underlay, on the main thread: of IPv4 or IPv6, one that receives for each worker and some that
// only send. Options as flannel's kernel VTEP has them where they show on the wire (udp(7), ip(7), ipv6(7)).

import { EADDRNOTAVAIL } from '../errno.ts'
import { isKernelAtLeast } from '../kernel-release.ts'
import * as libc from './libc.ts'
import { familyOf, socketAddress } from './message-header.ts'

const SOCK_DGRAM = 2
const SOCK_NONBLOCK = 0x800
const SOCK_CLOEXEC = 0x80000
const SOL_IP = 0
const SOL_SOCKET = 1
const SOL_UDP = 17
const SOL_IPV6 = 41
const SO_SNDBUF = 7
const SO_RCVBUF = 8
const SO_SNDBUFFORCE = 32
const SO_RCVBUFFORCE = 33
const SO_REUSEPORT = 15
const SO_RXQ_OVFL = 40
const UDP_SEGMENT = 103
const UDP_GRO = 104
/** Of IP_MTU_DISCOVER and IPV6_MTU_DISCOVER alike. */
const PMTUDISC_DONT = 0
const PMTUDISC_DO = 2
const PMTUDISC_OMIT = 5
/** The same options of either family: where they are set, and their names there. */
const IPV4_OPTIONS = { level: SOL_IP, mtuDiscover: 10, receiveTos: 13 }
const IPV6_OPTIONS = { level: SOL_IPV6, mtuDiscover: 23, receiveTos: 66 }
const IPV6_V6ONLY = 26

/** Asked for; the kernel doubles it for its own accounting, where a 1450-byte datagram costs more than 2 KiB. */
const BUFFER_BYTES = 16 * 1024 * 1024
/** Segments per send: 64 before Linux 6.9 (UDP_MAX_SEGMENTS); one less, since old kernels count the header too. */
const SEGMENTS = 63
const SEGMENTS_FROM_6_9 = 127
/** What a socket that only sends keeps of datagrams that strangers send to it; the kernel makes the least of it. */
const NO_RECEIVE_BUFFER = 0

type FamilyOptions = typeof IPV4_OPTIONS

/**
 * DF of what is sent. `clear`: whatever is too large may be fragmented, by routers over IPv4, by this kernel over IPv6, where
 * routers never do. `set`: a datagram larger than its path, as far as the kernel knows it, is refused with EMSGSIZE.
 */
export type OuterDf = 'clear' | 'set'

function optionsOf(address: number | bigint): FamilyOptions {
  return typeof address === 'number' ? IPV4_OPTIONS : IPV6_OPTIONS
}

export interface UdpFailure {
  readonly step: 'socket' | 'bind'
  readonly errno: number
}

export interface OpenUdpSocket {
  readonly fd: number
  /** Segments that one send may carry, 1 without UDP_SEGMENT. */
  readonly maxSegments: number
  /** Whether trains of datagrams arrive merged (UDP_GRO). */
  readonly receivesMerged: boolean
  /** Receive buffer that was granted, bytes as the kernel counts them; 0 when it does not tell. */
  readonly receiveBufferBytes: number
}

/**
 * Opens `count` sockets on `address` that only send, each from a port of the kernel's choice (ip_local_port_range in
 * ip-sysctl.rst). Fewer come back when the kernel gives no more.
 */
export function openSenders(address: number | bigint, count: number, outerDf: OuterDf = 'clear'): number[] {
  const fds: number[] = []
  while (fds.length < count) {
    const fd = bindUdp(address, 0, false)
    if (typeof fd !== 'number') break
    libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUF, NO_RECEIVE_BUFFER)
    prepareSends(fd, optionsOf(address), outerDf)
    fds.push(fd)
  }
  return fds
}

/** Sockets for the ways to peers, see UnderlayPaths: one that sends with DF clear, and one that the kernel is asked by. */
export interface PathFds {
  readonly fragmentingFd: number
  readonly probeFd: number
}

/** Opens both, or gives an errno when the kernel gives no more. */
export function openPathSockets(address: number | bigint): PathFds | UdpFailure {
  const [fragmentingFd, probeFd] = openSenders(address, 2)
  if (fragmentingFd !== undefined && probeFd !== undefined) return { fragmentingFd, probeFd }
  if (fragmentingFd !== undefined) libc.close(fragmentingFd)
  return { step: 'bind', errno: EADDRNOTAVAIL }
}

/** Room for what is sent, with CAP_NET_ADMIN beyond the sysctl limit, and DF. */
function prepareSends(fd: number, options: FamilyOptions, outerDf: OuterDf): void {
  if (libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES) < 0) {
    libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES)
  }
  const { level, mtuDiscover } = options
  if (outerDf === 'set') {
    libc.setsockopt(fd, level, mtuDiscover, PMTUDISC_DO)
    return
  }
  // As flannel's VTEP, learnt path MTUs ignored; without routers that fragment, what is learnt is what to fragment at.
  const ignoring = options === IPV4_OPTIONS && libc.setsockopt(fd, level, mtuDiscover, PMTUDISC_OMIT) >= 0
  if (!ignoring) libc.setsockopt(fd, level, mtuDiscover, PMTUDISC_DONT)
}

/** Opens the socket on `address`:`port`. Fails with `bind` EADDRINUSE when somebody listens there already. */
export function openUdpSocket(
  address: number | bigint,
  port: number,
  kernelRelease: string,
  outerDf: OuterDf = 'clear',
): OpenUdpSocket | UdpFailure {
  const fd = bindUdp(address, port, false)
  return typeof fd === 'number' ? prepareReceives(fd, kernelRelease, optionsOf(address), outerDf) : fd
}

/**
 * Opens `count` sockets on the same address and port, all of them or none. The kernel gives each sender (its address and
 * port) to one of them for good. Fails as {@link openUdpSocket} does: others of ours would be let in, so that nobody
 * listens there yet is made sure of first.
 */
export function openUdpSockets(
  address: number | bigint,
  port: number,
  kernelRelease: string,
  count: number,
  outerDf: OuterDf = 'clear',
): OpenUdpSocket[] | UdpFailure {
  const alone = bindUdp(address, port, false)
  if (typeof alone !== 'number') return alone
  if (count === 1) return [prepareReceives(alone, kernelRelease, optionsOf(address), outerDf)]
  libc.close(alone)
  const fds: number[] = []
  while (fds.length < count) {
    const fd = bindUdp(address, port, true)
    if (typeof fd !== 'number') {
      for (const opened of fds) libc.close(opened)
      return fd
    }
    fds.push(fd)
  }
  return fds.map((fd) => prepareReceives(fd, kernelRelease, optionsOf(address), outerDf))
}

/** The descriptor of a socket bound there; `shared` lets others of the same user that say so bind there too. */
function bindUdp(address: number | bigint, port: number, shared: boolean): number | UdpFailure {
  const fd = libc.socket(familyOf(address), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
  if (fd < 0) return { step: 'socket', errno: -fd }
  // A kernel VTEP of the other family may have the same port.
  if (typeof address === 'bigint') libc.setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, 1)
  if (shared) libc.setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, 1)
  const bound = libc.bind(fd, socketAddress(address, port))
  if (bound >= 0) return fd
  libc.close(fd)
  return { step: 'bind', errno: -bound }
}

function prepareReceives(fd: number, kernelRelease: string, options: FamilyOptions, outerDf: OuterDf): OpenUdpSocket {
  // With CAP_NET_ADMIN beyond the sysctl limits, else as far as they allow.
  if (libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES) < 0) {
    libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES)
  }
  prepareSends(fd, options, outerDf)
  libc.setsockopt(fd, options.level, options.receiveTos, 1)
  libc.setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, 1)
  // Before 5.12 UDP_GRO is there but unreliable.
  const receivesMerged = isKernelAtLeast(kernelRelease, [5, 12, 0]) && libc.setsockopt(fd, SOL_UDP, UDP_GRO, 1) >= 0
  const segments = isKernelAtLeast(kernelRelease, [6, 9, 0]) ? SEGMENTS_FROM_6_9 : SEGMENTS
  return {
    fd,
    maxSegments: libc.getsockopt(fd, SOL_UDP, UDP_SEGMENT) >= 0 ? segments : 1,
    receivesMerged: receivesMerged && libc.getsockopt(fd, SOL_UDP, UDP_GRO) === 1,
    receiveBufferBytes: Math.max(libc.getsockopt(fd, SOL_SOCKET, SO_RCVBUF), 0),
  }
}

/** Trains of datagrams are handed over one by one from now on. */
export function receiveOneByOne(fd: number): void {
  libc.setsockopt(fd, SOL_UDP, UDP_GRO, 0)
}
