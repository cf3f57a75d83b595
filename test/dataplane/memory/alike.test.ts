// The kernel that counts how many frames of a train are alike, against its slow twin: trains of every kind that may be
// joined, whole, and with a byte or a field of some frame changed, checksums made right again or not.
import { describe, expect, it } from 'vitest'
import { PacketMemory } from '../../../dataplane/memory/packet-memory.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as udp from '../../../dataplane/wire/udp.ts'
import { alikeTwin } from '../../support/alike-twin.ts'
import { countingBytes, IPV6, type TcpOptions, tcpPacket, udpPacket, viewOf } from '../../support/packets.ts'
import { withChecksums } from '../../support/resplit.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { transportOf } from '../../support/transport-of.ts'

const memory = new PacketMemory(1 << 20)
const twin = alikeTwin(memory)
const base = memory.reserve(1 << 18)

interface Train {
  readonly frames: readonly Uint8Array[]
  readonly ipAt: number
  readonly ipBytes: number
  readonly headerBytes: number
  readonly length: number
}

const KINDS: readonly TcpOptions[] = [
  {},
  { fragmentWord: 0 },
  { tos: 2, ttl: 1 },
  { tcpOptions: countingBytes(12) },
  { tcpOptions: countingBytes(40) },
  IPV6,
  { ...IPV6, tos: 3, tcpOptions: countingBytes(12) },
]

/** Frames that follow each other in all ways; `ipAt` bytes in front of each packet, `padding` behind it. */
function trainOf(
  options: TcpOptions,
  isTcp: boolean,
  frames: number,
  ipAt: number,
  padding: number,
  bytes: number,
): Train {
  const first = { sequence: 0xffff_ff00, identification: 0xfffe, ...options }
  const packets = Array.from({ length: frames }, (_, index) => {
    const next = {
      ...first,
      identification: (first.identification + index) & 0xffff,
      payload: countingBytes(bytes, index),
    }
    return isTcp ? tcpPacket({ ...next, sequence: (first.sequence + index * bytes) >>> 0 }) : udpPacket(next)
  })
  const { ipBytes } = transportOf(packets[0]!)
  const transportBytes = isTcp ? tcp.getHeaderBytes(viewOf(packets[0]!), ipBytes) : 8
  const wrapped = packets.map((packet) => {
    const frame = new Uint8Array(ipAt + packet.length + padding)
    frame.set(countingBytes(ipAt))
    frame.set(packet, ipAt)
    return frame
  })
  return { frames: wrapped, ipAt, ipBytes, headerBytes: ipBytes + transportBytes, length: packets[0]!.length }
}

/** What the kernel says, which is what the twin says too. */
function countOf({ frames, ipAt, ipBytes, headerBytes, length }: Train, offset = 0): number {
  const stride = frames[0]!.length
  for (const [index, frame] of frames.entries()) memory.bytes.set(frame, base + offset + index * stride)
  const facts = [base + offset, stride, frames.length - 1, ipAt, ipBytes, headerBytes, length] as const
  const count = memory.countAlike(...facts)
  expect(count, Buffer.concat(frames).toString('hex')).toBe(twin(...facts))
  return count
}

const EVERY = KINDS.flatMap((options) => [true, false].map((isTcp) => ({ options, isTcp })))

