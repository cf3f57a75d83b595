// The UDP socket's stand-in in memory: the compliance suite, merging and not, and full queues.
import { describe, expect, test } from 'vitest'
import { EAGAIN } from '../../../../dataplane/io/errno.ts'
import { MemoryUnderlay } from '../../../../dataplane/io/memory/memory-socket.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { Exchange, FAR, NEAR, UNDERLAY_PORT, underlaySocketCompliance } from '../../../compliance/underlay-socket.ts'
import { countingBytes, ip } from '../../../support/packets.ts'

const MEMORY_BYTES = 24 * 1024 * 1024

function harness(merges: boolean, maxSegments = 63, queueLength = 64) {
  const memory = new PacketMemory(MEMORY_BYTES)
  const underlay = new MemoryUnderlay(memory)
  const options = { port: UNDERLAY_PORT, receivesMerged: merges, maxSegments, queueLength }
  const near = underlay.open({ ...options, address: ip(NEAR) })
  const far = underlay.open({ ...options, address: ip(FAR) })
  const deliver = (datagram: Uint8Array) => far.deliver(datagram, ip(NEAR))
  return { memory, near, far, merges, deliver }
}

describe('a memory socket', () => underlaySocketCompliance(() => harness(true)))
describe('a memory socket that receives one by one', () => underlaySocketCompliance(() => harness(false)))
describe('a memory socket that sends one by one', () => underlaySocketCompliance(() => harness(true, 1)))

describe('a full queue', () => {
  test('is told to the sender, who loses just what did not fit', () => {
    const exchange = new Exchange(harness(true, 63, 2))
    const frames = [0, 1, 2].map((n) => ({ bytes: countingBytes(50, n), alone: true }))
    expect(exchange.send(...frames)).toEqual([0, 0, EAGAIN])
    expect(exchange.receive().map(({ bytes }) => bytes)).toEqual([countingBytes(50), countingBytes(50, 1)])
    expect(exchange.send(frames[2]!)).toEqual([0])
  })

  test('counts what was lost on delivery', () => {
    const sockets = harness(true, 63, 2)
    const exchange = new Exchange(sockets)
    for (let n = 0; n < 5; n++) sockets.deliver(countingBytes(9, n))
    expect(exchange.receive()).toHaveLength(2)
    expect(exchange.slots.overflowed).toBe(3)
    expect(sockets.far.waiting).toBe(0)
  })
})
