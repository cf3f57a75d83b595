// A Unix datagram socket that listens, as a service manager has one: Node has no such sockets.
import { onTestFinished } from 'vitest'
import { unixAddress } from '../../dataplane/io/linux/datagram-sender.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'

const AF_UNIX = 1
const SOCK_DGRAM = 2
const SOCK_NONBLOCK = 0x800
const ROOM_BYTES = 4096

/**
 * Listens on a path, or on an abstract name behind an `@`, until the test is over. Gives what has come since the last
 * call.
 */
export function datagramReceiver(path: string): () => string[] {
  const fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)
  const bound = libc.bind(fd, unixAddress(path)!)
  if (bound < 0) throw new Error(`bind: errno ${-bound}`)
  onTestFinished(() => void libc.close(fd))
  const memory = new PacketMemory(65536, libc.addressOf)
  const room = memory.reserve(ROOM_BYTES)
  return () => {
    const lines: string[] = []
    for (;;) {
      const read = libc.read(fd, memory.addressAt(room), ROOM_BYTES)
      if (read < 0) return lines
      lines.push(Buffer.from(memory.bytes.slice(room, room + read)).toString())
    }
  }
}
