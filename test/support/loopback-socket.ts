// What tests of underlay sockets start from: an open UDP socket on the loopback of a namespace, and a batch of one
// datagram.
import { release } from 'node:os'
import { type OpenUdpSocket, openUdpSocket } from '../../dataplane/io/linux/udp-socket.ts'
import { SendBatch } from '../../dataplane/io/send-batch.ts'
import type { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { FAR, UNDERLAY_PORT } from '../compliance/underlay-socket.ts'
import { inNetwork } from './namespace-socket.ts'
import { ip } from './packets.ts'

/** A socket on the underlay port of `address`; whoever opens it closes it. */
export function openOnLoopback(namespace: string, address: string): OpenUdpSocket {
  const result = inNetwork(namespace, () => openUdpSocket(ip(address), UNDERLAY_PORT, release()))
  if ('errno' in result) throw new Error(`${result.step}: errno ${result.errno}`)
  return result
}

/** One datagram to the far socket; an empty one has no iovec. */
export function oneDatagram(memory: PacketMemory, datagram: Uint8Array): SendBatch {
  const batch = new SendBatch(memory, 1)
  const at = memory.reserve(Math.max(datagram.length, 1))
  memory.bytes.set(datagram, at)
  batch.frame(ip(FAR), UNDERLAY_PORT, 0, datagram.length, true)
  if (datagram.length > 0) batch.add(at, datagram.length)
  return batch
}
