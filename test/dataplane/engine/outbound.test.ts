// What leaves for the underlay: sizes around the MTU, fragments, noise, batches by peer, and errors of the send.
import { describe, expect, it } from 'vitest'
import type { DropReason } from '../../../dataplane/drop-reason.ts'
import * as errno from '../../../dataplane/io/errno.ts'
import * as icmpv4 from '../../../dataplane/wire/icmpv4.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { entryFor, MTU, NODE_B, PORT } from '../../support/engine-pair.ts'
import {
  countingBytes,
  fromTun,
  type IpOptions,
  icmpEcho,
  ip,
  ipv4Packet,
  superFromTun,
  tcpPacket,
  udpPacket,
  viewOf,
} from '../../support/packets.ts'
import { resplit, withChecksums } from '../../support/resplit.ts'
import { tappedPair } from '../../support/underlay-tap.ts'
import { vxlanFrame } from '../../support/vxlan-frame.ts'

/** A packet of exactly that many bytes: UDP, or a bare IP header with a few bytes when it is too small for that. */
function sized(bytes: number, options: IpOptions = {}): Uint8Array {
  if (bytes < 28) return ipv4Packet(99, countingBytes(bytes - 20), options)
  return udpPacket({ payload: countingBytes(bytes - 28), ...options })
}

function sendOne(packet: Uint8Array) {
  const pair = tappedPair()
  pair.a.sendFromTun(fromTun(packet))
  expect(pair.a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  return { ...pair, answers: pair.a.takeWritten(), arrived: pair.b.receive().map((written) => written.packet) }
}

describe('the frame on the wire', () => {
  it('is VXLAN, Ethernet between the VTEPs and the packet, byte for byte', () => {
    const { tap } = sendOne(icmpEcho())
    expect(tap.messages).toEqual([
      { address: ip(NODE_B.underlay), port: PORT, tos: 0, segmentSize: 0, frames: [vxlanFrame(icmpEcho())] },
    ])
  })

  it('overwrites whatever lay in the headroom before', () => {
    const { a, tap } = tappedPair()
    for (let n = 0; n < 3; n++) {
      a.sendFromTun(fromTun(icmpEcho({ payload: new Uint8Array(1000).fill(0xff) }), { flags: 0xfe, gsoSize: 0xffff }))
      expect(tap.takeFrames()).toEqual([vxlanFrame(icmpEcho({ payload: new Uint8Array(1000).fill(0xff) }))])
    }
  })

  it('is for the MAC of the table in force, also when the packet is like the last one', () => {
    const { a, tap } = tappedPair()
    const rebooted = 0x0a0000000099
    a.sendFromTun(fromTun(icmpEcho()), fromTun(icmpEcho()))
    a.learn(entryFor({ ...NODE_B, mac: rebooted }))
    a.sendFromTun(fromTun(icmpEcho()))
    expect(tap.takeFrames()).toEqual([
      vxlanFrame(icmpEcho()),
      vxlanFrame(icmpEcho()),
      vxlanFrame(icmpEcho(), { destinationMac: rebooted }),
    ])
  })

  it('leaves out what follows the packet in the read', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(fromTun(Uint8Array.from([...icmpEcho(), 1, 2, 3])))
    expect(tap.takePackets()).toEqual([icmpEcho()])
  })
})

