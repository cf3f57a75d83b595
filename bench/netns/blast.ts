// Load generator and counter for small UDP packets, where iperf3 is the bottleneck long before the overlay is.
// A program of its own: the harness starts one in each pod. Many packets a system call (sendmmsg, recvmmsg).
//
//   blast send IP PORT LENGTH SECONDS [PACKETS_PER_SECOND]
//   blast receive PORT SECONDS
//
// Each prints one line of JSON, a BlastResult.
import { pathToFileURL } from 'node:url'
import koffi from 'koffi'

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
// Layout of <bits/socket.h> on 64-bit Linux: struct mmsghdr, iovec, sockaddr_in (man 2 sendmmsg, man 7 ip).
const MMSGHDR_BYTES = 64
const MSG_IOV_AT = 16
const MSG_IOVLEN_AT = 24
const IOVEC_BYTES = 16
const AF_INET = 2
const SOCK_DGRAM = 2
const SOL_SOCKET = 1
const SO_RCVTIMEO = 20
const SO_RCVBUFFORCE = 33
const MSG_WAITFORONE = 0x10000
const RECEIVE_BUFFER_BYTES = 32 << 20
const TIMEOUT_MICROSECONDS = 200_000
const EINTR = 4
const EAGAIN = 11

const libc = koffi.load('libc.so.6')
const socket = libc.func('int socket(int, int, int)')
const bind = libc.func('int bind(int, uintptr_t, unsigned int)')
const connect = libc.func('int connect(int, uintptr_t, unsigned int)')
const setsockopt = libc.func('int setsockopt(int, int, int, uintptr_t, unsigned int)')
const sendmmsg = libc.func('int sendmmsg(int, uintptr_t, unsigned int, int)')
const recvmmsg = libc.func('int recvmmsg(int, uintptr_t, unsigned int, int, uintptr_t)')
const memcpy = libc.func('uintptr_t memcpy(void*, void*, size_t)')

/** Whatever the kernel was told the address of; nothing else keeps it from the garbage collector. */
const pinned: Uint8Array[] = []

/** Address of the buffer's first byte, which stays valid: the bytes of an ArrayBuffer do not move. */
function addressOf(buffer: Uint8Array): number {
  pinned.push(buffer)
  return Number(memcpy(buffer, buffer, 0))
}

/** A vector of {@link BATCH} messages, one slot of bytes each (or one slot for all of them). */
class MessageVector {
  readonly address: number
  readonly #headers = new Uint8Array(BATCH * MMSGHDR_BYTES)
  readonly #iovecs = new Uint8Array(BATCH * IOVEC_BYTES)
  readonly #slots: Uint8Array

