// Load generator and counter for small UDP packets, where iperf3 is the bottleneck long before the overlay is.
// A program of its own: the harness starts one in each pod. Many packets a system call (sendmmsg, recvmmsg).
//
//   blast send IP PORT LENGTH SECONDS [PACKETS_PER_SECOND]
//   blast receive IP PORT [SECONDS]          without SECONDS until its input ends
//
// Each prints one line of JSON, a BlastResult.
import { pathToFileURL } from 'node:url'
import { EAGAIN, EINTR } from '../../dataplane/io/errno.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { familyOf, MessageHeaders, socketAddress } from '../../dataplane/io/linux/message-header.ts'
import { PollSet } from '../../dataplane/io/linux/poll-set.ts'
import type { SocketAddresses } from '../../dataplane/io/socket-addresses.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { parseIpv4, parseIpv6 } from '../../dataplane/wire/address.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'

export interface BlastResult {
  readonly packets: number
  /** For a receiver: from its first packet to its last one, so that waiting at either end does not count. */
  readonly seconds: number
  readonly packetsPerSecond: number
  /** Sender only: packets that the kernel refused (ENOBUFS, ECONNREFUSED). */
  readonly refused: number
}

const BATCH = 64
const SLOT_BYTES = 2048
const MEMORY_BYTES = 1 << 20
const SOCK_DGRAM = 2
const SOL_SOCKET = 1
const SO_RCVBUFFORCE = 33
const MSG_DONTWAIT = 0x40
const RECEIVE_BUFFER_BYTES = 32 << 20
/** How long a receiver waits for one packet before it looks at the clock. */
const WAIT_MS = 200
const STDIN = 0

function checked(answer: number, call: string): number {
  if (answer < 0) throw new Error(`${call}: errno ${-answer}`)
  return answer
}

/**
 * Sends datagrams of `lengthBytes` (UDP payload, up to 2048) for `seconds`, as fast as it can or at `rate` a second: then
 * so many in all, also when it got no time at the end, and takes longer.
 */
export function send(
  address: number | bigint,
  port: number,
  lengthBytes: number,
  seconds: number,
  rate = Infinity,
): BlastResult {
  const fd = checked(libc.socket(familyOf(address), SOCK_DGRAM, 0), 'socket')
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  const payload = memory.reserve(SLOT_BYTES)
  const headers = headersFor(memory, address)
  headers.setSlots(BATCH, () => payload, lengthBytes)
  for (let i = 0; i < BATCH; i++) {
    headers.setDestination(i, typeof address === 'number' ? address : THE_ONE, port)
    headers.setSendControl(i, 0, 0)
  }
  const start = performance.now()
  let packets = 0
  let refused = 0
  let elapsed = 0
  const total = rate === Infinity ? 0 : Math.round(seconds * rate)
  while (elapsed < seconds || packets + refused < total) {
    const due = rate === Infinity ? BATCH : Math.min(BATCH, total - packets, Math.ceil(elapsed * rate) - packets)
    if (due <= 0) pauseMilliseconds(0.1)
    else {
      const sent = libc.sendmmsg(fd, headers.addressOf(0), due, 0)
      if (sent > 0) packets += sent
      else refused += 1
    }
    elapsed = (performance.now() - start) / 1000
  }
  libc.close(fd)
  return { packets, seconds: elapsed, packetsPerSecond: Math.round(packets / elapsed), refused }
}

function pauseMilliseconds(milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)
}

/** Number that stands for the only IPv6 address. */
const THE_ONE = 1

function headersFor(memory: PacketMemory, address: number | bigint): MessageHeaders {
  if (typeof address === 'number') return new MessageHeaders(memory, BATCH)
  const wide: SocketAddresses = {
    numberOf: () => THE_ONE,
    write: (_, view, at) => ipv6.writeAddress(view, at, address),
  }
  return new MessageHeaders(memory, BATCH, wide)
}

/**
 * Counts datagrams to `address` and `port` for `seconds`, or, when that is not finite, until standard input ends and none
 * waits; `ready` is called once the socket is bound.
 */
export function receive(
  address: number | bigint,
  port: number,
  seconds: number,
  ready: () => void = () => {},
): BlastResult {
  const fd = checked(libc.socket(familyOf(address), SOCK_DGRAM, 0), 'socket')
  checked(libc.bind(fd, socketAddress(address, port)), 'bind')
  libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  const slots = memory.reserve(BATCH * SLOT_BYTES)
  const headers = headersFor(memory, address)
  headers.setSlots(BATCH, (index) => slots + index * SLOT_BYTES, SLOT_BYTES)
  for (let i = 0; i < BATCH; i++) headers.resetReceive(i)
  const waiting = new PollSet(memory, Number.isFinite(seconds) ? [fd] : [fd, STDIN])
  ready()
  const start = performance.now()
  let first = 0
  let last = 0
  let packets = 0
  for (let now = start; now - start < seconds * 1000; now = performance.now()) {
    const received = libc.recvmmsg(fd, headers.addressOf(0), BATCH, MSG_DONTWAIT)
    if (received > 0) {
      last = performance.now()
      if (packets === 0) first = last
      packets += received
    } else if (received === -EAGAIN) {
      waiting.wait(WAIT_MS)
      if (!Number.isFinite(seconds) && waiting.ready(0) === 0 && waiting.ready(1) !== 0) break
    } else if (received !== -EINTR) checked(received, 'recvmmsg')
  }
  libc.close(fd)
  const span = (last - first) / 1000
  return { packets, seconds: span, packetsPerSecond: span > 0 ? Math.round(packets / span) : 0, refused: 0 }
}

function main(words: readonly string[]): number {
  const [verb, ...rest] = words
  const numbers = rest.slice(1).map(Number)
  const usable = numbers.every((value) => Number.isFinite(value) && value > 0)
  const address = parseIpv4(rest[0] ?? '') ?? parseIpv6(rest[0] ?? '')
  if (address === null) return misused()
  if (verb === 'send' && usable && numbers.length >= 3 && numbers[1]! <= SLOT_BYTES) {
    const [port, length, seconds, rate] = numbers
    console.log(JSON.stringify(send(address, port!, length!, seconds!, rate)))
  } else if (verb === 'receive' && usable && (numbers.length === 1 || numbers.length === 2)) {
    const [port, seconds = Infinity] = numbers
    console.log(JSON.stringify(receive(address, port!, seconds, () => console.error('ready'))))
  } else {
    return misused()
  }
  return 0
}

function misused(): number {
  console.error('usage: blast send IP PORT LENGTH SECONDS [PACKETS_PER_SECOND] | blast receive IP PORT [SECONDS]')
  return 2
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) process.exitCode = main(process.argv.slice(2))
