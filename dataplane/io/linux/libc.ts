// Every system call of the fast path, named as in its man page, through koffi. Decides nothing: each wrapper returns
// what the call returned, or -errno. On the hot calls pointers are numbers (user addresses stay below 2^48) declared
// `uintptr_t`, which is the cheapest form: 30 to 80 ns a call. Set-up calls take typed arrays.
import koffi from 'koffi'

const library = koffi.load('libc.so.6')

const F_DUPFD_CLOEXEC = 1030
const SOL_SOCKET = 1
const SO_MEMINFO = 55
/** Nine 32-bit words, the last of them SK_MEMINFO_DROPS (linux/sock_diag.h). */
const MEMINFO_BYTES = 36
const MEMINFO_DROPS = 32

interface Call {
  (...args: readonly (number | string | Uint8Array)[]): number
  async(...args: readonly (number | ((error: Error | null, result: number) => void))[]): void
}
const declare = (prototype: string): Call => library.func(prototype) as unknown as Call

const calls = {
  open: declare('int open(const char *, int)'),
  close: declare('int close(int)'),
  ioctlPointer: declare('int ioctl(int, unsigned long, void *)'),
  ioctlValue: declare('int ioctl(int, unsigned long, unsigned long)'),
  read: declare('long read(int, uintptr_t, size_t)'),
  writev: declare('long writev(int, uintptr_t, int)'),
  eventfd: declare('int eventfd(unsigned int, int)'),
  fcntl: declare('int fcntl(int, int, int)'),
  eventfdWrite: declare('int eventfd_write(int, uint64_t)'),
  poll: declare('int poll(uintptr_t, unsigned long, int)'),
  socket: declare('int socket(int, int, int)'),
  bind: declare('int bind(int, void *, unsigned int)'),
  connect: declare('int connect(int, void *, unsigned int)'),
  getsockname: declare('int getsockname(int, void *, void *)'),
  setsockopt: declare('int setsockopt(int, int, int, void *, unsigned int)'),
  getsockopt: declare('int getsockopt(int, int, int, void *, void *)'),
  sendmmsg: declare('int sendmmsg(int, uintptr_t, unsigned int, int)'),
  recvmmsg: declare('int recvmmsg(int, uintptr_t, unsigned int, int, uintptr_t)'),
  sendto: declare('long sendto(int, void *, size_t, int, void *, unsigned int)'),
  memcpy: declare('uintptr_t memcpy(void *, void *, size_t)'),
}

/** A failed call's result becomes -errno; errno must be read before anything else is called. */
function orErrno(result: number): number {
  return result < 0 ? -koffi.errno() : result
}

export function open(path: string, flags: number): number {
  return orErrno(calls.open(path, flags))
}

export function close(fd: number): number {
  return orErrno(calls.close(fd))
}

/** ioctl(2) whose argument is a structure; `argument` may be written to. */
export function ioctlPointer(fd: number, request: number, argument: Uint8Array): number {
  return orErrno(calls.ioctlPointer(fd, request, argument))
}

/** ioctl(2) whose argument is a plain value. */
export function ioctlValue(fd: number, request: number, value: number): number {
  return orErrno(calls.ioctlValue(fd, request, value))
}

export function read(fd: number, address: number, count: number): number {
  return orErrno(calls.read(fd, address, count))
}

export function writev(fd: number, iovecs: number, count: number): number {
  return orErrno(calls.writev(fd, iovecs, count))
}

export function eventfd(initial: number, flags: number): number {
  return orErrno(calls.eventfd(initial, flags))
}

/** eventfd_write(3): adds to the counter and wakes whoever polls. */
export function eventfdWrite(fd: number, value: number): number {
  return orErrno(calls.eventfdWrite(fd, value))
}

/** `fds` is the address of an array of `struct pollfd`. */
export function poll(fds: number, count: number, timeoutMs: number): number {
  return orErrno(calls.poll(fds, count, timeoutMs))
}

/** {@link poll} on a thread of libuv's pool, while the event loop goes on; `done` gets its result, -1 for any error. */
export function pollAside(fds: number, count: number, timeoutMs: number, done: (ready: number) => void): void {
  calls.poll.async(fds, count, timeoutMs, (error, ready) => done(error === null ? ready : -1))
}

/** Another descriptor of the same open file, closed on exec. */
export function duplicate(fd: number): number {
  return orErrno(calls.fcntl(fd, F_DUPFD_CLOEXEC, 0))
}

export function socket(domain: number, type: number, protocol: number): number {
  return orErrno(calls.socket(domain, type, protocol))
}

export function bind(fd: number, address: Uint8Array): number {
  return orErrno(calls.bind(fd, address, address.length))
}

/** Gives a socket its receiver, once more if it has one. */
export function connect(fd: number, address: Uint8Array): number {
  return orErrno(calls.connect(fd, address, address.length))
}

/** Own address of a socket, into `address`, which must be long enough. */
export function getsockname(fd: number, address: Uint8Array): number {
  return orErrno(calls.getsockname(fd, address, new Uint8Array(Int32Array.of(address.length).buffer)))
}

export function setsockopt(fd: number, level: number, name: number, value: number): number {
  return orErrno(calls.setsockopt(fd, level, name, new Uint8Array(Int32Array.of(value).buffer), 4))
}

/** The option's value (an int), or -errno. */
export function getsockopt(fd: number, level: number, name: number): number {
  const value = new Uint8Array(4)
  const length = new Uint8Array(Int32Array.of(value.length).buffer)
  const result = orErrno(calls.getsockopt(fd, level, name, value, length))
  return result < 0 ? result : new DataView(value.buffer).getInt32(0, true)
}

/** Datagrams that a socket's full queue has lost since it was opened (socket(7), SO_MEMINFO), or -errno. */
export function socketDrops(fd: number): number {
  const words = new Uint8Array(MEMINFO_BYTES)
  const length = new Uint8Array(Int32Array.of(words.length).buffer)
  const result = orErrno(calls.getsockopt(fd, SOL_SOCKET, SO_MEMINFO, words, length))
  return result < 0 ? result : new DataView(words.buffer).getUint32(MEMINFO_DROPS, true)
}

/** `messages` is the address of an array of `struct mmsghdr`. Returns how many were sent. */
export function sendmmsg(fd: number, messages: number, count: number, flags: number): number {
  return orErrno(calls.sendmmsg(fd, messages, count, flags))
}

/** Never with a timeout: the kernel checks it only after a datagram has arrived (recvmmsg(2), BUGS). */
export function recvmmsg(fd: number, messages: number, count: number, flags: number): number {
  return orErrno(calls.recvmmsg(fd, messages, count, flags, 0))
}

/** Bytes sent to `address` (a structure of its family), or -errno. */
export function sendto(fd: number, bytes: Uint8Array, flags: number, address: Uint8Array): number {
  return orErrno(calls.sendto(fd, bytes, bytes.length, flags, address, address.length))
}

/**
 * Process address of an array's first byte: memcpy(3) returns its destination. The array must not move (shared memory).
 */
export function addressOf(bytes: Uint8Array): number {
  return calls.memcpy(bytes, bytes, 0)
}
