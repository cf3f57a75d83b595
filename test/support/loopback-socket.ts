// What tests of underlay sockets start from: an open UDP socket on the loopback of a namespace, and a batch of one
// datagram.
import { release } from 'node:os'
import { type OpenUdpSocket, openUdpSocket } from '../../dataplane/io/linux/udp-open.ts'
import { SendBatch } from '../../dataplane/io/send-batch.ts'
import type { SocketAddresses } from '../../dataplane/io/socket-addresses.ts'
import type { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { formatIpv6 } from '../../dataplane/wire/address.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import { FAR, NEAR, UNDERLAY_PORT } from '../compliance/underlay-socket.ts'
import { inNetwork } from './namespace-socket.ts'
import { ip as iproute } from './own-namespace.ts'
import { ip } from './packets.ts'

/** IPv6 addresses for the suite's IPv4 ones: the number of each is what it ends in. */
const WIDE_PREFIX = 0xfd00n << 112n
const WORDS = 4

/** What a socket of IPv6 asks in these tests: the peers of the suite by their IPv4 addresses. */
export const WIDE_LOOPBACK: SocketAddresses = {
  numberOf: (view, at) => view.getInt32(at + (WORDS - 1) * 4),
  write: (number, view, at) => ipv6.writeAddress(view, at, wideOf(number)),
}

function wideOf(number: number): bigint {
  return WIDE_PREFIX | BigInt(number >>> 0)
}

/** The address by which a socket of that family knows the suite's `address`. */
export function loopbackAddress(address: string, wide: boolean): number | bigint {
  return wide ? wideOf(ip(address)) : ip(address)
}

/** Gives a namespace the IPv6 addresses of the suite, which the kernel takes into use a moment later (net/ipv6/addrconf.c). */
export function addWideAddresses(namespace: string): void {
  const limit = performance.now() + 10_000
  for (const address of [NEAR, FAR]) {
    const text = formatIpv6(wideOf(ip(address)))
    iproute('-n', namespace, 'address', 'add', `${text}/128`, 'dev', 'lo', 'nodad')
    const isInUse = () => iproute('-n', namespace, '-6', 'route', 'show', 'table', 'local', text) !== ''
    while (!isInUse()) if (performance.now() > limit) throw new Error(`${text} is not taken into use`)
  }
}

/** A socket on the underlay port of `address`; whoever opens it closes it. */
export function openOnLoopback(namespace: string, address: string, wide = false): OpenUdpSocket {
  const open = () => openUdpSocket(loopbackAddress(address, wide), UNDERLAY_PORT, release())
  const result = inNetwork(namespace, open)
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
