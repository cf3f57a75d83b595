// Segmented sends that the kernel refuses at work: what was in hand leaves frame by frame, all of it and in order, and
// what does not work is not tried for ever.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { Counters } from '../../../../dataplane/engine/counters.ts'
import { countSent } from '../../../../dataplane/engine/sent-counts.ts'
import { EAGAIN, EHOSTUNREACH, EINTR, EINVAL, EIO, EMSGSIZE, ENOBUFS, EPERM } from '../../../../dataplane/io/errno.ts'
import { UdpSocket } from '../../../../dataplane/io/linux/udp-socket.ts'
import { SendBatch } from '../../../../dataplane/io/send-batch.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { countingBytes } from '../../../support/packets.ts'
import { scripted } from '../../../support/scripted-libc.ts'

vi.mock('../../../../dataplane/io/linux/libc.ts', async () => {
  const { libcModule } = await import('../../../support/scripted-libc.ts')
  return libcModule
})

const PEER = 0xc0000202
const ENCAP_BYTES = 22
const FRAME_BYTES = 100
/** Frames of a message: all of one size, the last one shorter. */
const FRAMES = 5
const FRAME_SIZES = [100, 100, 100, 100, 40]

// struct mmsghdr, in the words of sendmmsg(2).
const HEADER_BYTES = 64
const NAME = 0
const IOV = 16
const IOV_LENGTH = 24
const CONTROL_LENGTH = 40

/** A datagram as the kernel saw it. */
interface Seen {
  readonly bytes: Uint8Array
  readonly port: number
  readonly controlBytes: number
}

let memory: PacketMemory
let socket: UdpSocket
let batch: SendBatch
let seen: Seen[]

beforeEach(() => {
  memory = new PacketMemory(1024 * 1024)
  socket = new UdpSocket(memory, { fd: 7, maxSegments: 63 })
  batch = new SendBatch(memory, 63)
  seen = []
  scripted.reset()
  scripted.watch((name, [, at], sent) => {
    if (name !== 'sendmmsg') return
    for (let index = 0; index < sent; index++) seen.push(messageAt(at! + index * HEADER_BYTES))
  })
})

function messageAt(header: number): Seen {
  const { view } = memory
  const iovecs = view.getUint32(header + IOV, true)
  const pieces = Array.from({ length: view.getUint32(header + IOV_LENGTH, true) }, (_, piece) => {
    const at = memory.iovecAt(iovecs, piece)
    return memory.bytes.slice(at, at + memory.iovecLength(iovecs, piece))
  })
  return {
    bytes: new Uint8Array(Buffer.concat(pieces)),
    port: view.getUint16(view.getUint32(header + NAME, true) + 2),
    controlBytes: view.getUint32(header + CONTROL_LENGTH, true),
  }
}

/**
 * A message of {@link FRAMES} frames to that port, each in two pieces (or all in a row), and then all that the batch
 * has is sent.
 */
function message(port: number, layout: 'pieces' | 'row'): Uint8Array[] {
  const frames = FRAME_SIZES.map((size, n) => countingBytes(size, port + n))
  const at = memory.reserve(2 * FRAMES * FRAME_BYTES)
  frames.forEach((frame, n) => {
    const head = layout === 'row' ? at + n * FRAME_BYTES : at + n * 2 * FRAME_BYTES
    batch.frame(PEER, port, 0, frame.length, false)
    if (layout === 'row') {
      memory.bytes.set(frame, head)
      batch.add(head, frame.length)
      return
    }
    const payload = head + FRAME_BYTES
    memory.bytes.set(frame.subarray(0, 30), head)
    memory.bytes.set(frame.subarray(30), payload)
    batch.addPair(head, 30, payload, frame.length - 30)
  })
  return frames
}

