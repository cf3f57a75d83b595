// What the raw driver does with each refusal of a send, with the package played: nothing that could be kept is lost,
// and every loss has its name. What it writes and how it fares with the real package is in
// test/netns/raw-socket.test.ts.
import { describe, expect, test } from 'vitest'
import { reasonForSendErrno } from '../../../../dataplane/io/errno.ts'
import type { RawSender } from '../../../../dataplane/io/raw/raw-package.ts'
import { RawSocket } from '../../../../dataplane/io/raw/raw-socket.ts'
import { SendBatch } from '../../../../dataplane/io/send-batch.ts'
import type { UnderlaySocket } from '../../../../dataplane/io/underlay-socket.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { countingBytes, ip } from '../../../support/packets.ts'
import { readMessage } from '../../../support/underlay-tap.ts'

const HEADERS_BYTES = 28
const NO_ROOM = 'Resource temporarily unavailable'
const NO_BUFFER = 'No buffer space available'

/** A socket whose sends are refused with these words, one after the other; then all pass. */
function refusing(...refusals: string[]) {
  const memory = new PacketMemory(1024 * 1024)
  const sent: { readonly address: string; readonly payload: Uint8Array }[] = []
  const fragmented: Uint8Array[] = []
  let pauses = 0
  let timesFull = 0
  let next: (() => void) | null = null
  const sender: RawSender = {
    send(buffer, offset, length, address, done) {
      next = () => {
        const refusal = refusals.shift()
        const payload = Uint8Array.from(buffer.subarray(offset + HEADERS_BYTES, offset + length))
        if (refusal === undefined) sent.push({ address, payload })
        done(refusal === undefined ? null : new Error(refusal))
      }
    },
    onSendReady: () => next!(),
    pauseRecv: () => undefined,
    setOption: () => undefined,
    close: () => undefined,
  }
  const udpSocket: UnderlaySocket = {
    maxSegments: 1,
    receive: () => 0,
    send: (batch) => void fragmented.push(...readMessage(memory, batch, 0).frames),
  }
  const pause = () => {
    pauses += 1
  }
  const socket = new RawSocket(memory, {
    sender,
    udpSocket,
    address: ip('192.0.2.1'),
    firstPort: 40_000,
    ports: 8,
    pause,
    onFull: () => {
      timesFull += 1
    },
  })
  const batch = new SendBatch(memory, socket.maxSegments)
  const send = (...payloads: Uint8Array[]) => {
    batch.clear()
    for (const payload of payloads) {
      const at = memory.reserve(payload.length)
      memory.bytes.set(payload, at)
      batch.frame(ip('198.51.100.7'), 8472, 0, payload.length, false)
      batch.add(at, payload.length)
    }
    socket.send(batch)
    return [...batch.errno.subarray(0, batch.count)].map((errno) => (errno === 0 ? 'sent' : reasonForSendErrno(errno)))
  }
  return { socket, send, sent, fragmented, pauses: () => pauses, timesFull: () => timesFull }
}

const times = (count: number, words: string): string[] => Array(count).fill(words)

describe('a refused send', () => {
  test('for want of room is tried again after a pause, and arrives once', () => {
    const { send, sent, pauses } = refusing(...times(3, NO_ROOM))
    expect(send(countingBytes(50))).toEqual(['sent'])
    expect(sent).toEqual([{ address: '198.51.100.7', payload: countingBytes(50) }])
    expect(pauses()).toBe(3)
  })

  test('for want of room is given up after ten milliseconds at most, and the next one goes', () => {
    const { send, sent, pauses } = refusing(...times(10, NO_ROOM))
    expect(send(countingBytes(50), countingBytes(60))).toEqual(['tx-queue-full', 'sent'])
    expect(pauses()).toBeLessThanOrEqual(10)
    expect(sent.map(({ payload }) => payload)).toEqual([countingBytes(60)])
  })

  test('for want of room says so, and many of them wait for a short while together', () => {
    const { socket, send, pauses, timesFull } = refusing(...times(200, NO_ROOM))
    expect(send(...times(64, '').map(() => countingBytes(50)))).toEqual(times(64, 'tx-queue-full'))
    expect([socket.isFull, timesFull(), pauses()]).toEqual([true, 1, 50])
    expect(send(countingBytes(50))).toEqual(['tx-queue-full'])
    expect(pauses()).toBe(50)
    socket.tryAgain()
    expect(socket.isFull).toBe(false)
    expect(send(countingBytes(50))).toEqual(['tx-queue-full'])
    expect([socket.isFull, timesFull()]).toEqual([true, 2])
    expect(pauses()).toBeGreaterThan(50)
  })

  test('for want of a buffer is tried again at once, three times in all', () => {
    const patient = refusing(...times(2, NO_BUFFER))
    expect(patient.send(countingBytes(50))).toEqual(['sent'])
    const lost = refusing(...times(3, NO_BUFFER))
    expect(lost.send(countingBytes(50))).toEqual(['tx-nobufs'])
    expect(lost.pauses()).toBe(0)
  })

  test('for its size is left to the UDP socket, with the same bytes', () => {
    const { send, sent, fragmented } = refusing('Message too long')
    expect(send(countingBytes(3000))).toEqual(['sent'])
    expect(sent).toEqual([])
    expect(fragmented).toEqual([countingBytes(3000)])
  })

  test.each([
    ['Network is unreachable', 'tx-unreachable'],
    ['No route to host', 'tx-unreachable'],
    ['Network is down', 'tx-unreachable'],
    ['Operation not permitted', 'tx-unreachable'],
    ['Permission denied', 'tx-unreachable'],
    ['Invalid argument', 'tx-error'],
    ['words that nobody knows', 'tx-error'],
  ])('because “%s” is counted as %s, and the next one goes', (words, reason) => {
    const { send, sent } = refusing(words)
    expect(send(countingBytes(50), countingBytes(60))).toEqual([reason, 'sent'])
    expect(sent.map(({ payload }) => payload)).toEqual([countingBytes(60)])
  })
})
