// Messages of a batch put together by the port they leave from, so that each port costs one sendmmsg(2). Messages of
// one port keep their order: a flow has one port, so no packet overtakes another of its flow.
import type { SendBatch } from '../send-batch.ts'

export class SenderOrder {
  readonly #order: Uint8Array

  /** `messages` is how many a batch may hold, at most 256. */
  constructor(messages: number) {
    this.#order = new Uint8Array(messages)
  }

  /** Indices of the batch's messages in the order in which they shall be sent. Overwritten by the next call. */
  of(batch: SendBatch): Uint8Array {
    const order = this.#order
    // Insertion: stable, in place, and next to nothing for the one or two messages of most batches.
    for (let message = 0; message < batch.count; message++) {
      const sender = batch.sender[message]!
      let place = message
      while (place > 0 && batch.sender[order[place - 1]!]! > sender) {
        order[place] = order[place - 1]!
        place -= 1
      }
      order[place] = message
    }
    return order
  }
}
