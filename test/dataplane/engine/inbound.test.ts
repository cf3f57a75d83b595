// What arrives on the UDP port: every fault by its name, who may send, padding, trains, congestion marks.
import { describe, expect, it } from 'vitest'
import type { DropReason } from '../../../dataplane/drop-reason.ts'
import { ETHERTYPE_IPV4 } from '../../../dataplane/wire/ethernet.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as vxlan from '../../../dataplane/wire/vxlan.ts'
import { receiveDatagrams, receivePackets, receiveTrain } from '../../support/arrival.ts'
import { enginePair, entriesFor, entryFor, NODE_A, NODE_B, recordSteps } from '../../support/engine-pair.ts'
import { countingBytes, type IpOptions, icmpEcho, ip, udpPacket, viewOf } from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'
import { ENCAP_BYTES, type FrameOptions, vxlanFrame } from '../../support/vxlan-frame.ts'

const ping = icmpEcho()

/** Asserts that a datagram is not passed on, and counted under exactly that reason. */
function expectDrop(datagram: Uint8Array, reason: DropReason, from = NODE_A.underlay): void {
  const { written, b } = receiveDatagrams([datagram], { from })
  expect(written).toEqual([])
  expect(b.counters.dropped('inbound', reason)).toEqual({ packets: 1, bytes: datagram.length })
  expect(b.counters.get('inbound.packets.read')).toBe(1)
}

describe('a tunnel header that is not ours', () => {
  it.each<[DropReason, string, FrameOptions]>([
    ['vxlan-no-vni', 'I flag clear', { flags: 0 }],
    ['vxlan-no-vni', 'I flag clear, others set', { flags: 0xf7 }],
    ['vni-unknown', 'other VNI', { vni: 2 }],
    ['vni-unknown', 'other VNI in the upper byte', { vni: 0x010001 }],
    ['vxlan-reserved-bits', 'first reserved field', { reserved1: 1 }],
    ['vxlan-reserved-bits', 'last reserved byte', { reserved2: 1 }],
    ['vxlan-reserved-bits', 'another flag', { flags: 0x0c }],
    ['vxlan-reserved-bits', 'group policy', { flags: vxlan.FLAG_VNI_VALID | vxlan.FLAG_GBP, reserved1: 0x000007 }],
    ['inner-destination-mac', 'MAC of another node', { destinationMac: NODE_A.mac }],
    ['inner-destination-mac', 'one bit off', { destinationMac: NODE_B.mac + 2 ** 41 }],
    ['inner-source-mac', 'our own MAC', { sourceMac: NODE_B.mac }],
    ['inner-source-mac', 'no MAC', { sourceMac: 0 }],
    ['inner-source-mac', 'a group', { sourceMac: 0x01005e000001 }],
    ['inner-ethertype', 'ARP', { etherType: 0x0806 }],
    ['inner-ethertype', 'a length', { etherType: 46 }],
    ['bad-version', 'IPv6 said, IPv4 inside', { etherType: 0x86dd }],
  ])('is refused: %s, %s', (reason, _, options) => expectDrop(vxlanFrame(ping, options), reason))

  it('is refused when it is not whole, down to the empty datagram', () => {
    for (let length = 0; length < ENCAP_BYTES; length++) {
      expectDrop(vxlanFrame(ping).slice(0, length), 'vxlan-short')
    }
  })

  it('shows the destination MAC that came in the dropped bytes', () => {
    const pair = enginePair()
    const seen: Uint8Array[] = []
    pair.b.engine.setSink({
      step: (step) => {
        if (step.kind === 'drop') seen.push(pair.memory.bytes.slice(step.at, step.at + step.length))
      },
    })
    const frame = vxlanFrame(ping, { destinationMac: 0x0a0000000099 })
    pair.b.socket.deliver(frame, ip(NODE_A.underlay))
    pair.b.receive()
    expect(seen).toEqual([frame])
  })

  it('takes a VNI of three bytes for what it is', () => {
    const header = new Uint8Array(8)
    vxlan.write(viewOf(header), 0, 0x010203)
    expect([...header]).toEqual([8, 0, 0, 0, 1, 2, 3, 0])
  })
})

