// Datagrams to a Unix socket (unix(7)), which Node has no sockets for: how a service manager is told that we are ready.
import * as libc from './libc.ts'

const AF_UNIX = 1
const SOCK_DGRAM = 2
const SOCK_CLOEXEC = 0x80000
const MSG_DONTWAIT = 0x40
const MSG_NOSIGNAL = 0x4000
const PATH_AT = 2
/** sizeof(sockaddr_un.sun_path) */
const PATH_BYTES = 108
const ENAMETOOLONG = 36

export interface DatagramSender {
  /** Sends one datagram without waiting. Returns 0 or an errno. */
  send(text: string): number
  close(): void
}

/**
 * The address of a Unix socket: a path, or a name of Linux' abstract namespace behind an `@`; `null` when it is too
 * long.
 */
export function unixAddress(path: string): Uint8Array | null {
  const name = Buffer.from(path)
  if (name.length >= PATH_BYTES) return null
  const isAbstract = path.startsWith('@')
  const address = new Uint8Array(PATH_AT + name.length + (isAbstract ? 0 : 1))
  address[0] = AF_UNIX
  address.set(name, PATH_AT)
  if (isAbstract) address[PATH_AT] = 0
  return address
}

/** A sender to that socket, or an errno. */
export function openSender(path: string): DatagramSender | number {
  const address = unixAddress(path)
  if (address === null) return ENAMETOOLONG
  const fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)
  if (fd < 0) return -fd
  return {
    send: (text) => Math.max(0, -libc.sendto(fd, Buffer.from(text), MSG_DONTWAIT | MSG_NOSIGNAL, address)),
    close: () => void libc.close(fd),
  }
}
