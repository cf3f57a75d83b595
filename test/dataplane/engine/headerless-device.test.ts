// A device without virtio-net headers: what a kernel would make of the header is made before it.
import { describe, expect, test } from 'vitest'
import { HeaderlessDevice } from '../../../dataplane/engine/headerless-device.ts'
import { EINVAL, EIO } from '../../../dataplane/io/errno.ts'
import { gather, MemoryDevice } from '../../../dataplane/io/memory/memory-device.ts'
import { PacketMemory } from '../../../dataplane/memory/packet-memory.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as udp from '../../../dataplane/wire/udp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { packetDeviceCompliance, writePieces } from '../../compliance/packet-device.ts'
import { toWritten } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  IPV6,
  tcpPacket,
  type UdpOptions,
  udpPacket,
  type VnetOptions,
} from '../../support/packets.ts'
import { resplit } from '../../support/resplit.ts'

const MEMORY_BYTES = 2 * 1024 * 1024
const UDP_HEADERS_BYTES = 28
const { FLAG_ACK, FLAG_PSH, FLAG_FIN } = tcp

function harness(errnoOf: (write: number) => number = () => 0) {
  const memory = new PacketMemory(MEMORY_BYTES)
  const written: Uint8Array[] = []
  let writes = 0
  const bare = new MemoryDevice(memory, (iovecs, count) => {
    const errno = errnoOf(writes++)
    if (errno === 0) written.push(gather(memory, iovecs, count))
    return errno
  })
  return {
    memory,
    written,
    device: new HeaderlessDevice(memory, bare),
    hostSends: async (packet: Uint8Array) => bare.queue(packet),
    hostReceives: async () => written.map((packet) => packet.slice(UDP_HEADERS_BYTES)),
    setUp: (up: boolean) => {
      bare.isUp = up
    },
  }
}

describe('a device without headers', () => packetDeviceCompliance(() => harness()))

test('a packet whose header says nothing goes as it lies', () => {
  const { written, ...rest } = harness()
  const packet = udpPacket({ payload: countingBytes(99) })
  expect(writePieces(rest, fromTun(packet), [virtioNet.HEADER_LEN, 28])).toBe(virtioNet.HEADER_LEN + packet.length)
  expect(written).toEqual([packet])
})

const openUdp: VnetOptions = { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 20, checksumOffset: 6 }
const openTcp: VnetOptions = { ...openUdp, checksumOffset: 16 }

test('an open checksum is completed', () => {
  const { written, ...rest } = harness()
  const payload = countingBytes(33)
  writePieces(rest, fromTun(udpPacket({ payload, checksum: 'partial' }), openUdp), [virtioNet.HEADER_LEN])
  writePieces(rest, fromTun(tcpPacket({ payload, checksum: 'partial' }), openTcp), [virtioNet.HEADER_LEN])
  expect(written).toEqual([udpPacket({ payload }), tcpPacket({ payload })])
})

test('an open checksum that is zero when completed is sent as 0xffff (RFC 768)', () => {
  const { written, ...rest } = harness()
  // The two bytes behind the ports make up for everything else that is summed.
  const zeroed = (filler: number): UdpOptions => ({ payload: Uint8Array.of(filler >> 8, filler & 0xff) })
  const plain = udpPacket(zeroed(0))
  const filler = new DataView(plain.buffer).getUint16(20 + udp.CHECKSUM_OFFSET)
  writePieces(rest, fromTun(udpPacket({ ...zeroed(filler), checksum: 'partial' }), openUdp), [virtioNet.HEADER_LEN])
  expect(new DataView(written[0]!.buffer).getUint16(20 + udp.CHECKSUM_OFFSET)).toBe(0xffff)
})

describe('a super-packet is cut as a kernel cuts it', () => {
  const payload = countingBytes(2500)
  const fin = FLAG_ACK | FLAG_PSH | FLAG_FIN
  const gso = (gsoType: number, headerLength: number, ipBytes: number, checksumOffset: number): VnetOptions => ({
    ...{ flags: virtioNet.FLAG_NEEDS_CSUM, gsoType, gsoSize: 1000, headerLength },
    ...{ checksumStart: ipBytes, checksumOffset },
  })
  test.each<[string, Uint8Array, VnetOptions]>([
    ['TCP', tcpPacket({ payload, flags: fin, checksum: 'partial' }), gso(virtioNet.GSO_TCPV4, 40, 20, 16)],
    ['UDP', udpPacket({ payload, checksum: 'partial' }), gso(virtioNet.GSO_UDP_L4, 28, 20, 6)],
    ['TCPv6', tcpPacket({ ...IPV6, payload, checksum: 'partial' }), gso(virtioNet.GSO_TCPV6, 60, 40, 16)],
    ['UDPv6', udpPacket({ ...IPV6, payload, checksum: 'partial' }), gso(virtioNet.GSO_UDP_L4, 48, 40, 6)],
  ])('%s', (_, packet, vnet) => {
    const { written, ...rest } = harness()
    const bytes = fromTun(packet, vnet)
    expect(writePieces(rest, bytes, [virtioNet.HEADER_LEN, 70, 900])).toBe(bytes.length)
    expect(written).toEqual(resplit(toWritten(bytes)))
    expect(written).toHaveLength(3)
  })

  test('and what one piece meets is told, after the others went', () => {
    const { written, ...rest } = harness((write) => (write === 1 ? EIO : 0))
    const packet = udpPacket({ payload, checksum: 'partial' })
    expect(writePieces(rest, fromTun(packet, gso(virtioNet.GSO_UDP_L4, 28, 20, 6)))).toBe(-EIO)
    expect(written).toHaveLength(2)
  })

  test.each<[string, Uint8Array, VnetOptions]>([
    ['no segment size', udpPacket({ payload }), { ...gso(virtioNet.GSO_UDP_L4, 28, 20, 6), gsoSize: 0 }],
    ['no open checksum', udpPacket({ payload }), { ...gso(virtioNet.GSO_UDP_L4, 28, 20, 6), flags: 0 }],
    ['a type of another protocol', udpPacket({ payload }), gso(virtioNet.GSO_TCPV4, 28, 20, 6)],
    ['a type of the other family', tcpPacket({ payload }), gso(virtioNet.GSO_TCPV6, 40, 20, 16)],
    ['no payload', udpPacket({ payload: new Uint8Array(0) }), gso(virtioNet.GSO_UDP_L4, 28, 20, 6)],
    ['a checksum beyond the packet', udpPacket({ payload }), { ...openUdp, checksumStart: 2600 }],
    ['a packet that is none', countingBytes(50), gso(virtioNet.GSO_UDP_L4, 28, 20, 6)],
  ])('refused with EINVAL, and nothing written: %s', (_, packet, vnet) => {
    const { written, ...rest } = harness()
    expect(writePieces(rest, fromTun(packet, vnet))).toBe(-EINVAL)
    expect(written).toEqual([])
  })
})
