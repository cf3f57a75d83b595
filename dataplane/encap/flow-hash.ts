// A number for the flow of an inner packet, from which its outer source port follows: routers and NICs spread tunnels
// by their outer ports, so one port for all flows would put them all on one link and one core (RFC 7348, section 5).
import { PROTOCOL_TCP, PROTOCOL_UDP } from '../wire/ipv4.ts'

const PROTOCOL_SCTP = 132
const PROTOCOL_UDP_LITE = 136

/** Whether the transport header of that protocol starts with source and destination port. */
export function hasPorts(protocol: number): boolean {
  return (
    protocol === PROTOCOL_TCP ||
    protocol === PROTOCOL_UDP ||
    protocol === PROTOCOL_SCTP ||
    protocol === PROTOCOL_UDP_LITE
  )
}

/**
 * Hash of a flow as a signed 32-bit number: of both addresses (`addressBytes` bytes from `addressesAt` on, a multiple
 * of 4), the protocol, and both ports. `portsAt` is where the two ports stand, or negative where there are none to be
 * had: every fragment of a datagram then has the hash of the others, also the first, which does carry ports.
 */
export function flowHash(
  view: DataView,
  addressesAt: number,
  addressBytes: number,
  protocol: number,
  portsAt: number,
): number {
  let hash = protocol
  for (let done = 0; done < addressBytes; done += 4) hash = stir(hash, view.getInt32(addressesAt + done))
  if (portsAt >= 0) hash = stir(hash, view.getInt32(portsAt))
  // Finalizer with full avalanche: each bit of the input changes half of the output (the constants are MurmurHash3's).
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return hash ^ (hash >>> 16)
}

/** One of `count` choices (1 to 65,536) by a hash: its upper half scaled, as the kernel maps it onto its port range. */
export function choiceOf(hash: number, count: number): number {
  return ((hash >>> 16) * count) >>> 16
}

function stir(hash: number, word: number): number {
  const mixed = Math.imul(hash ^ word, 0x9e3779b1)
  return (mixed << 13) | (mixed >>> 19)
}
