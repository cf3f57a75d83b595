// A socket that tells only later what became of a datagram: until then it is in no book, afterwards in exactly one.
import { describe, expect, test } from 'vitest'
import { EINPROGRESS, EMSGSIZE, ENETUNREACH } from '../../../dataplane/io/errno.ts'
import type { ReceiveSlots } from '../../../dataplane/io/receive-slots.ts'
import type { SendBatch } from '../../../dataplane/io/send-batch.ts'
import type { Settled, UnderlaySocket } from '../../../dataplane/io/underlay-socket.ts'
import { enginePair, recordSteps } from '../../support/engine-pair.ts'
import { countingBytes, fromTun, superFromTun, tcpPacket, udpPacket } from '../../support/packets.ts'

const NOTHING = { packets: 0, bytes: 0 }

/** Takes everything, and says so when it is told to. */
class SlowSocket implements UnderlaySocket {
  readonly maxSegments = 1
  readonly underWay: Settled[] = []
  #tell: (settled: Settled) => void = () => undefined

  receive(_slots: ReceiveSlots): number {
    return 0
  }

  send(batch: SendBatch): void {
    for (let message = 0; message < batch.count; message++) {
      const facts = { address: batch.address[message]!, port: batch.port[message]!, bytes: batch.bytes[message]! }
      this.underWay.push({ serial: batch.firstSerial + message, ...facts, errno: 0 })
      batch.errno[message] = EINPROGRESS
    }
  }

  tellSettled(listener: (settled: Settled) => void): void {
    this.#tell = listener
  }

  settle(errno = 0): void {
    this.#tell({ ...this.underWay.shift()!, errno })
  }
}

function slowNode() {
  const sockets: SlowSocket[] = []
  const { a } = enginePair({
    wrapSocket: () => {
      const socket = new SlowSocket()
      sockets.push(socket)
      return socket
    },
  })
  return { a, socket: sockets[0]! }
}

const packet = (n = 0) => udpPacket({ payload: countingBytes(100 + n, n) })

describe('a datagram under way', () => {
  test('is counted when it is known to be sent, not before', () => {
    const { a, socket } = slowNode()
    a.sendFromTun(fromTun(packet()))
    expect(a.counters.get('outbound.packets.read')).toBe(0)
    expect(a.counters.imbalance()).toEqual(NOTHING)
    socket.settle()
    expect(a.counters.get('outbound.packets.passed')).toBe(1)
    expect(a.counters.get('outbound.bytes.passed')).toBe(packet().length)
    expect(a.counters.get('outbound.messages.sent')).toBe(1)
    expect(a.counters.imbalance()).toEqual(NOTHING)
  })

  test.each([
    [ENETUNREACH, 'tx-unreachable'],
    [EMSGSIZE, 'tx-too-big'],
    [99, 'tx-error'],
  ] as const)('that fails with errno %i is dropped as %s', (errno, reason) => {
    const { a, socket } = slowNode()
    a.sendFromTun(fromTun(packet()))
    socket.settle(errno)
    expect(a.counters.get('outbound.packets.passed')).toBe(0)
    expect(a.counters.dropped('outbound', reason)).toEqual({ packets: 1, bytes: packet().length })
    expect(a.counters.imbalance()).toEqual(NOTHING)
  })

  test('is traced as sent when it is, under the number that its frame was given', () => {
    const { a, socket } = slowNode()
    const steps = recordSteps(a)
    a.sendFromTun(fromTun(packet(0)), fromTun(packet(1)))
    a.sendFromTun(fromTun(packet(2)))
    expect(steps.filter(({ kind }) => kind === 'send')).toEqual([])
    const messages = steps.flatMap((step) => (step.kind === 'encap' ? [step.message] : []))
    for (const errno of [0, ENETUNREACH, 0]) socket.settle(errno)
    const sends = steps.flatMap((step) => (step.kind === 'send' ? [step] : []))
    expect(sends.map(({ message }) => message)).toEqual(messages)
    expect(sends.map(({ errno }) => errno)).toEqual([0, ENETUNREACH, 0])
  })

  test('of a super-packet is one of many, each with its own fate', () => {
    const { a, socket } = slowNode()
    const checksum = 'partial'
    a.sendFromTun(superFromTun(tcpPacket({ payload: countingBytes(42 * 1400), checksum }), 1400))
    const frames = socket.underWay.length
    expect(frames).toBeGreaterThan(40)
    for (let n = 0; n < frames; n++) socket.settle(n === 3 ? ENETUNREACH : 0)
    expect(a.counters.get('outbound.packets.read')).toBe(frames)
    expect(a.counters.get('outbound.packets.passed')).toBe(frames - 1)
    expect(a.counters.imbalance()).toEqual(NOTHING)
  })
})