describe('sizes', () => {
  it.each([20, 21, 576, 1280, 1449, 1450])('%i bytes cross whole', (bytes) => {
    expect(sendOne(sized(bytes)).arrived).toEqual([sized(bytes)])
  })

  it.each([8951, 65535 - 50])('%i bytes cross whole where the underlay allows it', (bytes) => {
    const { a, b } = tappedPair({ settings: { mtuBytes: bytes } })
    a.sendFromTun(fromTun(sized(bytes)))
    const arrived = b.receive().map(({ packet }) => Buffer.compare(packet, sized(bytes)))
    expect(arrived).toEqual([0])
  })

  it('are judged by another MTU from the next packet on, one that is like the last included', () => {
    const { a, b } = tappedPair()
    const arrivals = [1450, 1350, 1450].map((mtuBytes) => {
      a.engine.setMtu(mtuBytes)
      a.sendFromTun(fromTun(sized(1400)))
      return [b.receive().length, ...a.takeWritten().map(({ packet }) => icmpv4.getMtu(viewOf(packet), 20))]
    })
    expect(arrivals).toEqual([[1], [0, 1350], [1]])
  })

  it('65,535 bytes without DF are more than UDP carries: counted, not lost silently', () => {
    const { a } = sendOne(sized(65535, { fragmentWord: 0 }))
    expect(a.counters.dropped('outbound', 'tx-too-big')).toEqual({ packets: 1, bytes: 65535 })
  })

  /** Sends one packet of each size; tells for each whether it arrived intact, and how many answers came. */
  function sweep(fragmentWord: number): { bytes: number; intact: boolean; answers: number }[] {
    const { a, b } = tappedPair()
    return Array.from({ length: MTU + 40 - 28 + 1 }, (_, n) => {
      const packet = sized(28 + n, { fragmentWord })
      a.sendFromTun(fromTun(packet))
      const arrived = b.receive().map((written) => Buffer.compare(written.packet, packet))
      return { bytes: 28 + n, intact: arrived.length === 1 && arrived[0] === 0, answers: a.takeWritten().length }
    })
  }

  it('from 28 bytes to beyond the MTU, with DF: each is delivered intact or answered, none vanishes', () => {
    for (const { bytes, intact, answers } of sweep(ipv4.DONT_FRAGMENT)) {
      if (intact !== bytes <= MTU || answers !== (bytes <= MTU ? 0 : 1)) expect.fail(`${bytes} bytes`)
    }
  })

  it('from 28 bytes to beyond the MTU, without DF: each is delivered intact', () => {
    for (const { bytes, intact, answers } of sweep(0)) if (!intact || answers !== 0) expect.fail(`${bytes} bytes`)
  })

  it('beyond the MTU without DF leave alone, never inside a segmented send', () => {
    const { a, tap } = tappedPair()
    const large = sized(MTU + 1, { fragmentWord: 0 })
    a.sendFromTun(...[large, large, sized(MTU), sized(MTU), large].map((packet) => fromTun(packet)))
    expect(tap.messages.map(({ frames, segmentSize }) => [frames.length, segmentSize])).toEqual([
      [1, 0],
      [1, 0],
      [2, MTU + 22],
      [1, 0],
    ])
  })

  it('of a super-packet whose pieces exceed the MTU: without DF each piece leaves alone', () => {
    const { a, tap } = tappedPair()
    const packet = tcpPacket({ payload: countingBytes(4000), checksum: 'partial', fragmentWord: 0 })
    a.sendFromTun(superFromTun(packet, MTU))
    expect(tap.messages.map(({ frames, segmentSize }) => [frames.length, segmentSize])).toEqual([
      [1, 0],
      [1, 0],
      [1, 0],
    ])
  })

  it('of a super-packet whose pieces exceed the MTU: with DF it is answered once', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(superFromTun(tcpPacket({ payload: countingBytes(4000), checksum: 'partial' }), MTU - 39))
    expect(tap.messages).toEqual([])
    expect(a.takeWritten()).toHaveLength(1)
    expect(a.counters.dropped('outbound', 'too-big').packets).toBe(1)
  })

  it('of a super-packet whose pieces fill the MTU exactly pass', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(superFromTun(tcpPacket({ payload: countingBytes(4000), checksum: 'partial' }), MTU - 40))
    expect(tap.takePackets().map((packet) => packet.length)).toEqual([MTU, MTU, 4000 - 2 * (MTU - 40) + 40])
  })
})

describe('fragments', () => {
  it('cross byte for byte, in order, and are never joined', () => {
    const whole = udpPacket({ payload: countingBytes(4000) }).slice(20)
    const words = [ipv4.MORE_FRAGMENTS, ipv4.MORE_FRAGMENTS | 172, 344]
    const fragments = words.map((fragmentWord) => {
      const at = (fragmentWord & ipv4.OFFSET_MASK) * 8
      return ipv4Packet(17, whole.slice(at, at + 1376), { fragmentWord, identification: 9 })
    })
    const { a, b } = tappedPair()
    a.sendFromTun(...fragments.map((packet) => fromTun(packet)))
    const written = b.receive()
    expect(written.map(({ packet }) => packet)).toEqual(fragments)
    expect(written.every(({ vnet }) => vnet.flags === 0 && vnet.gsoType === 0)).toBe(true)
  })

  it('whose payload looks like ports are not parsed for them', () => {
    const later = ipv4Packet(6, new Uint8Array(3), { fragmentWord: 100 })
    const tiny = ipv4Packet(17, new Uint8Array(0), { fragmentWord: 1 })
    const { a, b } = tappedPair()
    a.sendFromTun(fromTun(later), fromTun(tiny))
    expect(b.receive().map(({ packet }) => packet)).toEqual([later, tiny])
  })
})

