// Sockets of the test process that live in a network namespace: setns(2) moves this thread there for the one call that
// makes the socket, which keeps its namespace for life. So a test can be a pod, a peer or a stranger, byte for byte.
import { closeSync, openSync } from 'node:fs'
import koffi from 'koffi'
import { EAGAIN, ECONNREFUSED, ENOBUFS } from '../../dataplane/io/errno.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { AF_INET, socketAddress } from '../../dataplane/io/linux/message-header.ts'
import { IOVEC_BYTES, PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { ip as address, bytesOfIpv6, ip6 } from './packets.ts'

const CLONE_NEWNET = 0x40000000
const SOCK_DGRAM = 2
const SOCK_RAW = 3
const SOCK_NONBLOCK = 0x800
const SOCK_CLOEXEC = 0x80000
const SOL_SOCKET = 1
const SOL_UDP = 17
const IPPROTO_UDP = 17
const SO_SNDBUFFORCE = 32
const SO_RCVBUFFORCE = 33
const UDP_SEGMENT = 103
/** raw(7): the IP header is ours; the kernel fills in IPv4's checksum. */
const IPPROTO_RAW = 255
const AF_INET6 = 10
/** struct sockaddr_in6, ipv6(7): family, port, flow label, address, scope. */
const SOCKADDR_IN6_BYTES = 28
const SIN6_ADDRESS = 8
const AF_PACKET = 17
const ETH_P_IP = 0x0800
const SOCKADDR_LL_BYTES = 20
const BUFFER_BYTES = 16 << 20
const LARGEST = 65536
const MEMORY_BYTES = 1 << 18
/** Between two looks for datagrams, milliseconds. */
const LOOK_MS = 5

const library = koffi.load('libc.so.6')
const setns = library.func('int setns(int, int)') as unknown as (fd: number, kind: number) => number
const connectTo = library.func('int connect(int, void *, unsigned int)') as unknown as (
  fd: number,
  name: Uint8Array,
  bytes: number,
) => number

/** Runs `action` (synchronous) with this thread in a network namespace. */
export function inNetwork<T>(namespace: string, action: () => T): T {
  const comeHome = enterNetwork(namespace)
  try {
    return action()
  } finally {
    comeHome()
  }
}

/** Moves this thread there until the function that it returns is called: for what makes sockets later on. */
export function enterNetwork(namespace: string): () => void {
  const home = openSync('/proc/thread-self/ns/net', 'r')
  const there = openSync(`/run/netns/${namespace}`, 'r')
  const moved = setns(there, CLONE_NEWNET)
  closeSync(there)
  const comeHome = () => {
    setns(home, CLONE_NEWNET)
    closeSync(home)
  }
  if (moved < 0) comeHome()
  checked(moved, 'setns')
  return comeHome
}

function checked(answer: number, call: string): number {
  if (answer < 0) throw new Error(`${call}: errno ${-answer}`)
  return answer
}

/** An address and a port; the port 0 stands for any. */
export type SocketName = readonly [host: string, port: number]

function connect(fd: number, name: Uint8Array): void {
  if (connectTo(fd, name, name.length) < 0) throw new Error(`connect: errno ${koffi.errno()}`)
}

export class NamespaceSocket {
  readonly #fd: number
  readonly #memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  readonly #buffer = this.#memory.reserve(LARGEST)
  readonly #iovec = this.#memory.reserve(IOVEC_BYTES)

  private constructor(fd: number) {
    this.#fd = fd
    libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
  }

  /** UDP. With `segmentBytes` each write leaves as one super-packet of datagrams of that size (udp(7), UDP_SEGMENT). */
  static udp(
    namespace: string,
    { from, to, segmentBytes }: { from?: SocketName; to?: SocketName; segmentBytes?: number },
  ): NamespaceSocket {
    const fd = makeSocket(namespace, AF_INET, SOCK_DGRAM, 0)
    if (from !== undefined) checked(libc.bind(fd, socketAddress(address(from[0]), from[1])), 'bind')
    if (to !== undefined) connect(fd, socketAddress(address(to[0]), to[1]))
    if (segmentBytes !== undefined) checked(libc.setsockopt(fd, SOL_UDP, UDP_SEGMENT, segmentBytes), 'UDP_SEGMENT')
    return new NamespaceSocket(fd)
  }

  /** Whole IPv4 packets, routed to `to`. */
  static ipv4(namespace: string, to: string): NamespaceSocket {
    const fd = makeSocket(namespace, AF_INET, SOCK_RAW, IPPROTO_RAW)
    connect(fd, socketAddress(address(to), 0))
    return new NamespaceSocket(fd)
  }

  /** Whole IPv6 packets, routed to `to`. */
  static ipv6(namespace: string, to: string): NamespaceSocket {
    const fd = makeSocket(namespace, AF_INET6, SOCK_RAW, IPPROTO_RAW)
    const name = new Uint8Array(SOCKADDR_IN6_BYTES)
    new DataView(name.buffer).setUint16(0, AF_INET6, true)
    name.set(bytesOfIpv6(ip6(to)), SIN6_ADDRESS)
    connect(fd, name)
    return new NamespaceSocket(fd)
  }

  /** Whole IPv4 packets of UDP as they arrive at any port, outer headers and all: raw(7). */
  static arriving(namespace: string): NamespaceSocket {
    return new NamespaceSocket(makeSocket(namespace, AF_INET, SOCK_RAW, IPPROTO_UDP))
  }

  /** Any bytes, into the device of that index: packet(7). */
  static device(namespace: string, index: number): NamespaceSocket {
    const fd = makeSocket(namespace, AF_PACKET, SOCK_RAW, 0)
    const name = new DataView(new ArrayBuffer(SOCKADDR_LL_BYTES))
    name.setUint16(0, AF_PACKET, true)
    name.setUint16(2, ETH_P_IP)
    name.setInt32(4, index, true)
    checked(libc.bind(fd, new Uint8Array(name.buffer)), 'bind')
    return new NamespaceSocket(fd)
  }

  /** Sends one datagram or packet; waits while the kernel has no room. @throws Error for every other refusal */
  async write(bytes: Uint8Array): Promise<void> {
    for (;;) {
      const sent = this.writeNow(bytes)
      if (sent >= 0) return
      // A refusal of an earlier datagram (ICMP) is told once, to the next call.
      if (sent !== -ECONNREFUSED) {
        if (sent !== -EAGAIN && sent !== -ENOBUFS) checked(sent, 'writev')
        await pause()
      }
    }
  }

  /** Tries once, without a turn of the event loop. Returns what writev(2) returned, or -errno. */
  writeNow(bytes: Uint8Array): number {
    this.#memory.bytes.set(bytes, this.#buffer)
    this.#memory.setIovec(this.#iovec, 0, this.#buffer, bytes.length)
    return libc.writev(this.#fd, this.#memory.addressAt(this.#iovec), 1)
  }

  /** One datagram, or `null` when none is there. */
  read(): Uint8Array | null {
    const read = libc.read(this.#fd, this.#memory.addressAt(this.#buffer), LARGEST)
    if (read === -EAGAIN) return null
    checked(read, 'read')
    return this.#memory.bytes.slice(this.#buffer, this.#buffer + read)
  }

  /** Datagrams in the order of their arrival, until so many are there or the time is over. */
  async readMany(count: number, limitMs = 20_000): Promise<Uint8Array[]> {
    const datagrams: Uint8Array[] = []
    const deadline = performance.now() + limitMs
    while (datagrams.length < count) {
      const datagram = this.read()
      if (datagram !== null) datagrams.push(datagram)
      else if (performance.now() > deadline) break
      else await pause()
    }
    return datagrams
  }

  close(): void {
    libc.close(this.#fd)
  }
}

function makeSocket(namespace: string, domain: number, type: number, protocol: number): number {
  const flags = SOCK_NONBLOCK | SOCK_CLOEXEC
  return inNetwork(namespace, () => checked(libc.socket(domain, type | flags, protocol), 'socket'))
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, LOOK_MS))
}
