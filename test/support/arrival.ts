// Frames that arrive at node B from node A, and what B writes into its TUN for them.
import { expect } from 'vitest'
import { type EnginePair, enginePair, NODE_A, type NodeOptions, type Written } from './engine-pair.ts'
import { ip } from './packets.ts'
import { train, vxlanFrame } from './vxlan-frame.ts'

export interface Arrival extends EnginePair {
  readonly written: readonly Written[]
}

/** How a datagram came: who sent it, and what the kernel tells about it. */
export interface DatagramOptions {
  readonly from?: string
  readonly tos?: number
  readonly segmentSize?: number
}

/** Datagrams as they are, one by one, at a fresh node B. Its books must balance afterwards. */
export function receiveDatagrams(
  datagrams: readonly Uint8Array[],
  { from = NODE_A.underlay, ...facts }: DatagramOptions = {},
  options: NodeOptions = {},
): Arrival {
  const pair = enginePair(options)
  for (const datagram of datagrams) pair.b.socket.deliver(datagram, ip(from), facts)
  const written = pair.b.receive()
  expect(pair.b.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return { ...pair, written }
}

/** Inner packets, each in a datagram of its own; up to 16 of them are one batch. */
export function receivePackets(packets: readonly Uint8Array[], options: NodeOptions = {}): Arrival {
  return receiveDatagrams(
    packets.map((packet) => frameFor(packet, options)),
    {},
    options,
  )
}

/** Inner packets of one size (the last perhaps shorter) as one merged train. */
export function receiveTrain(packets: readonly Uint8Array[], options: NodeOptions = {}): Arrival {
  const { bytes, segmentSize } = train(packets.map((packet) => frameFor(packet, options)))
  return receiveDatagrams([bytes], { segmentSize }, options)
}

function frameFor(packet: Uint8Array, { encapsulation = 'vxlan' }: NodeOptions): Uint8Array {
  return encapsulation === 'vxlan' ? vxlanFrame(packet) : packet
}