describe('an inner packet that is not whole', () => {
  const bent = (change: (view: DataView) => void): Uint8Array => {
    const packet = udpPacket({ payload: countingBytes(20) })
    change(viewOf(packet))
    return vxlanFrame(packet, { etherType: ETHERTYPE_IPV4 })
  }

  it('is refused at every length below its own', () => {
    const frame = vxlanFrame(ping)
    for (let length = ENCAP_BYTES; length < frame.length; length++) expectDrop(frame.slice(0, length), 'truncated')
  })

  it('is refused by name', () => {
    expectDrop(
      bent((view) => view.setUint8(0, 0x65)),
      'bad-version',
    )
    expectDrop(
      bent((view) => view.setUint8(0, 0x44)),
      'bad-header-length',
    )
    expectDrop(
      bent((view) => ipv4.setTotalLength(view, 0, 19)),
      'bad-header-length',
    )
    expectDrop(
      bent((view) => ipv4.setTotalLength(view, 0, 49)),
      'truncated',
    )
    expectDrop(
      bent((view) => ipv4.setTtl(view, 0, 1)),
      'bad-checksum',
    )
  })

  it('is refused when its options would be longer than the packet', () => {
    const packet = new Uint8Array(24)
    packet.set(udpPacket().slice(0, 20))
    ipv4.setTotalLength(viewOf(packet), 0, 24)
    packet[0] = 0x4f
    expectDrop(vxlanFrame(packet), 'bad-header-length')
  })

  it('is refused when the kernel cut the datagram', () => {
    const { a, tap } = tappedPair()
    tap.truncates = true
    a.socket.deliver(vxlanFrame(ping, { destinationMac: NODE_A.mac, sourceMac: NODE_B.mac }), ip(NODE_B.underlay))
    expect(a.receive()).toEqual([])
    expect(a.counters.dropped('inbound', 'rx-truncated').packets).toBe(1)
    expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })
})

describe('padding behind the inner packet', () => {
  it('is cut off, however long', () => {
    for (const padding of [1, 18, 1000]) {
      const { written } = receiveDatagrams([vxlanFrame(ping, { padding })])
      expect(written.map(({ packet }) => packet)).toEqual([ping])
    }
  })

  it('is not taken for payload when packets are joined', () => {
    const packets = [0, 1].map((n) => udpPacket({ payload: countingBytes(9, n), identification: n }))
    const { written } = receiveDatagrams(packets.map((packet) => vxlanFrame(packet, { padding: 9 })))
    expect(written).toHaveLength(1)
    expect(written.flatMap(resplit)).toEqual(packets)
  })

  it('counts as bytes of the datagram, read and passed', () => {
    const { b } = receiveDatagrams([vxlanFrame(ping, { padding: 18 })])
    expect(b.counters.get('inbound.bytes.passed')).toBe(ENCAP_BYTES + ping.length + 18)
  })
})

describe('who may send', () => {
  const from = (options: IpOptions) => vxlanFrame(icmpEcho(options))
  const STRANGER = '192.0.2.99'
  const spoofed = from({ source: '10.244.3.4' })

  const passes = (datagram: Uint8Array, sourceCheck: 'strict' | 'peer' | 'off', sender = NODE_A.underlay): boolean =>
    receiveDatagrams([datagram], { from: sender }, { settings: { sourceCheck } }).written.length === 1

  it('strict: a lease holder, for its own subnet', () => {
    expect(passes(vxlanFrame(ping), 'strict')).toBe(true)
    expect(passes(from({ source: '10.244.1.0' }), 'strict')).toBe(true)
    expect(passes(vxlanFrame(ping), 'strict', STRANGER)).toBe(false)
    expect(passes(spoofed, 'strict')).toBe(false)
  })

  it('peer: a lease holder, for any source', () => {
    expect(passes(vxlanFrame(ping), 'peer')).toBe(true)
    expect(passes(spoofed, 'peer')).toBe(true)
    expect(passes(vxlanFrame(ping), 'peer', STRANGER)).toBe(false)
  })

  it('off: anybody', () => {
    expect(passes(spoofed, 'off', STRANGER)).toBe(true)
  })

  it('is told by name', () => {
    expectDrop(vxlanFrame(ping), 'unknown-peer', STRANGER)
    expectDrop(spoofed, 'inner-source-spoofed')
    expectDrop(from({ source: '10.244.2.3' }), 'inner-source-spoofed')
  })

  it('and for whom: only for our own subnet', () => {
    expectDrop(from({ destination: '10.244.3.4' }), 'inner-destination-foreign')
    expectDrop(from({ destination: '10.244.1.2' }), 'inner-destination-foreign')
    expect(passes(from({ destination: '10.244.2.255' }), 'strict')).toBe(true)
    expect(passes(from({ destination: '10.244.3.4' }), 'peer')).toBe(false)
  })

  it('a sender that was right once is not right for other sources', () => {
    const { written, b } = receiveDatagrams([vxlanFrame(ping), spoofed, vxlanFrame(ping)])
    expect(written).toHaveLength(2)
    expect(b.counters.dropped('inbound', 'inner-source-spoofed').packets).toBe(1)
  })

  it('a lease that moved is looked at anew', () => {
    const { b } = enginePair()
    b.socket.deliver(vxlanFrame(ping), ip(NODE_A.underlay))
    expect(b.receive()).toHaveLength(1)
    b.learn(entryFor({ ...NODE_A, underlay: STRANGER }))
    b.socket.deliver(vxlanFrame(ping), ip(NODE_A.underlay))
    b.socket.deliver(vxlanFrame(ping), ip(STRANGER))
    expect(b.receive()).toHaveLength(1)
    expect(b.counters.dropped('inbound', 'unknown-peer').packets).toBe(1)
  })

  it('arriving packets never change the table', () => {
    const { b } = receiveDatagrams(
      [vxlanFrame(ping), spoofed],
      { from: STRANGER },
      { settings: { sourceCheck: 'off' } },
    )
    expect(b.engine.table.entries()).toEqual(entriesFor(NODE_A))
  })
})

