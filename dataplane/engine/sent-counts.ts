// The last step outbound, in numbers: what became of each message of a batch. Read and passed (or dropped) change
// together, so that the books balance between any two sends.
import { EINPROGRESS, reasonForSendErrno } from '../io/errno.ts'
import type { SendBatch } from '../io/send-batch.ts'
import type { Settled } from '../io/underlay-socket.ts'
import { type Counters, cellOf, messageSizeCellOf } from './counters.ts'
import type { PeerActivity } from './peer-activity.ts'

const READ_PACKETS = cellOf('outbound.packets.read')
const READ_BYTES = cellOf('outbound.bytes.read')
const PASSED_PACKETS = cellOf('outbound.packets.passed')
const PASSED_BYTES = cellOf('outbound.bytes.passed')
const SEND_CALLS = cellOf('outbound.calls.send')
const MESSAGES_PACKETS = cellOf('outbound.messages.packets')
const MESSAGES_SENT = cellOf('outbound.messages.sent')
const MESSAGES_RESENT = cellOf('outbound.messages.resent')
const UDP_GSO_GIVEN_UP = cellOf('downgrade.udp-gso')

/**
 * Counts a batch that a socket is done with; `encapBytes` is the tunnel header of each frame, which is not counted.
 * `activity`, told what was sent to whom, takes what is under way for sent.
 */
export function countSent(
  counters: Counters,
  batch: SendBatch,
  encapBytes: number,
  activity: PeerActivity | null = null,
): void {
  counters.add(SEND_CALLS, 1)
  for (let message = 0; message < batch.count; message++) {
    const errno = batch.errno[message]!
    const packets = batch.packets[message]!
    const bytes = batch.bytes[message]! - packets * encapBytes
    counters.add(messageSizeCellOf(packets), 1)
    counters.add(MESSAGES_PACKETS, packets)
    if (errno === 0 || errno === EINPROGRESS) activity?.sent(batch.address[message]! | 0, packets, bytes)
    if (errno === EINPROGRESS) continue
    counters.add(READ_PACKETS, packets)
    counters.add(READ_BYTES, bytes)
    if (errno === 0) {
      counters.add(PASSED_PACKETS, packets)
      counters.add(PASSED_BYTES, bytes)
      counters.add(MESSAGES_SENT, 1)
    } else {
      countFailed(counters, batch, message, packets, bytes, encapBytes)
      const left = batch.sentPackets[message]!
      if (left > 0) activity?.sent(batch.address[message]! | 0, left, batch.sentBytes[message]! - left * encapBytes)
    }
  }
  if (batch.resent === 0) return
  counters.add(MESSAGES_RESENT, batch.resent)
  counters.add(UDP_GSO_GIVEN_UP, batch.givenUp)
  batch.resent = 0
  batch.givenUp = 0
}

/** Counts a message of one packet that was under way when its batch was counted. */
export function countSettled(counters: Counters, settled: Settled, encapBytes: number): void {
  const bytes = settled.bytes - encapBytes
  counters.add(READ_PACKETS, 1)
  counters.add(READ_BYTES, bytes)
  if (settled.errno !== 0) {
    counters.drop('outbound', reasonForSendErrno(settled.errno), 1, bytes)
    return
  }
  counters.add(PASSED_PACKETS, 1)
  counters.add(PASSED_BYTES, bytes)
  counters.add(MESSAGES_SENT, 1)
}

/** A message that failed, or of which some frames failed when they were sent one by one. */
function countFailed(
  counters: Counters,
  batch: SendBatch,
  message: number,
  packets: number,
  bytes: number,
  encapBytes: number,
): void {
  const sent = batch.sentPackets[message]!
  const sentBytes = batch.sentBytes[message]! - sent * encapBytes
  counters.add(PASSED_PACKETS, sent)
  counters.add(PASSED_BYTES, sentBytes)
  if (sent > 0) counters.add(MESSAGES_SENT, 1)
  counters.drop('outbound', reasonForSendErrno(batch.errno[message]!), packets - sent, bytes - sentBytes)
}
