// The TUN's stand-in in memory: the compliance suite, and what it has besides: replay and refusals on demand.
import { describe, expect, test } from 'vitest'
import { gather, MemoryDevice } from '../../../../dataplane/io/memory/memory-device.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { packetDeviceCompliance, writePieces } from '../../../compliance/packet-device.ts'
import { toWritten, type Written } from '../../../support/engine-pair.ts'
import { countingBytes, fromTun, udpPacket } from '../../../support/packets.ts'
import { resplit } from '../../../support/resplit.ts'

const MEMORY_BYTES = 1024 * 1024
const UDP_HEADERS_BYTES = 28

function harness() {
  const memory = new PacketMemory(MEMORY_BYTES)
  const written: Written[] = []
  const device = new MemoryDevice(memory, (iovecs, count) => {
    written.push(toWritten(gather(memory, iovecs, count)))
    return 0
  })
  return {
    memory,
    device,
    hostSends: async (packet: Uint8Array) => device.queue(fromTun(packet)),
    hostReceives: async () => written.flatMap(resplit).map((packet) => packet.slice(UDP_HEADERS_BYTES)),
    setUp: (up: boolean) => {
      device.isUp = up
    },
  }
}

describe('a memory device', () => packetDeviceCompliance(harness))

describe('a memory device besides', () => {
  test('replays a packet that lies in packet memory, so many times', () => {
    const { memory, device } = harness()
    const packet = fromTun(udpPacket({ payload: countingBytes(40) }))
    const from = memory.reserve(packet.length)
    memory.bytes.set(packet, from)
    device.replay(from, packet.length, 3)
    const at = memory.reserve(2048)
    for (let n = 0; n < 3; n++) {
      memory.bytes.fill(0, at, at + 2048)
      expect(device.read(at, 2048)).toBe(packet.length)
      expect(memory.bytes.slice(at, at + packet.length)).toEqual(packet)
    }
    expect(device.read(at, 2048)).toBe(0)
  })

  test('gives the errno that its listener says', () => {
    const memory = new PacketMemory(MEMORY_BYTES)
    const device = new MemoryDevice(memory, () => 11)
    const unused = { hostSends: async () => undefined, hostReceives: async () => [], setUp: () => undefined }
    expect(writePieces({ memory, device, ...unused }, fromTun(udpPacket()))).toBe(-11)
  })
})
