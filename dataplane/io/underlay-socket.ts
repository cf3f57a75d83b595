// The underlay side of the engine: a UDP socket that moves batches, or its stand-in in memory.
import type { ReceiveSlots } from './receive-slots.ts'
import type { SendBatch } from './send-batch.ts'

/** What became of a message that was under way when its send returned. */
export interface Settled {
  /** Number of the message: `batch.firstSerial` and its place in the batch. */
  readonly serial: number
  /** Number of the receiver, as in the batch. */
  readonly address: number
  readonly port: number
  readonly bytes: number
  /** 0 when it was sent. */
  readonly errno: number
}

/** What a socket can tell of the ways to receivers, and do about them. */
export interface UnderlayPaths {
  /** `sender` of messages that leave with DF clear, or may be fragmented here, whatever the socket does with others. */
  readonly fragmentingSender: number
  /** Largest UDP payload that goes to that receiver in one piece, as far as the kernel knows now; -errno when it does not. */
  payloadTo(address: number, port: number): number
}

export interface UnderlaySocket {
  /** Segments that one send may carry (UDP_SEGMENT); 1 when the kernel cannot cut datagrams for us. */
  readonly maxSegments: number
  /** Source ports that a message can leave from, chosen by its `sender` (0 to this less one); 1 when absent. */
  readonly senders?: number
  /** Present where DF is set on what is sent: a message that is too large for its path fails with EMSGSIZE then. */
  readonly paths?: UnderlayPaths
  /**
   * Receives datagrams (or trains of equal-sized ones, see ReceiveSlots.segmentSize) without waiting, into the slots
   * from `slots.first` on, as far as they reach. Returns how many, 0 when there is nothing to receive now, or -errno.
   */
  receive(slots: ReceiveSlots): number
  /**
   * Sends every message of the batch in order and notes in `batch.errno` what became of each (0: sent). Waits a
   * bounded time (at most 10 ms) for room. The bytes are the caller's again when the call returns.
   */
  send(batch: SendBatch): void
  /**
   * The way out is another one now: what the kernel has refused at work may do again. Present where refusals are
   * remembered.
   */
  forgetRefusals?(): void
  /**
   * Present where the fate of a message is known only after the send has returned: its errno is EINPROGRESS then, and
   * `listener` is told of each one later, once.
   */
  tellSettled?(listener: (settled: Settled) => void): void
}