describe('ICMP errors of others', () => {
  it('cross unchanged, whatever their type', () => {
    const { a, b } = tappedPair()
    const message = (type: number) => {
      const transport = new Uint8Array(36)
      icmpv4.write(viewOf(transport), 0, type, 4, 1400)
      transport.set(udpPacket().slice(0, 28), 8)
      return ipv4Packet(1, transport, { source: '10.244.1.77' })
    }
    const messages = [0, 3, 4, 5, 8, 11, 12, 13, 42].map(message)
    a.sendFromTun(...messages.map((packet) => fromTun(packet)))
    expect(b.receive().map(({ packet }) => packet)).toEqual(messages)
  })
})

describe('noise of the host', () => {
  it.each(['224.0.0.1', '224.0.0.22', '239.255.255.250', '255.255.255.255', '169.254.7.7', '240.0.0.1'])(
    'to %s is dropped without a word',
    (destination) => {
      const { a, tap, answers } = sendOne(udpPacket({ destination }))
      expect([tap.messages, answers]).toEqual([[], []])
      expect(a.counters.dropped('outbound', 'link-local-or-multicast').packets).toBe(1)
      expect(a.counters.get('icmp.suppressed')).toBe(0)
    },
  )

  it.each<[DropReason, Uint8Array]>([
    ['truncated', new Uint8Array(48).fill(0x60)],
    ['not-ip', new Uint8Array(40)],
    ['not-ip', new Uint8Array(40).fill(0x50)],
    ['truncated', new Uint8Array(0)],
    ['truncated', udpPacket().slice(0, 19)],
    ['truncated', udpPacket().slice(0, 27)],
    ['bad-header-length', Uint8Array.from([0x44, ...udpPacket().slice(1)])],
    ['bad-header-length', Uint8Array.from([0x4f, ...udpPacket().slice(1)])],
  ])('that is no packet is dropped as %s', (reason, bytes) => {
    const { a, tap, answers } = sendOne(bytes)
    expect([tap.messages, answers]).toEqual([[], []])
    expect(a.counters.dropped('outbound', reason)).toEqual({ packets: 1, bytes: bytes.length })
  })
})

