// A device behind a gate: open, it is the device itself; shut, nothing is read and everything stays where it is.
import { describe, expect, test } from 'vitest'
import { gather, MemoryDevice } from '../../../../dataplane/io/memory/memory-device.ts'
import { GatedDevice } from '../../../../dataplane/io/node/gated-device.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { packetDeviceCompliance, writePieces } from '../../../compliance/packet-device.ts'
import { toWritten, type Written } from '../../../support/engine-pair.ts'
import { countingBytes, fromTun, udpPacket } from '../../../support/packets.ts'
import { resplit } from '../../../support/resplit.ts'

const UDP_HEADERS_BYTES = 28

function harness(isShut: () => boolean = () => false) {
  const memory = new PacketMemory(1024 * 1024)
  const written: Written[] = []
  const behind = new MemoryDevice(memory, (iovecs, count) => {
    written.push(toWritten(gather(memory, iovecs, count)))
    return 0
  })
  return {
    memory,
    device: new GatedDevice(behind, isShut),
    hostSends: async (packet: Uint8Array) => behind.queue(fromTun(packet)),
    hostReceives: async () => written.flatMap(resplit).map((packet) => packet.slice(UDP_HEADERS_BYTES)),
    setUp: (up: boolean) => {
      behind.isUp = up
    },
  }
}

describe('a device behind an open gate', () => packetDeviceCompliance(() => harness()))

test('a shut gate lets nothing be read, and everything be written', async () => {
  let shut = true
  const one = harness(() => shut)
  const packet = udpPacket({ payload: countingBytes(40) })
  await one.hostSends(packet)
  const at = one.memory.reserve(2048)
  expect(one.device.read(at, 2048)).toBe(0)
  expect(writePieces(one, fromTun(packet))).toBe(fromTun(packet).length)
  shut = false
  expect(one.device.read(at, 2048)).toBe(fromTun(packet).length)
  expect(one.memory.bytes.slice(at, at + fromTun(packet).length)).toEqual(fromTun(packet))
})
