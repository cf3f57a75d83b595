// What an engine hands to its underlay socket, frame by frame, and what it is told about it: wraps a socket, keeps a
// copy of every message, and can refuse some of them. Also a pair of nodes whose first one is tapped.
import { gather } from '../../dataplane/io/memory/memory-device.ts'
import type { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import type { SendBatch } from '../../dataplane/io/send-batch.ts'
import type { UnderlaySocket } from '../../dataplane/io/underlay-socket.ts'
import type { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { type EnginePair, enginePair, type NodeOptions } from './engine-pair.ts'
import { ENCAP_BYTES } from './vxlan-frame.ts'

/** One message of a batch, as the socket saw it. */
export interface SentMessage {
  readonly address: number
  readonly port: number
  readonly tos: number
  /** Size at which the kernel is to cut, 0 for a single datagram. */
  readonly segmentSize: number
  readonly frames: readonly Uint8Array[]
}

export class UnderlayTap implements UnderlaySocket {
  maxSegments: number
  readonly messages: SentMessage[] = []
  /** Send calls, each with any number of messages. */
  sends = 0
  /** Errno for a message, 0 to let it pass. */
  refuse: (message: SentMessage) => number = () => 0
  /** Marks every datagram received as cut by the kernel. */
  truncates = false
  readonly #inner: UnderlaySocket
  readonly #memory: PacketMemory

  readonly #encapBytes: number

  /** `encapBytes` stand in front of the inner packet in each frame. */
  constructor(inner: UnderlaySocket, memory: PacketMemory, encapBytes: number = ENCAP_BYTES) {
    this.#encapBytes = encapBytes
    this.#inner = inner
    this.#memory = memory
    this.maxSegments = inner.maxSegments
  }

  receive(slots: ReceiveSlots): number {
    const received = this.#inner.receive(slots)
    if (this.truncates) slots.truncated.fill(1)
    return received
  }

  send(batch: SendBatch): void {
    this.sends += 1
    this.#inner.send(batch)
    for (let message = 0; message < batch.count; message++) {
      const sent = readMessage(this.#memory, batch, message)
      this.messages.push(sent)
      batch.errno[message] ||= this.refuse(sent)
    }
  }

  /** Frames sent since the last call, in order. */
  takeFrames(): Uint8Array[] {
    return this.messages.splice(0).flatMap((message) => message.frames)
  }

  /** Inner packets sent since the last call, in order. */
  takePackets(): Uint8Array[] {
    return this.takeFrames().map((frame) => frame.slice(this.#encapBytes))
  }
}

/** A message of a batch, copied out of packet memory and cut as the kernel would cut it. */
export function readMessage(memory: PacketMemory, batch: SendBatch, message: number): SentMessage {
  const bytes = gather(memory, batch.iovecAt(message), batch.iovecCount[message]!)
  const segmentSize = batch.segmentSize(message)
  const step = segmentSize || Math.max(bytes.length, 1)
  const frames: Uint8Array[] = []
  for (let at = 0; at < bytes.length; at += step) frames.push(bytes.slice(at, at + step))
  return {
    address: batch.address[message]!,
    port: batch.port[message]!,
    tos: batch.tos[message]!,
    segmentSize,
    frames,
  }
}

/** Nodes A and B; what A sends is kept. */
export function tappedPair(options: NodeOptions = {}): EnginePair & { readonly tap: UnderlayTap } {
  const taps: UnderlayTap[] = []
  const pair = enginePair({
    ...options,
    wrapSocket: (socket, memory) => {
      const tap = new UnderlayTap(socket, memory, options.encapsulation === 'udp' ? 0 : ENCAP_BYTES)
      taps.push(tap)
      return tap
    },
  })
  return { ...pair, tap: taps[0]! }
}
