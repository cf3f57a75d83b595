// The npm package raw-socket: optional, and native, so that it may be missing, not built, or built for another Node.
// Its machine code belongs to libuv's default loop: on the main thread it works, on any other it ends the process by a
// signal.
import { createRequire } from 'node:module'
import { isMainThread } from 'node:worker_threads'

const PACKAGE = 'raw-socket'
/** raw(7): the IP header is ours; nothing is ever received. */
const IPPROTO_RAW = 255
const SOL_SOCKET = 1
const SO_SNDBUFFORCE = 32
/** As for the other sockets: so much that a send hardly ever finds no room. */
const SEND_BUFFER_BYTES = 16 * 1024 * 1024

/**
 * What is used of a socket of the package. `onSendReady` is what its event loop calls: it sends the next request at
 * once.
 */
export interface RawSender {
  send(buffer: Buffer, offset: number, length: number, address: string, done: (error: Error | null) => void): void
  onSendReady(): void
  pauseRecv(): void
  setOption(level: number, option: number, value: number): void
  close(): void
}

interface RawPackage {
  createSocket(options: { readonly protocol: number }): RawSender
}

/** Why there is no raw socket: `missing` is the package or its native part, `refused` the kernel's word. */
export interface RawFailure {
  readonly kind: 'missing' | 'refused'
  readonly why: string
}

/** Loads the package and opens a socket that sends whole IPv4 packets. */
export function openRawSender(): RawSender | RawFailure {
  // A caller's mistake, and worse than an error when it is not seen.
  if (!isMainThread) throw new Error('raw-socket works on the main thread only')
  let loaded: RawPackage
  try {
    loaded = createRequire(import.meta.url)(PACKAGE) as RawPackage
  } catch (error) {
    return { kind: 'missing', why: firstLine(error) }
  }
  try {
    const sender = loaded.createSocket({ protocol: IPPROTO_RAW })
    sender.pauseRecv()
    enlarge(sender)
    return sender
  } catch (error) {
    return { kind: 'refused', why: firstLine(error) }
  }
}

/** Without CAP_NET_ADMIN the buffer stays as the kernel made it: sends then wait more often. */
function enlarge(sender: RawSender): void {
  try {
    sender.setOption(SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
  } catch {
    // Nothing but speed depends on it.
  }
}

/** Whether the raw driver can work here: opens a socket and closes it. `null` when it can. */
export function rawFailure(): RawFailure | null {
  const sender = openRawSender()
  if ('kind' in sender) return sender
  sender.close()
  return null
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0]!
}
