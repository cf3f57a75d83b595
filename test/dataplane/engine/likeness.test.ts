// A packet that is like the one before leaves by the answers found for that one: what differs in any byte must not.
// Compared with the reference engine, which knows no packet before.
import { describe, expect, it } from 'vitest'
import { enginePair, entriesFor, NODE_B } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  IPV6,
  icmpEcho,
  openFromTun,
  tcpPacket,
  type UdpOptions,
  udpPacket,
} from '../../support/packets.ts'
import { Twin } from '../../support/twin.ts'

const HEADERS = 10 + 20 + 8
const PAYLOAD = countingBytes(64)

const KINDS: readonly { readonly name: string; readonly read: Uint8Array }[] = [
  { name: 'UDP', read: fromTun(udpPacket({ payload: PAYLOAD })) },
  { name: 'UDP, checksum open', read: openFromTun(udpPacket({ payload: PAYLOAD, checksum: 'partial' })) },
  { name: 'UDP without DF', read: fromTun(udpPacket({ payload: PAYLOAD, fragmentWord: 0 })) },
  { name: 'UDP with IP options', read: fromTun(udpPacket({ payload: PAYLOAD, options: countingBytes(8) })) },
  { name: 'TCP, checksum open', read: openFromTun(tcpPacket({ payload: PAYLOAD, checksum: 'partial' })) },
  { name: 'UDPv6', read: fromTun(udpPacket({ ...IPV6, payload: PAYLOAD })) },
  { name: 'UDP of a stranger', read: fromTun(udpPacket({ payload: PAYLOAD, source: '10.9.9.9' })) },
  { name: 'UDP to nobody', read: fromTun(udpPacket({ payload: PAYLOAD, destination: '10.244.9.9' })) },
]

describe.each(['vxlan', 'udp'] as const)('a packet behind one like it, in %s', (encapsulation) => {
  it.each(KINDS)('leaves as it would alone, whichever byte of it is another: $name', ({ read }) => {
    const twin = new Twin(encapsulation)
    for (let at = 0; at < HEADERS; at++) {
      for (const change of [0x01, 0x40, 0x80, 0xff]) {
        const other = read.slice()
        other[at]! ^= change
        twin.outbound([read, read, other, other, read])
      }
    }
    expect(twin.seen('outbound', 'vnet-inconsistent')).toBeGreaterThan(0)
  })

  it.each(KINDS)('leaves as it would alone, whatever length is read: $name', ({ read }) => {
    const twin = new Twin(encapsulation)
    for (let length = 10; length < read.length; length++) {
      twin.outbound([read, read, read.subarray(0, length), read])
    }
    const longer = new Uint8Array(read.length + 5)
    longer.set(read)
    twin.outbound([read, longer, longer, read])
    expect(twin.pair.a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })
})

/** Node A with as many source ports as a daemon has; the port, by number, of each frame that it sends. */
function nodeWithPorts() {
  const ports: number[] = []
  const { a } = enginePair({
    wrapSocket: (inner) => ({
      maxSegments: inner.maxSegments,
      senders: 16,
      receive: (slots) => inner.receive(slots),
      send(batch) {
        for (let message = 0; message < batch.count; message++) {
          for (let frame = 0; frame < batch.packets[message]!; frame++) ports.push(batch.sender[message]!)
        }
      },
    }),
  })
  return { a, ports }
}

it.each(KINDS.slice(0, 3))('leaves from the port of its own flow: $name', ({ read }) => {
  const { a, ports } = nodeWithPorts()
  const foreign = () => a.counters.get('outbound.foreign-source')
  const unlike = fromTun(icmpEcho())
  const seen = new Set<number>()
  for (let at = 10; at < HEADERS; at++) {
    for (const change of [0x01, 0x02, 0x20, 0xff]) {
      const other = read.slice()
      other[at]! ^= change
      const before = foreign()
      a.sendFromTun(unlike, other)
      const alone = [ports.splice(0).slice(1), foreign() - before]
      a.sendFromTun(unlike, read, other)
      expect([ports.splice(0).slice(2), foreign() - before - Number(alone[1])], `byte ${at} ^ ${change}`).toEqual(alone)
      for (const port of alone[0] as number[]) seen.add(port)
    }
  }
  expect(seen.size).toBeGreaterThan(8)
})

it('goes by the table that is in force when it leaves', () => {
  const { a } = enginePair()
  const read = fromTun(udpPacket({ payload: PAYLOAD } satisfies UdpOptions))
  a.sendFromTun(read, read)
  a.learn()
  a.sendFromTun(read)
  expect(a.counters.dropped('outbound', 'no-route').packets).toBe(1)
  a.learn(...entriesFor(NODE_B))
  a.sendFromTun(read, read)
  expect(a.counters.get('outbound.packets.passed')).toBe(4)
})

it('counts each one of a foreign source', () => {
  const { a } = enginePair()
  const read = fromTun(udpPacket({ payload: PAYLOAD, source: '10.9.9.9' }))
  a.sendFromTun(read, read, read)
  expect(a.counters.get('outbound.foreign-source')).toBe(3)
})