describe('frames of a train', () => {
  it.each(EVERY)('are all alike when they follow each other: $options, TCP $isTcp', ({ options, isTcp }) => {
    for (const [ipAt, padding] of [
      [22, 0],
      [22, 6],
      [0, 0],
    ] as const) {
      for (const bytes of [1, 2, 63, 64, 65, 1000]) {
        expect(countOf(trainOf(options, isTcp, 5, ipAt, padding, bytes), bytes % 7)).toBe(4)
      }
    }
  })

  it('are none when none is asked for', () => {
    expect(countOf(trainOf({}, false, 1, 22, 0, 64))).toBe(0)
  })

  it.each(EVERY)('end before one with any byte changed: $options, TCP $isTcp', ({ options, isTcp }) => {
    const train = trainOf(options, isTcp, 3, 22, 4, 33)
    for (let at = 0; at < train.ipAt + train.length; at++) {
      for (const change of [0x01, 0x80, 0xff]) {
        const frames = train.frames.map((frame) => frame.slice())
        frames[2]![at]! ^= change
        expect(countOf({ ...train, frames }), `byte ${at}`).toBe(1)
      }
    }
    const frames = train.frames.map((frame) => frame.slice())
    frames[2]!.fill(0x5a, train.ipAt + train.length)
    expect(countOf({ ...train, frames }), 'padding').toBe(2)
  })

  it.each(EVERY)(
    'may differ in what the twin lets differ, checksums right: $options, TCP $isTcp',
    ({ options, isTcp }) => {
      const random = seededRandom(5)
      const train = trainOf(options, isTcp, 4, 22, 0, 40)
      const seen = new Set<number>()
      for (let headerByte = 0; headerByte < train.headerBytes; headerByte++) {
        const frames = train.frames.map((frame) => frame.slice())
        const changed = frames[2]!
        changed[train.ipAt + headerByte]! ^= 1 + Math.floor(random() * 255)
        const isWhole = headerByte !== 0 && headerByte !== 9 && headerByte !== 6
        if (isWhole) changed.set(withChecksums(changed.slice(train.ipAt)).subarray(0, train.length), train.ipAt)
        seen.add(countOf({ ...train, frames }))
      }
      // 3: only what is free was changed, or the checksum made right again.
      expect([...seen].sort()).toEqual([1, 3])
    },
  )

  it('end before a UDP datagram without a checksum, and before one that is left open', () => {
    for (const checksum of ['unused', 'partial'] as const) {
      const train = trainOf({}, false, 3, 22, 0, 64)
      const other = udpPacket({ payload: countingBytes(64, 2), checksum })
      const frames = train.frames.map((frame) => frame.slice())
      frames[2]!.set(other, train.ipAt)
      expect(countOf({ ...train, frames })).toBe(1)
    }
  })

  it('end before a UDP datagram without a checksum, also when none is what its sum comes to', () => {
    const train = trainOf({}, false, 3, 22, 0, 64)
    const frames = train.frames.map((frame) => frame.slice())
    const field = train.ipAt + train.ipBytes + udp.CHECKSUM_OFFSET
    const view = viewOf(frames[2]!)
    const last = frames[2]!.length - 2
    view.setUint16(last, 0)
    frames[2]!.set(withChecksums(frames[2]!.slice(train.ipAt)), train.ipAt)
    view.setUint16(last, view.getUint16(field))
    view.setUint16(field, 0xffff)
    expect(countOf({ ...train, frames })).toBe(2)
    view.setUint16(field, 0)
    expect(countOf({ ...train, frames })).toBe(1)
  })

  it.each([{}, IPV6])('end before one whose addresses have changed places, which no sum shows: %j', (options) => {
    const train = trainOf(options, false, 3, 22, 0, 64)
    const frames = train.frames.map((frame) => frame.slice())
    const source = train.ipAt + (train.ipBytes === 20 ? 12 : 8)
    const width = train.ipBytes === 20 ? 4 : 16
    const addresses = train.frames[2]!.slice(source, source + 2 * width)
    frames[2]!.set(addresses.subarray(width), source)
    frames[2]!.set(addresses.subarray(0, width), source + width)
    expect(countOf({ ...train, frames })).toBe(1)
  })

  it('end before an identification that does not follow, without DF', () => {
    const train = trainOf({ fragmentWord: 0 }, false, 3, 22, 0, 64)
    const frames = train.frames.map((frame) => frame.slice())
    const view = viewOf(frames[2]!)
    ipv4.setIdentification(view, train.ipAt, 5)
    ipv4.setChecksum(view, train.ipAt, 0)
    frames[2]!.set(withChecksums(frames[2]!.slice(train.ipAt)), train.ipAt)
    expect(countOf({ ...train, frames })).toBe(1)
  })
})
