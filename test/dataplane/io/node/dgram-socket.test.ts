// What the dgram driver does with what Node rarely says: failed receives, sends that fail without an errno, a queue
// that nobody empties. Node's sockets are played; how it fares with real ones is in test/netns/dgram-socket.test.ts.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { ECONNREFUSED, EINPROGRESS, EIO, ENETUNREACH } from '../../../../dataplane/io/errno.ts'
import { DgramSocket } from '../../../../dataplane/io/node/dgram-socket.ts'
import { ReceiveSlots } from '../../../../dataplane/io/receive-slots.ts'
import { SendBatch } from '../../../../dataplane/io/send-batch.ts'
import type { Settled } from '../../../../dataplane/io/underlay-socket.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { countingBytes, ip } from '../../../support/packets.ts'

const { Played } = await vi.hoisted(async () => {
  const { EventEmitter } = await import('node:events')
  class Played extends EventEmitter {
    static all: Played[] = []
    closed = 0
    readonly callbacks: ((error: Error | null) => void)[] = []

    constructor() {
      super()
      Played.all.push(this)
    }

    bind(): void {}

    send(_bytes: Uint8Array, _port: number, _address: string, done: (error: Error | null) => void): void {
      this.callbacks.push(done)
    }

    close(): void {
      this.closed += 1
    }
  }
  return { Played }
})

vi.mock('node:dgram', () => ({ createSocket: () => new Played() }))

const MEMORY_BYTES = 4 * 1024 * 1024
const FROM = { address: '192.0.2.9', port: 40_000, family: 'IPv4', size: 0 } as const

beforeEach(() => {
  Played.all = []
})

function opened({ senderFds = [] as number[], lost = 0 } = {}) {
  const memory = new PacketMemory(MEMORY_BYTES)
  let announced = 0
  const onReceivable = () => {
    announced += 1
  }
  const socket = new DgramSocket(memory, { fd: 3, senderFds, lost: () => lost, onReceivable, onRoom: () => undefined })
  const [receiver, ...senders] = Played.all
  return {
    memory,
    socket,
    slots: new ReceiveSlots(memory, 16),
    receiver: receiver!,
    senders,
    announced: () => announced,
  }
}

const failure = (errno?: number) => Object.assign(new Error('played'), errno === undefined ? {} : { errno })

describe('a failed receive', () => {
  test('is announced, and told once, after what is there', () => {
    const { socket, slots, receiver, announced } = opened()
    receiver.emit('message', countingBytes(10), FROM)
    receiver.emit('error', failure(-ECONNREFUSED))
    expect(announced()).toBe(1)
    expect([1, 2, 3].map(() => socket.receive(slots))).toEqual([1, -ECONNREFUSED, 0])
    receiver.emit('error', failure(-ECONNREFUSED))
    expect(announced()).toBe(2)
  })

  test('of a socket that only sends is nobody’s business', () => {
    const { socket, slots, senders, announced } = opened({ senderFds: [4, 5] })
    expect(senders).toHaveLength(2)
    senders[0]!.emit('error', failure(-ECONNREFUSED))
    expect([announced(), socket.receive(slots)]).toEqual([0, 0])
  })
})

describe('datagrams', () => {
  test('are announced once until somebody receives', () => {
    const { socket, slots, receiver, announced } = opened()
    for (let n = 0; n < 20; n++) receiver.emit('message', countingBytes(n), FROM)
    expect(announced()).toBe(1)
    expect([socket.receive(slots), socket.receive(slots), socket.receive(slots)]).toEqual([16, 4, 0])
    receiver.emit('message', countingBytes(1), FROM)
    expect(announced()).toBe(2)
    expect(socket.receive(slots)).toBe(1)
    expect([slots.address[0], slots.port[0], slots.length[0]]).toEqual([ip(FROM.address), FROM.port, 1])
  })

  test('that nobody takes are lost at some time, and counted with those that the kernel has lost', () => {
    const { socket, slots, receiver } = opened({ lost: 7 })
    for (let n = 0; n < 1100; n++) receiver.emit('message', countingBytes(4), FROM)
    expect(socket.receive(slots)).toBe(16)
    expect(slots.overflowed).toBe(7 + 1100 - 1024)
  })

  test.each([
    [failure(-ENETUNREACH), ENETUNREACH],
    [failure(), EIO],
    [null, 0],
  ])('that Node was given are settled by its word: %s', (word, errno) => {
    const { memory, socket, receiver } = opened()
    const told: Settled[] = []
    socket.tellSettled((settled) => void told.push(settled))
    const batch = new SendBatch(memory, 1)
    batch.firstSerial = 5
    batch.frame(ip('198.51.100.7'), 8472, 0, 64, false)
    batch.add(memory.reserve(64), 64)
    socket.send(batch)
    expect([batch.errno[0], told]).toEqual([EINPROGRESS, []])
    receiver.callbacks[0]!(word)
    expect(told).toEqual([{ serial: 5, address: ip('198.51.100.7'), port: 8472, bytes: 64, errno }])
  })
})

test('closing closes every socket, once', () => {
  const { socket } = opened({ senderFds: [4, 5] })
  socket.close()
  socket.close()
  expect(Played.all.map(({ closed }) => closed)).toEqual([1, 1, 1])
})
