// What every packet device must do, TUN and stand-in alike. Each implementation runs this suite from its own test file.
import { beforeEach, describe, expect, test } from 'vitest'
import { EINVAL, EIO } from '../../dataplane/io/errno.ts'
import type { PacketDevice } from '../../dataplane/io/packet-device.ts'
import { IOVEC_BYTES, type PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import { countingBytes, fromTun, udpPacket } from '../support/packets.ts'

/** A device that is up, the host behind it, and the memory that both sides of the interface use. */
export interface DeviceHarness {
  readonly memory: PacketMemory
  readonly device: PacketDevice
  /** Puts a packet into the device from the host's side: reads give it. */
  hostSends(packet: Uint8Array): Promise<void>
  /** UDP payloads that have reached {@link HOST} on {@link HOST_PORT}, once so many are there. */
  hostReceives(count: number): Promise<Uint8Array[]>
  setUp(up: boolean): void
}

export const HOST = '10.244.1.2'
export const HOST_PORT = 5000
export const REMOTE = '10.244.2.3'

const CAPACITY = virtioNet.HEADER_LEN + 65535
const outgoing = (bytes: number, n = 0): Uint8Array =>
  udpPacket({ source: HOST, destination: REMOTE, payload: countingBytes(bytes, n), identification: n + 1 })

/** A datagram for the host's socket. */
const incoming = (payload: Uint8Array): Uint8Array =>
  udpPacket({ source: REMOTE, destination: HOST, destinationPort: HOST_PORT, payload })

/** Writes bytes gathered from pieces of these sizes (all by default), copied to places apart from each other. */
export function writePieces(harness: DeviceHarness, bytes: Uint8Array, sizes: readonly number[] = []): number {
  const { memory, device } = harness
  const iovecs = memory.reserve((sizes.length + 1) * IOVEC_BYTES)
  let done = 0
  let count = 0
  for (const size of [...sizes, bytes.length]) {
    const piece = bytes.slice(done, done + size)
    if (piece.length === 0 && count > 0) break
    const at = memory.reserve(Math.max(piece.length, 1))
    memory.bytes.set(piece, at)
    memory.setIovec(iovecs, count++, at, piece.length)
    done += piece.length
  }
  return device.write(iovecs, count)
}

export function packetDeviceCompliance(make: () => DeviceHarness | Promise<DeviceHarness>): void {
  let harness: DeviceHarness
  beforeEach(async () => {
    harness = await make()
  })
  describe('reading', () => readingRules(() => harness))
  describe('writing', () => writingRules(() => harness))
}

function readingRules(harness: () => DeviceHarness): void {
  test('gives 0 while nothing is there', () => {
    const { memory, device } = harness()
    expect(device.read(memory.reserve(CAPACITY), CAPACITY)).toBe(0)
  })

  test('gives one whole packet a call, in order, behind its virtio-net header', async () => {
    const { memory, device, hostSends } = harness()
    const packets = [0, 1, 2, 3].map((n) => outgoing([0, 1, 1400, 99][n]!, n))
    for (const packet of packets) await hostSends(packet)
    const at = memory.reserve(CAPACITY)
    for (const packet of packets) {
      const expected = fromTun(packet)
      expect(device.read(at, CAPACITY)).toBe(expected.length)
      expect(memory.bytes.slice(at, at + expected.length)).toEqual(expected)
    }
    expect(device.read(at, CAPACITY)).toBe(0)
  })

  test('touches no byte before or behind what it gives', async () => {
    const { memory, device, hostSends } = harness()
    const at = memory.reserve(4096) + 64
    memory.bytes.fill(0xa5, at - 64, at + 1024)
    await hostSends(outgoing(100))
    const read = device.read(at, 1024)
    expect(memory.bytes.slice(at - 64, at).every((byte) => byte === 0xa5)).toBe(true)
    expect(memory.bytes.slice(at + read, at + 1024).every((byte) => byte === 0xa5)).toBe(true)
  })

  test('cuts a packet that is longer than the capacity, and goes on with the next one', async () => {
    const { memory, device, hostSends } = harness()
    await hostSends(outgoing(500))
    await hostSends(outgoing(20, 1))
    const at = memory.reserve(4096)
    expect(device.read(at, 100)).toBe(100)
    expect(memory.bytes.slice(at, at + 100)).toEqual(fromTun(outgoing(500)).slice(0, 100))
    expect(device.read(at, 4096)).toBe(virtioNet.HEADER_LEN + 48)
  })
}

function writingRules(harness: () => DeviceHarness): void {
  test('gives the bytes written, header included, and the host has the packet', async () => {
    const bytes = fromTun(incoming(countingBytes(300)))
    expect(writePieces(harness(), bytes)).toBe(bytes.length)
    expect(await harness().hostReceives(1)).toEqual([countingBytes(300)])
  })

  test('gathers a packet from pieces that lie apart', async () => {
    const bytes = fromTun(incoming(countingBytes(1300)))
    expect(writePieces(harness(), bytes, [10, 28, 1, 7, 700])).toBe(bytes.length)
    expect(await harness().hostReceives(1)).toEqual([countingBytes(1300)])
  })

  test('keeps the order of packets', async () => {
    const payloads = Array.from({ length: 20 }, (_, n) => countingBytes(50 + n, n))
    for (const payload of payloads) writePieces(harness(), fromTun(incoming(payload)))
    expect(await harness().hostReceives(20)).toEqual(payloads)
  })

  test('takes super-packets apart for the host', async () => {
    const packet = incoming(countingBytes(1000))
    // Checksum open: the field holds what a kernel next door would leave in it.
    const open = udpPacket({
      ...{ source: REMOTE, destination: HOST, destinationPort: HOST_PORT },
      ...{ payload: countingBytes(1000), checksum: 'partial' },
    })
    expect(open).toHaveLength(packet.length)
    const offload = { gsoType: virtioNet.GSO_UDP_L4, gsoSize: 400, headerLength: 28 }
    const checksum = { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 20, checksumOffset: 6 }
    expect(writePieces(harness(), fromTun(open, { ...offload, ...checksum }))).toBe(10 + packet.length)
    const received = await harness().hostReceives(3)
    expect(received.map((payload) => payload.length)).toEqual([400, 400, 200])
    expect(Buffer.concat(received)).toEqual(Buffer.from(countingBytes(1000)))
  })

  test('is done with the bytes when it returns', async () => {
    const { memory, device, hostReceives } = harness()
    const bytes = fromTun(incoming(countingBytes(200)))
    const at = memory.reserve(bytes.length)
    const iovec = memory.reserve(IOVEC_BYTES)
    memory.setIovec(iovec, 0, at, bytes.length)
    memory.bytes.set(bytes, at)
    device.write(iovec, 1)
    memory.bytes.fill(0, at, at + bytes.length)
    expect(await hostReceives(1)).toEqual([countingBytes(200)])
  })

  test('refuses a virtio-net header without a packet with EINVAL', () => {
    expect(writePieces(harness(), new Uint8Array(virtioNet.HEADER_LEN))).toBe(-EINVAL)
  })

  test('fails with EIO while the device is down, and works again when it is up', async () => {
    const bytes = fromTun(incoming(countingBytes(30)))
    harness().setUp(false)
    expect(writePieces(harness(), bytes)).toBe(-EIO)
    harness().setUp(true)
    expect(writePieces(harness(), bytes)).toBe(bytes.length)
    expect(await harness().hostReceives(1)).toEqual([countingBytes(30)])
  })
}
