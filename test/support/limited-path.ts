// A socket in front of a way that takes less than its sender believes: what is larger is refused as a kernel refuses it that
// has DF set, until it forgets.
import { EMSGSIZE } from '../../dataplane/io/errno.ts'
import type { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import type { SendBatch } from '../../dataplane/io/send-batch.ts'
import type { UnderlayPaths, UnderlaySocket } from '../../dataplane/io/underlay-socket.ts'

/** Nobody has this address. */
const NOWHERE = 0

export class LimitedPath implements UnderlaySocket {
  readonly maxSegments: number
  readonly senders = 1
  readonly paths: UnderlayPaths
  /** Largest UDP payload to each receiver, by address; absent: everything. */
  readonly payloads = new Map<number, number>()
  /** What the kernel says of it, where that is something else: -errno. */
  answer: number | null = null
  /** How often the kernel was asked. */
  asked = 0
  /** Messages with DF set, and those without, in inner frames. */
  readonly sent: { readonly df: boolean; readonly frames: number; readonly frameBytes: number }[] = []
  readonly #inner: UnderlaySocket

  constructor(inner: UnderlaySocket) {
    this.#inner = inner
    this.maxSegments = inner.maxSegments
    this.paths = {
      fragmentingSender: 1,
      payloadTo: (address) => {
        this.asked += 1
        return this.answer ?? this.#payload(address)
      },
    }
  }

  #payload(address: number): number {
    return this.payloads.get(address >>> 0) ?? 65507
  }

  receive(slots: ReceiveSlots): number {
    return this.#inner.receive(slots)
  }

  send(batch: SendBatch): void {
    const refused = new Map<number, number>()
    for (let message = 0; message < batch.count; message++) {
      const [address, frameBytes] = [batch.address[message]!, batch.frameBytes[message]!]
      const df = batch.sender[message] !== this.paths.fragmentingSender
      if (df && frameBytes > this.#payload(address)) {
        refused.set(message, address)
        batch.address[message] = NOWHERE
      } else {
        this.sent.push({ df, frames: batch.packets[message]!, frameBytes })
      }
    }
    this.#inner.send(batch)
    for (const [message, address] of refused) {
      batch.address[message] = address
      batch.errno[message] = EMSGSIZE
    }
  }
}
