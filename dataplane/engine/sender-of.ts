// From which of the socket's source ports a packet's frames leave: a function of its flow, so that a flow keeps its
// order and its path.
import { choiceOf, flowHash, hasPorts } from '../encap/flow-hash.ts'
import type { InnerPacket } from './inner-packet.ts'

const PORTS_BYTES = 4

/** Index below `senders` (1 when the socket does not say). A super-packet's segments are one flow, hence one answer. */
export function senderOf(view: DataView, packet: InnerPacket, senders = 1): number {
  if (senders <= 1) return 0
  const { at, ipBytes, length, protocol, addressesAt, addressBytes } = packet
  const showsPorts = !packet.isFragment && hasPorts(protocol) && length >= ipBytes + PORTS_BYTES
  return choiceOf(flowHash(view, addressesAt, addressBytes, protocol, showsPorts ? at + ipBytes : -1), senders)
}