describe('a send', () => {
  const NODE_C = { underlay: '192.0.2.3', subnet: '10.244.3.0', mac: 0x0a0000000003 }
  const to = (third: number, n: number, options: IpOptions = {}) =>
    fromTun(udpPacket({ destination: `10.244.${third}.3`, payload: countingBytes(100, n), ...options }))

  it('joins frames for one peer, also when those for another come between, and no others', () => {
    const { a, tap } = tappedPair()
    a.learn(entryFor(NODE_B), entryFor(NODE_C))
    a.sendFromTun(to(2, 0), to(2, 1), to(3, 2), to(2, 3), to(2, 4))
    expect(tap.messages.map(({ address, frames }) => [address, frames.length])).toEqual([
      [ip(NODE_B.underlay), 4],
      [ip(NODE_C.underlay), 1],
    ])
    expect(tap.sends).toBe(1)
  })

  it('joins frames of one congestion mark only', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(to(2, 0), to(2, 1, { tos: 2 }), to(2, 2, { tos: 2 }), to(2, 3))
    expect(tap.messages.map(({ tos, frames }) => [tos, frames.length])).toEqual([
      [0, 1],
      [2, 2],
      [0, 1],
    ])
  })

  it('takes a shorter frame as its last, and no longer one', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(...[500, 500, 300, 300, 301, 300].map((bytes) => fromTun(sized(bytes))))
    expect(tap.messages.map(({ frames }) => frames.map((frame) => frame.length - 22))).toEqual([
      [500, 500, 300],
      [300],
      [301, 300],
    ])
  })

  it('loses no packet to a refusal of another, and names the reason', () => {
    const { a, tap } = tappedPair()
    a.learn(entryFor(NODE_B), entryFor(NODE_C))
    tap.refuse = ({ address }) => (address === ip(NODE_C.underlay) ? errno.ENETUNREACH : 0)
    a.sendFromTun(to(2, 0), to(3, 1), to(3, 2), to(2, 3))
    expect(a.counters.get('outbound.packets.passed')).toBe(2)
    expect(a.counters.dropped('outbound', 'tx-unreachable')).toEqual({ packets: 2, bytes: 256 })
    expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  it.each<[string, number, DropReason]>([
    ['EAGAIN', errno.EAGAIN, 'tx-queue-full'],
    ['ENOBUFS', errno.ENOBUFS, 'tx-nobufs'],
    ['EMSGSIZE', errno.EMSGSIZE, 'tx-too-big'],
    ['EPERM', errno.EPERM, 'tx-unreachable'],
    ['EACCES', errno.EACCES, 'tx-unreachable'],
    ['ENETDOWN', errno.ENETDOWN, 'tx-unreachable'],
    ['ENETUNREACH', errno.ENETUNREACH, 'tx-unreachable'],
    ['EHOSTUNREACH', errno.EHOSTUNREACH, 'tx-unreachable'],
    ['ECONNREFUSED', errno.ECONNREFUSED, 'tx-unreachable'],
    ['EINVAL', errno.EINVAL, 'tx-error'],
    ['EIO', errno.EIO, 'tx-error'],
  ])('that fails with %s is counted, and the next one goes on', (_, number, reason) => {
    const { a, tap } = tappedPair()
    tap.refuse = () => number
    a.sendFromTun(superFromTun(udpPacket({ payload: countingBytes(300), checksum: 'partial' }), 100))
    expect(a.counters.dropped('outbound', reason)).toEqual({ packets: 3, bytes: 3 * 128 })
    tap.refuse = () => 0
    a.sendFromTun(to(2, 0))
    expect(a.counters.get('outbound.packets.passed')).toBe(1)
    expect(a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })
})

describe('what the source is', () => {
  it('is not policed on the way out, but counted when it is not ours', () => {
    const { arrived, a } = sendOne(udpPacket({ source: '172.16.0.1' }))
    expect(arrived).toEqual([]) // node B refuses it: not of A's lease
    expect(a.counters.get('outbound.foreign-source')).toBe(1)
    expect(a.counters.get('outbound.packets.passed')).toBe(1)
  })
})

describe('open checksums', () => {
  it('are completed for TCP and UDP of any length', () => {
    for (const bytes of [0, 1, 2, 99, 1399]) {
      for (const [packet, checksumOffset] of [
        [tcpPacket({ payload: countingBytes(bytes), checksum: 'partial' }), tcp.CHECKSUM_OFFSET],
        [udpPacket({ payload: countingBytes(bytes), checksum: 'partial' }), 6],
      ] as const) {
        const { a, tap } = tappedPair()
        a.sendFromTun(fromTun(packet, { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 20, checksumOffset }))
        expect(tap.takePackets()).toEqual([withChecksums(packet)])
      }
    }
  })

  it('that are marked as verified are left alone', () => {
    const { a, b } = tappedPair()
    const packet = tcpPacket({ payload: countingBytes(10) })
    a.sendFromTun(fromTun(packet, { flags: virtioNet.FLAG_DATA_VALID }))
    expect(b.receive().flatMap(resplit)).toEqual([packet])
  })

  it('are not asked for beyond the packet that was read', () => {
    const { a, tap } = tappedPair()
    a.sendFromTun(fromTun(udpPacket(), { flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 27, checksumOffset: 0xffff }))
    expect(tap.messages).toEqual([])
    expect(a.counters.dropped('outbound', 'vnet-inconsistent').packets).toBe(1)
  })
})

describe('one turn', () => {
  const turn = (segmentBytes: number) => {
    const { a } = tappedPair()
    for (let n = 0; n < 20; n++) {
      const packet = tcpPacket({ payload: countingBytes(60_000), checksum: 'partial' })
      a.device.queue(superFromTun(packet, segmentBytes))
    }
    return a.engine.outbound()
  }

  it('takes what there is of super-packets of the usual kind', () => {
    expect(turn(1400)).toBe(20)
  })

  it('ends early when they are cut into very many segments, so that the other direction gets its own', () => {
    expect(turn(10)).toBe(3)
  })
})