describe('congestion marks', () => {
  const NOT_ECT = 0
  const ECT1 = 1
  const ECT0 = 2
  const CE = 3
  const expected = (inner: number, outer: number): number | 'drop' => {
    if (outer === CE) return inner === NOT_ECT ? 'drop' : CE
    return inner === ECT0 && outer === ECT1 ? ECT1 : inner
  }
  const all = [0, 1, 2, 3].flatMap((inner) => [0, 1, 2, 3].map((outer) => [inner, outer] as const))

  it.each(all)('inner %i and outer %i combine as in the kernel', (inner, outer) => {
    const dscp = 0x2e << 2
    const packet = udpPacket({ tos: dscp | inner, payload: countingBytes(30) })
    const { written, b } = receiveDatagrams([vxlanFrame(packet)], { tos: 0x40 | outer })
    const result = expected(inner, outer)
    if (result === 'drop') {
      expect(written).toEqual([])
      expect(b.counters.dropped('inbound', 'ecn-illegal').packets).toBe(1)
      return
    }
    const changed = udpPacket({ tos: dscp | result, payload: countingBytes(30) })
    expect(written.map((one) => one.packet)).toEqual([changed])
    expect(withChecksums(changed)).toEqual(changed)
  })

  it('of a train go to every packet of it', () => {
    const packets = [0, 1, 2].map((n) => udpPacket({ tos: ECT0, payload: countingBytes(50, n), identification: n }))
    const datagram = Uint8Array.from(Buffer.concat(packets.map((packet) => vxlanFrame(packet))))
    const { written } = receiveDatagrams([datagram], { tos: CE, segmentSize: ENCAP_BYTES + 78 })
    const marks = written.flatMap(resplit).map((packet) => ipv4.getTos(viewOf(packet), 0))
    expect(marks).toEqual([CE, CE, CE])
  })

  it('are told with both values', () => {
    const pair = enginePair()
    const steps = recordSteps(pair.b)
    pair.b.socket.deliver(vxlanFrame(udpPacket({ tos: ECT0 })), ip(NODE_A.underlay), { tos: CE })
    pair.b.receive()
    expect(steps.find((step) => step.kind === 'ecn')).toMatchObject({ innerBefore: ECT0, outer: CE, inner: CE })
  })
})

describe('trains', () => {
  it('of ten datagrams of 1472 bytes and one of 200 are eleven packets', () => {
    const sized = (n: number, bytes: number) =>
      udpPacket({ payload: countingBytes(bytes - ENCAP_BYTES - 28, n), identification: n })
    const packets = Array.from({ length: 10 }, (_, n) => sized(n, 1472)).concat(sized(10, 200))
    const { written, b } = receiveTrain(packets)
    expect(b.counters.get('inbound.packets.read')).toBe(11)
    expect(b.counters.get('inbound.packets.passed')).toBe(11)
    expect(written.flatMap(resplit)).toEqual(packets)
  })

  it('with a bad frame among them lose just that one', () => {
    // What is left is joined under identifications that follow each other: with DF they mean nothing.
    const packets = [0, 9, 1].map((n) => udpPacket({ payload: countingBytes(50, n), identification: n }))
    const frames = packets.map((packet, n) => vxlanFrame(packet, n === 1 ? { vni: 7 } : {}))
    const bytes = Uint8Array.from(Buffer.concat(frames))
    const { written, b } = receiveDatagrams([bytes], { segmentSize: frames[0]!.length })
    expect(written.flatMap(resplit)).toEqual([packets[0], packets[2]])
    expect(b.counters.dropped('inbound', 'vni-unknown')).toEqual({ packets: 1, bytes: frames[1]!.length })
  })

  it('with a nonsense size are cut to pieces that are all counted', () => {
    const frame = vxlanFrame(ping)
    for (const segmentSize of [1, 7, ENCAP_BYTES, frame.length - 1, frame.length, 60000]) {
      const { b } = receiveDatagrams([frame], { segmentSize })
      expect(b.counters.get('inbound.bytes.read')).toBe(frame.length)
    }
  })
})

describe('more than one batch', () => {
  it('is taken in until the socket is empty', () => {
    const packets = Array.from({ length: 60 }, (_, n) => icmpEcho({ identification: n }))
    const { written } = receivePackets(packets)
    expect(written.map(({ packet }) => packet)).toEqual(packets)
  })

  it('a queue that overflowed is told with its count', () => {
    const { b } = enginePair()
    for (let n = 0; n < 70; n++) b.socket.deliver(vxlanFrame(ping), ip(NODE_A.underlay))
    expect(b.receive()).toHaveLength(64)
    expect(b.counters.get('socket.overflowed')).toBe(6)
  })
})
