// What passes between a node and each peer: counted by the engine, once a message or train, and kept over new tables.
import { expect, test } from 'vitest'
import { encodeForwardingTable } from '../../../dataplane/forwarding/forwarding-table.ts'
import type { ForwardingEntry } from '../../../dataplane/forwarding/remote-vtep.ts'
import { PeerLedger } from '../../../dataplane/worker/peer-ledger.ts'
import { enginePair, entriesFor, entryFor, type MemoryNode, NODE_B } from '../../support/engine-pair.ts'
import { countingBytes, fromTun, ip, superFromTun, tcpPacket, udpPacket } from '../../support/packets.ts'

const THERE = ip(NODE_B.underlay)
const OTHER = { ...NODE_B, underlay: '192.0.2.9', subnet: '10.244.9.0', mac: 0x0a0000000009 }

function pairWithLedger() {
  let nowMs = 1000
  const pair = enginePair({ nowMs: () => nowMs })
  const ledger = new PeerLedger()
  let generation = 100
  const learn = (node: MemoryNode, ...entries: ForwardingEntry[]) => {
    const table = encodeForwardingTable(entries, ++generation)
    node.engine.replaceTable(table, ledger.open(table))
    return generation
  }
  learn(pair.a, ...entriesFor(NODE_B), entryFor(OTHER))
  const advance = (ms: number) => {
    nowMs += ms
  }
  return { ...pair, ledger, learn, advance }
}

const there = (bytes = 100) => fromTun(udpPacket({ payload: countingBytes(bytes) }))
const back = (source = '10.244.2.3') =>
  fromTun(udpPacket({ source, destination: '10.244.1.2', payload: countingBytes(100) }))

test('of a peer that was never heard of all is zero, as are its times', () => {
  const { ledger } = pairWithLedger()
  const nothing = {
    sentPackets: 0,
    sentBytes: 0,
    lastSentMs: 0,
    receivedPackets: 0,
    receivedBytes: 0,
    lastReceivedMs: 0,
  }
  expect(ledger.traffic()).toEqual(new Map([THERE, ip(OTHER.underlay)].map((address) => [address, nothing])))
})

test('what is sent is counted for its peer alone, packets and inner bytes, with the time', () => {
  const { a, ledger, advance } = pairWithLedger()
  advance(500)
  a.sendFromTun(there(), there(), there())
  expect(ledger.traffic().get(THERE)).toMatchObject({ sentPackets: 3, sentBytes: 3 * 128, lastSentMs: 1500 })
  expect(ledger.traffic().get(ip(OTHER.underlay))).toMatchObject({ sentPackets: 0, lastSentMs: 0 })
})

test('a super-packet counts as the packets that it stands for', () => {
  const { a, ledger } = pairWithLedger()
  a.sendFromTun(superFromTun(tcpPacket({ checksum: 'partial', payload: countingBytes(10 * 1000) }), 1000))
  expect(ledger.traffic().get(THERE)).toMatchObject({ sentPackets: 10, sentBytes: 10 * 1040 })
})

test('what comes in counts once it passed the source check, in packets also when the kernel merged them', () => {
  const { a, b, ledger, advance } = pairWithLedger()
  b.sendFromTun(back(), back(), back())
  advance(250)
  a.receive()
  expect(ledger.traffic().get(THERE)).toMatchObject({
    receivedPackets: 3,
    receivedBytes: 3 * 128,
    lastReceivedMs: 1250,
    sentPackets: 0,
  })
})

test('a packet with a source of others is no sign of life of its sender', () => {
  const { a, b, ledger } = pairWithLedger()
  b.sendFromTun(back('10.244.77.3'))
  a.receive()
  expect(ledger.traffic().get(THERE)).toMatchObject({ receivedPackets: 0, lastReceivedMs: 0 })
})

test('a new table forgets nothing of the peers that stay, and everything of those that went', () => {
  const { a, ledger, learn } = pairWithLedger()
  a.sendFromTun(there(), there())
  const generation = learn(a, ...entriesFor(NODE_B))
  expect(ledger.traffic().get(THERE)).toMatchObject({ sentPackets: 2 })
  ledger.settle(generation)
  a.sendFromTun(there())
  expect([...ledger.traffic().keys()]).toEqual([THERE])
  expect(ledger.traffic().get(THERE)).toMatchObject({ sentPackets: 3, lastSentMs: 1000 })
})

test('what an engine notes by the old table until it hears of the new one is not lost', () => {
  const { a, ledger } = pairWithLedger()
  const table = encodeForwardingTable(entriesFor(NODE_B), 200)
  const memory = ledger.open(table)
  a.sendFromTun(there())
  a.engine.replaceTable(table, memory)
  ledger.settle(200)
  a.sendFromTun(there())
  expect(ledger.traffic().get(THERE)).toMatchObject({ sentPackets: 2 })
})

test('messages are counted by their size', () => {
  const { a } = pairWithLedger()
  a.sendFromTun(there(), there(), there(), there(), there())
  a.sendFromTun(there())
  const counters = a.counters.snapshot()
  expect(counters).toMatchObject({
    'outbound.messages.up-to-1': 1,
    'outbound.messages.up-to-2': 0,
    'outbound.messages.up-to-4': 0,
    'outbound.messages.up-to-8': 1,
    'outbound.messages.packets': 6,
  })
})
