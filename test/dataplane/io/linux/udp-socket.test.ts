// The UDP socket when the kernel is in trouble: what is tried again, how often, and that each message has its own fate.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import {
  EAGAIN,
  ECONNREFUSED,
  EHOSTUNREACH,
  EINTR,
  ENETUNREACH,
  ENOBUFS,
  EPERM,
} from '../../../../dataplane/io/errno.ts'
import { UdpSocket } from '../../../../dataplane/io/linux/udp-socket.ts'
import { ReceiveSlots } from '../../../../dataplane/io/receive-slots.ts'
import { SendBatch } from '../../../../dataplane/io/send-batch.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { scripted } from '../../../support/scripted-libc.ts'

vi.mock('../../../../dataplane/io/linux/libc.ts', async () => {
  const { libcModule } = await import('../../../support/scripted-libc.ts')
  return libcModule
})

const memory = new PacketMemory(1024 * 1024)
const socket = new UdpSocket(memory, { fd: 7, maxSegments: 63 })
const batch = new SendBatch(memory, 63)
const slots = new ReceiveSlots(memory, 2)

beforeEach(() => scripted.reset())

/** Sends so many messages; what became of each. */
function send(messages: number): number[] {
  batch.clear()
  for (let n = 0; n < messages; n++) {
    batch.frame(0xc0000202, 8472, 0, 100, true)
    batch.add(4096, 100)
  }
  socket.send(batch)
  return [...batch.errno.subarray(0, messages)]
}

describe('sending', () => {
  test('goes on where the kernel stopped', () => {
    scripted.give('sendmmsg', 2, 3)
    expect(send(5)).toEqual([0, 0, 0, 0, 0])
  })

  test('that is interrupted is tried again', () => {
    scripted.give('sendmmsg', -EINTR, 2)
    expect(send(2)).toEqual([0, 0])
  })

  test('into a full socket waits once for room, and goes on', () => {
    scripted.give('sendmmsg', 1, -EAGAIN, 2)
    scripted.give('poll', 1)
    expect(send(3)).toEqual([0, 0, 0])
  })

  test('that was interrupted before has its wait all the same', () => {
    scripted.give('sendmmsg', -EINTR, -EAGAIN, 1)
    scripted.give('poll', 1)
    expect(send(1)).toEqual([0])
  })

  test('into a socket that stays full gives that message up, and offers the next', () => {
    scripted.give('sendmmsg', -EAGAIN, 2)
    scripted.give('poll', 0)
    expect(send(3)).toEqual([EAGAIN, 0, 0])
    expect(scripted.made).toEqual(['sendmmsg', 'poll', 'sendmmsg'])
  })

  test('without a buffer is tried again three times, and then given up', () => {
    scripted.give('sendmmsg', -ENOBUFS, -ENOBUFS, 1)
    expect(send(1)).toEqual([0])
    scripted.give('sendmmsg', -ENOBUFS, -ENOBUFS, -ENOBUFS, -ENOBUFS, 1)
    expect(send(2)).toEqual([ENOBUFS, 0])
  })

  test.each([ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EPERM])(
    'that fails with errno %i drops that message, and the socket stays',
    (errno) => {
      scripted.give('sendmmsg', 1, -errno, 1)
      expect(send(3)).toEqual([0, errno, 0])
      scripted.give('sendmmsg', 1)
      expect(send(1)).toEqual([0])
    },
  )

  test('counts its tries for each message anew', () => {
    scripted.give('sendmmsg', -ENOBUFS, -ENOBUFS, -ENOBUFS, 1, -ENOBUFS, -ENOBUFS, -ENOBUFS, 1)
    expect(send(2)).toEqual([0, 0])
  })

  test('of nothing asks the kernel nothing', () => {
    expect(send(0)).toEqual([])
    expect(scripted.made).toEqual([])
  })
})

describe('sending from several ports', () => {
  const many = new UdpSocket(memory, { fd: 7, senderFds: [11, 12, 13], maxSegments: 63 })

  /** Sends one message from each of these ports; what became of each. */
  function sendFrom(...senders: number[]): number[] {
    batch.clear()
    for (const sender of senders) {
      batch.frame(0xc0000202, 8472, 0, 100, true, sender)
      batch.add(4096, 100)
    }
    many.send(batch)
    return [...batch.errno.subarray(0, senders.length)]
  }

  test('asks the kernel once for each of them', () => {
    scripted.give('sendmmsg', 3, 1, 2)
    expect(sendFrom(2, 0, 1, 2, 0, 0)).toEqual([0, 0, 0, 0, 0, 0])
    expect(scripted.made).toHaveLength(3)
  })

  test('a full one loses its own messages alone, and a failure is told of the message that failed', () => {
    scripted.give('sendmmsg', -EAGAIN, 1, 1, -EPERM)
    scripted.give('poll', 0)
    // Sent as 0 0 | 1 | 2.
    expect(sendFrom(2, 0, 1, 0)).toEqual([EPERM, EAGAIN, 0, 0])
  })

  test('and says how many there are', () => {
    expect([socket.senders, many.senders]).toEqual([1, 3])
  })
})

describe('receiving', () => {
  test('that would wait, or is interrupted, gives 0', () => {
    scripted.give('recvmmsg', -EAGAIN, -EINTR)
    expect([socket.receive(slots), socket.receive(slots)]).toEqual([0, 0])
  })

  test('that fails gives the errno', () => {
    scripted.give('recvmmsg', -9)
    expect(socket.receive(slots)).toBe(-9)
  })
})