/** Sends what the batch has, counts it, and clears it. Books must balance. */
function send(): { readonly errnos: number[]; readonly counters: Counters } {
  const counters = new Counters()
  socket.send(batch)
  const errnos = [...batch.errno.subarray(0, batch.count)]
  countSent(counters, batch, ENCAP_BYTES)
  expect(counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  batch.clear()
  return { errnos, counters }
}

/** Refuses the next message as a segmented send, then takes its frames. */
const refuseSegments = (errno: number): void => scripted.give('sendmmsg', -errno, FRAMES)

describe.each(['pieces', 'row'] as const)('a segmented send that is refused, its frames lying in %s', (layout) => {
  test.each([
    ['EIO', EIO],
    ['EINVAL', EINVAL],
    ['EMSGSIZE', EMSGSIZE],
  ])('with %s leaves frame by frame: none lost, order kept', (_, errno) => {
    const first = message(1, layout)
    const second = message(2, layout)
    const third = message(3, layout)
    scripted.give('sendmmsg', 1)
    refuseSegments(errno)
    scripted.give('sendmmsg', errno === EIO ? FRAMES : 1)
    const { errnos, counters } = send()
    expect(errnos).toEqual([0, 0, 0])
    const joined = (frames: Uint8Array[]) => [...Buffer.concat(frames)]
    const last = errno === EIO ? third : [new Uint8Array(Buffer.concat(third))]
    expect(seen.map(({ bytes }) => [...bytes])).toEqual([joined(first), ...[...second, ...last].map((f) => [...f])])
    expect(seen.map(({ port }) => port)).toEqual([1, ...second.map(() => 2), ...last.map(() => 3)])
    expect(counters.get('outbound.packets.passed')).toBe(3 * FRAMES)
  })

  test('sends frames without asking for segments', () => {
    message(1, layout)
    refuseSegments(EIO)
    send()
    expect(seen.map(({ controlBytes }) => controlBytes)).toEqual(FRAME_SIZES.map(() => 0))
  })
})

describe('how long segmented sends are tried', () => {
  const trySegments = (errno: number) => {
    message(1, 'pieces')
    refuseSegments(errno)
    return send().counters
  }

  test('EIO ends them at once, and it is counted once', () => {
    expect(trySegments(EIO).get('downgrade.udp-gso')).toBe(1)
    message(1, 'pieces')
    scripted.give('sendmmsg', FRAMES)
    const { counters } = send()
    expect(counters.get('downgrade.udp-gso')).toBe(0)
    expect(counters.get('outbound.messages.resent')).toBe(1)
  })

  test('EINVAL ends them at the third time', () => {
    const given = [1, 2, 3].map(() => trySegments(EINVAL).get('downgrade.udp-gso'))
    expect(given).toEqual([0, 0, 1])
    scripted.made.length = 0
    message(1, 'pieces')
    scripted.give('sendmmsg', FRAMES)
    send()
    expect(scripted.made).toEqual(['sendmmsg'])
  })

  test('EMSGSIZE is about one path and never ends them', () => {
    const given = Array.from({ length: 10 }, () => trySegments(EMSGSIZE).get('downgrade.udp-gso'))
    expect(given.every((count) => count === 0)).toBe(true)
    message(1, 'pieces')
    scripted.give('sendmmsg', 1)
    expect(send().counters.get('outbound.messages.resent')).toBe(0)
  })

  test('EINVAL of an older kernel that single frames explain by their size is about one path as well', () => {
    for (let round = 0; round < 4; round++) {
      message(1, 'pieces')
      const tooLarge = FRAME_SIZES.slice(1).map(() => -EMSGSIZE)
      scripted.give('sendmmsg', -EINVAL, ...tooLarge, 1)
      const { errnos, counters } = send()
      expect(errnos).toEqual([EMSGSIZE])
      expect(counters.dropped('outbound', 'tx-too-big').packets).toBe(FRAMES - 1)
      expect(counters.get('downgrade.udp-gso')).toBe(0)
    }
  })

  test('and they are tried again once the way out is another one', () => {
    for (let round = 0; round < 3; round++) trySegments(EINVAL)
    socket.forgetRefusals()
    message(1, 'pieces')
    seen.length = 0
    scripted.give('sendmmsg', 1)
    expect(send().errnos).toEqual([0])
    expect(seen.map(({ bytes }) => bytes.length)).toEqual([FRAME_SIZES.reduce((sum, size) => sum + size)])
  })

  test('a refusal that single frames meet as well says nothing of segments', () => {
    for (let round = 0; round < 4; round++) {
      message(1, 'pieces')
      scripted.give('sendmmsg', ...Array.from({ length: 1 + FRAMES }, () => -EINVAL))
      const { errnos, counters } = send()
      expect(errnos).toEqual([EINVAL])
      expect(counters.dropped('outbound', 'tx-error').packets).toBe(FRAMES)
      expect(counters.get('downgrade.udp-gso')).toBe(0)
    }
  })

  test('once ended, single datagrams still share a call', () => {
    trySegments(EIO)
    for (const port of [1, 2, 3]) {
      batch.frame(PEER, port, 0, FRAME_BYTES, true)
      batch.add(4096, FRAME_BYTES)
    }
    message(4, 'row')
    scripted.made.length = 0
    scripted.give('sendmmsg', 3, FRAMES)
    expect(send().errnos).toEqual([0, 0, 0, 0])
    expect(scripted.made).toEqual(['sendmmsg', 'sendmmsg'])
  })
})

describe('frames that leave one by one', () => {
  test('share calls, and go on where the kernel stopped', () => {
    message(1, 'pieces')
    scripted.give('sendmmsg', -EIO, 2, -EINTR, 3)
    expect(send().errnos).toEqual([0])
    expect(seen.map(({ bytes }) => bytes.length)).toEqual(FRAME_SIZES)
  })

  test('that fail are counted one by one, and the others pass', () => {
    message(1, 'pieces')
    scripted.give('sendmmsg', -EIO, 1, -EHOSTUNREACH, 3)
    const { errnos, counters } = send()
    expect(errnos).toEqual([EHOSTUNREACH])
    expect(counters.get('outbound.packets.passed')).toBe(4)
    expect(counters.get('outbound.messages.sent')).toBe(1)
    expect(counters.dropped('outbound', 'tx-unreachable')).toEqual({ packets: 1, bytes: FRAME_BYTES - ENCAP_BYTES })
  })

  test('wait once for room, as whole messages do', () => {
    message(1, 'pieces')
    scripted.give('sendmmsg', -EIO, -EAGAIN, FRAMES)
    scripted.give('poll', 1)
    expect(send().errnos).toEqual([0])
  })

  test('of more than one preparation keep their order', () => {
    const many = new SendBatch(memory, 127)
    const at = memory.reserve(100 * 10)
    for (let n = 0; n < 100; n++) {
      memory.bytes.fill(n, at + n * 10, at + n * 10 + 10)
      many.frame(PEER, 1, 0, 10, false)
      many.add(at + n * 10, 10)
    }
    scripted.give('sendmmsg', -EIO, 64, 36)
    socket.send(many)
    expect(many.errno[0]).toBe(0)
    expect(seen.map(({ bytes }) => bytes[0])).toEqual(Array.from({ length: 100 }, (_, n) => n))
  })
})

describe('errors of a segmented send that are no refusal', () => {
  test.each([
    ['EPERM', EPERM, [-EPERM], 'tx-unreachable'],
    ['EHOSTUNREACH', EHOSTUNREACH, [-EHOSTUNREACH], 'tx-unreachable'],
    ['ENOBUFS', ENOBUFS, [-ENOBUFS, -ENOBUFS, -ENOBUFS, -ENOBUFS], 'tx-nobufs'],
  ] as const)('%s drops the message as a whole', (_, errno, results, reason) => {
    message(1, 'pieces')
    scripted.give('sendmmsg', ...results)
    const { errnos, counters } = send()
    expect(errnos).toEqual([errno])
    expect(counters.dropped('outbound', reason).packets).toBe(FRAMES)
    expect(seen).toEqual([])
  })
})