  constructor(lengthBytes: number, slotCount: number) {
    this.#slots = new Uint8Array(slotCount * SLOT_BYTES)
    const slots = addressOf(this.#slots)
    const iovecs = addressOf(this.#iovecs)
    const headers = new DataView(this.#headers.buffer)
    const vectors = new DataView(this.#iovecs.buffer)
    for (let i = 0; i < BATCH; i++) {
      vectors.setBigUint64(i * IOVEC_BYTES, BigInt(slots + (i % slotCount) * SLOT_BYTES), true)
      vectors.setBigUint64(i * IOVEC_BYTES + 8, BigInt(lengthBytes), true)
      headers.setBigUint64(i * MMSGHDR_BYTES + MSG_IOV_AT, BigInt(iovecs + i * IOVEC_BYTES), true)
      headers.setBigUint64(i * MMSGHDR_BYTES + MSG_IOVLEN_AT, 1n, true)
    }
    this.address = addressOf(this.#headers)
  }
}

function socketAddress(ip: string, port: number): Uint8Array {
  const bytes = new Uint8Array(16)
  const view = new DataView(bytes.buffer)
  view.setUint16(0, AF_INET, true)
  view.setUint16(2, port)
  bytes.set(ip.split('.').map(Number), 4)
  return bytes
}

function checked(answer: number, call: string): number {
  if (answer < 0) throw new Error(`${call}: errno ${koffi.errno()}`)
  return answer
}

function openSocket(call: 'bind' | 'connect', ip: string, port: number): number {
  const fd = checked(socket(AF_INET, SOCK_DGRAM, 0), 'socket')
  const address = socketAddress(ip, port)
  checked((call === 'bind' ? bind : connect)(fd, addressOf(address), address.length), call)
  return fd
}

/** Sends datagrams of `lengthBytes` (UDP payload, up to 2048) for `seconds`, as fast as it can or at `rate` a second. */
export function send(ip: string, port: number, lengthBytes: number, seconds: number, rate = Infinity): BlastResult {
  const fd = openSocket('connect', ip, port)
  const vector = new MessageVector(lengthBytes, 1)
  const start = performance.now()
  let packets = 0
  let refused = 0
  let elapsed = 0
  while (elapsed < seconds) {
    const due = Math.min(BATCH, Math.ceil(elapsed * rate) - packets)
    if (rate !== Infinity && due <= 0) pauseMilliseconds(0.1)
    else {
      const sent = sendmmsg(fd, vector.address, rate === Infinity ? BATCH : due, 0)
      if (sent > 0) packets += sent
      else refused += 1
    }
    elapsed = (performance.now() - start) / 1000
  }
  return { packets, seconds: elapsed, packetsPerSecond: Math.round(packets / elapsed), refused }
}

function pauseMilliseconds(milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)
}

/** Counts datagrams on `port` for `seconds`; `ready` is called once the socket is bound. */
export function receive(port: number, seconds: number, ready: () => void = () => {}): BlastResult {
  const fd = openSocket('bind', '0.0.0.0', port)
  const size = new Int32Array([RECEIVE_BUFFER_BYTES])
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, addressOf(new Uint8Array(size.buffer)), size.byteLength)
  const timeout = new BigInt64Array([0n, BigInt(TIMEOUT_MICROSECONDS)])
  const timeoutBytes = new Uint8Array(timeout.buffer)
  checked(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, addressOf(timeoutBytes), timeoutBytes.length), 'setsockopt')
  const vector = new MessageVector(SLOT_BYTES, BATCH)
  ready()
  const start = performance.now()
  let first = 0
  let last = 0
  let packets = 0
  for (let now = start; now - start < seconds * 1000; now = performance.now()) {
    const received = recvmmsg(fd, vector.address, BATCH, MSG_WAITFORONE, 0)
    if (received > 0) {
      last = performance.now()
      if (packets === 0) first = last
      packets += received
    } else if (koffi.errno() !== EAGAIN && koffi.errno() !== EINTR) checked(received, 'recvmmsg')
  }
  const span = (last - first) / 1000
  return { packets, seconds: span, packetsPerSecond: span > 0 ? Math.round(packets / span) : 0, refused: 0 }
}

function main(words: readonly string[]): number {
  const [verb, ...rest] = words
  const numbers = rest.slice(verb === 'send' ? 1 : 0).map(Number)
  const usable = numbers.every((value) => Number.isFinite(value) && value > 0)
  if (verb === 'send' && usable && numbers.length >= 3 && numbers[1]! <= SLOT_BYTES) {
    const [port, length, seconds, rate] = numbers
    console.log(JSON.stringify(send(rest[0]!, port!, length!, seconds!, rate)))
  } else if (verb === 'receive' && usable && numbers.length === 2) {
    const [port, seconds] = numbers
    console.log(JSON.stringify(receive(port!, seconds!, () => console.error('ready'))))
  } else {
    console.error('usage: blast send IP PORT LENGTH SECONDS [PACKETS_PER_SECOND] | blast receive PORT SECONDS')
    return 2
  }
  return 0
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) process.exitCode = main(process.argv.slice(2))
