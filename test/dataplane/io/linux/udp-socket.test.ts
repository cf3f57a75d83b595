// Sends of a UDP socket in an order of their own: several ports, and tries that are counted for each message anew. What
// comes of each errno: injected-errors.test.ts.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { EAGAIN, EINTR, ENOBUFS, EPERM } from '../../../../dataplane/io/errno.ts'
import { UdpSocket } from '../../../../dataplane/io/linux/udp-socket.ts'
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

describe('with DF set', () => {
  const [OWN, SENDER, FRAGMENTING, PROBE] = [7, 8, 9, 10]
  const df = new UdpSocket(memory, {
    ...{ fd: OWN, senderFds: [SENDER], maxSegments: 63 },
    pathFds: { fragmentingFd: FRAGMENTING, probeFd: PROBE },
  })

  test('a message for the underlay to fragment leaves from a socket of its own, others do not', () => {
    const fds: number[] = []
    scripted.watch((name, [fd]) => name === 'sendmmsg' && fds.push(fd!))
    scripted.give('sendmmsg', 1, 1)
    batch.clear()
    for (const sender of [df.paths!.fragmentingSender, 0]) {
      batch.frame(0xc0000202, 8472, 0, 100, true, sender)
      batch.add(4096, 100)
    }
    df.send(batch)
    expect(fds).toEqual([SENDER, FRAGMENTING])
  })

  test('the kernel is asked by a socket that sends nothing', () => {
    const asked: unknown[] = []
    scripted.watch((name, [fd]) => asked.push([name, fd]))
    scripted.give('connect', 0)
    scripted.give('getsockopt', 1400)
    expect(df.paths!.payloadTo(0xc0000202, 8472)).toBe(1372)
    expect(asked).toEqual([
      ['connect', PROBE],
      ['getsockopt', PROBE],
    ])
  })

  test('is not what a socket has unless it is told so', () => {
    expect(socket.paths).toBeUndefined()
  })
})

describe('sending', () => {
  test('that was interrupted before has its wait all the same', () => {
    scripted.give('sendmmsg', -EINTR, -EAGAIN, 1)
    scripted.give('poll', 1)
    expect(send(1)).toEqual([0])
  })

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
