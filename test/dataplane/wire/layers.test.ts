// The walk through the layers of a packet, on good ones, damaged ones and random bytes; and the hex dump.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as icmpv4 from '../../../dataplane/wire/icmpv4.ts'
import { finish, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import { describeLayers, hexDump, type Layer } from '../../../dataplane/wire/layers.ts'
import { GOLDEN_FRAMES, goldenFrame } from '../../support/golden-frames.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { INNER_AT, problems, route, value, walk } from '../../support/layer-walk.ts'

const LAYERS: readonly Layer[] = [
  'virtio-net',
  'ethernet',
  'arp',
  'ipv4',
  'ipv6',
  'icmpv4',
  'icmpv6',
  'udp',
  'tcp',
  'vxlan',
]

const OUTER = 'Ethernet IPv4 UDP VXLAN Ethernet IPv4'

describe('the walk through the layers', () => {
  it.each([
    ['icmp-echo-request', `${OUTER} ICMP payload`],
    ['ipv4-options', `${OUTER} ICMP payload`],
    ['tcp-syn', `${OUTER} TCP`],
    ['tcp-data', `${OUTER} TCP payload`],
    ['udp', `${OUTER} UDP payload`],
    ['udp-first-fragment', `${OUTER} UDP payload`],
    ['udp-middle-fragment', `${OUTER} payload`],
    ['icmp-port-unreachable', `${OUTER} ICMP IPv4 UDP payload`],
  ])('of %s meets %s', (name, expected) => {
    expect(route(walk(goldenFrame(`vxlan-udpcsum/${name}`)))).toBe(expected)
  })

  it('finds no ports in a later fragment: its first bytes are payload', () => {
    const notes = walk(goldenFrame('vxlan-udpcsum/udp-middle-fragment'))
    expect(value(notes, 'UDP', 'sourcePort')).toHaveLength(1)
    expect(value(notes, 'UDP', 'destinationPort')).toEqual(['8472'])
    expect(notes.at(-1)).toMatchObject({ layer: 'payload', name: 'bytes' })
  })

  it('shows values and places as they stand in the whole buffer', () => {
    const frame = goldenFrame('vxlan-udpcsum/tcp-syn')
    const buf = new Uint8Array(7 + frame.length + 3).fill(0xa5)
    buf.set(frame, 7)
    const notes = describeLayers(buf, 7, 7 + frame.length, 'ethernet')
    expect(value(notes, 'IPv4', 'destination')).toEqual(['192.168.56.12', '10.244.2.0'])
    expect(value(notes, 'VXLAN', 'vni')).toEqual(['1'])
    expect(value(notes, 'TCP', 'mss')).toEqual(['1410'])
    expect(notes.map(({ at, ...note }) => ({ ...note, at: at - 7 }))).toEqual(walk(frame))
  })

  it('covers every byte of a whole packet, in order', () => {
    for (const { name, bytes } of GOLDEN_FRAMES) {
      let reached = 0
      for (const note of walk(bytes)) {
        // Fields of one byte share it; a gap would be a byte that nobody explained.
        expect(note.at, name).toBeLessThanOrEqual(reached)
        reached = Math.max(reached, note.at + note.length)
      }
      expect(reached, name).toBe(bytes.length)
    }
  })

  it('begins at any layer that it is told', () => {
    const frame = goldenFrame('vxlan-udpcsum/tcp-data')
    expect(route(walk(frame.subarray(14), 'ipv4'))).toBe('IPv4 UDP VXLAN Ethernet IPv4 TCP payload')
    expect(route(walk(frame.subarray(34), 'udp'))).toBe('UDP VXLAN Ethernet IPv4 TCP payload')
    expect(route(walk(frame.subarray(42), 'vxlan'))).toBe('VXLAN Ethernet IPv4 TCP payload')
    expect(route(walk(frame.subarray(INNER_AT + 20), 'tcp'))).toBe('TCP payload')
    expect(route(walk(goldenFrame('vxlan-udpcsum/icmp-echo-reply').subarray(INNER_AT + 20), 'icmpv4'))).toBe(
      'ICMP payload',
    )
  })

  it('knows VXLAN by the port it is given', () => {
    const frame = goldenFrame('vxlan-udpcsum/udp')
    expect(route(describeLayers(frame, 0, frame.length, 'ethernet', 4789))).toBe('Ethernet IPv4 UDP payload')
  })
})

describe('the walk through ARP', () => {
  it('ends there, padding shown as padding', () => {
    const request = '0001 0800 06 04 0001 0e5a00000001 0af40100 000000000000 0af40200'
    const notes = walk(bytesFrom(`ffffffffffff 0e5a00000001 0806 ${request} ${'00'.repeat(18)}`))
    expect(route(notes)).toBe('Ethernet ARP padding')
    expect(value(notes, 'ARP', 'targetAddress')).toEqual(['10.244.2.0'])
    expect(problems(notes)).toEqual([])
  })
})

describe('what is wrong with a packet', () => {
  it('is said at the field: a wrong inner TCP checksum', () => {
    const buf = goldenFrame('vxlan-noudpcsum/tcp-data').slice()
    const last = buf.length - 1
    buf[last] = (buf[last] ?? 0) ^ 1
    expect(problems(walk(buf))).toEqual([expect.stringMatching(/^TCP checksum: wrong, should be 0x/)])
  })

  it('is one checksum for each cover: the outer UDP sum sees the inner payload too', () => {
    const buf = goldenFrame('vxlan-udpcsum/udp').slice()
    const last = buf.length - 1
    buf[last] = (buf[last] ?? 0) ^ 1
    expect(problems(walk(buf))).toHaveLength(2)
  })

  it('is nothing when Ethernet padding follows: it is shown as padding', () => {
    const frame = goldenFrame('vxlan-noudpcsum/udp').subarray(INNER_AT - 14)
    const buf = new Uint8Array(frame.length + 9)
    buf.set(frame)
    const notes = walk(buf)
    expect(problems(notes)).toEqual([])
    expect(notes).toContainEqual(expect.objectContaining({ layer: 'padding', at: frame.length, length: 9 }))
  })

  it('is nothing in the quote of an ICMP error, which ends early', () => {
    const frame = goldenFrame('vxlan-noudpcsum/icmp-port-unreachable')
    const message = frame.subarray(INNER_AT + 20, INNER_AT + 20 + 8 + 28).slice()
    icmpv4.setChecksum(new DataView(message.buffer), 0, 0)
    icmpv4.setChecksum(new DataView(message.buffer), 0, finish(sumWords(message, 0, message.length)))
    const notes = walk(message, 'icmpv4')
    expect(route(notes)).toBe('ICMP IPv4 UDP')
    expect(problems(notes)).toEqual([])
  })

  it('is nothing in the first fragment of a tunnel datagram: the inner packet goes on in the next', () => {
    const frame = goldenFrame('vxlan-udpcsum/tcp-data')
    for (const kept of [8, 16, 24, 48, 72, 80]) {
      const first = frame.slice(0, 14 + 20 + kept)
      const view = new DataView(first.buffer)
      ipv4.setTotalLength(view, 14, 20 + kept)
      ipv4.setFragmentWord(view, 14, ipv4.MORE_FRAGMENTS)
      ipv4.setChecksum(view, 14, ipv4.computeChecksum(first, 14))
      expect(problems(walk(first)), `${kept} bytes`).toEqual([])
    }
  })

  it('is nothing in a tunnel packet that a router quotes, however little it quotes', () => {
    const outer = goldenFrame('vxlan-udpcsum/tcp-data').subarray(14)
    for (const quoted of [28, 36, 48, 60, outer.length]) {
      const message = new Uint8Array(8 + quoted)
      icmpv4.write(new DataView(message.buffer), 0, icmpv4.TYPE_UNREACHABLE, icmpv4.CODE_FRAGMENTATION_NEEDED, 1400)
      message.set(outer.subarray(0, quoted), 8)
      icmpv4.setChecksum(new DataView(message.buffer), 0, finish(sumWords(message, 0, message.length)))
      const notes = walk(message, 'icmpv4')
      expect(problems(notes), `${quoted} bytes`).toEqual([])
      expect(value(notes, 'ICMP', 'mtu')).toEqual(['1400'])
      expect(value(notes, 'UDP', 'destinationPort')).toEqual(['8472'])
    }
  })

  it('is nothing where a virtio-net header says that the checksum is still to come, and is something where none does', () => {
    const packet = goldenFrame('vxlan-noudpcsum/tcp-data').subarray(INNER_AT).slice()
    const text = problems(walk(packet, 'ipv4'))
    expect(text).toEqual([])
    // The pseudo-header sum alone: 0af4 + 0100 + 0af4 + 0200 + 6 + 58 bytes.
    packet.set(bytesFrom('1928'), 20 + 16)
    const withVnet = new Uint8Array(10 + packet.length)
    withVnet.set(bytesFrom('01 00 0000 0000 1400 1000'))
    withVnet.set(packet, 10)
    expect(problems(walk(withVnet, 'virtio-net'))).toEqual([])
    expect(problems(walk(packet, 'ipv4'))).toEqual([expect.stringMatching(/only the pseudo-header sum/)])
  })

  it('is found wherever a packet is cut, and the walk ends there', () => {
    const frame = goldenFrame('vxlan-udpcsum/tcp-syn')
    for (let length = 0; length < frame.length; length++) {
      const notes = describeLayers(frame, 0, length, 'ethernet')
      expect(problems(notes).length, `cut at ${length}`).toBeGreaterThan(0)
      for (const note of notes) if (note.value !== '') expect(note.at).toBeLessThan(length)
    }
  })

  it('never stops the walk by an exception: random bytes from any layer, golden frames with bytes changed', () => {
    const changes = fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { maxLength: 5 })
    const changed = fc.tuple(fc.constantFrom(...GOLDEN_FRAMES), changes).map(([{ bytes }, list]) => {
      const copy = bytes.slice()
      for (const [at, byte] of list) if (at < copy.length) copy[at] = byte
      return copy
    })
    const anything = fc.oneof(fc.uint8Array({ maxLength: 300 }), changed)
    fc.assert(
      fc.property(anything, fc.constantFrom(...LAYERS), fc.nat(320), fc.nat(20), (buf, first, end, at) => {
        const notes = describeLayers(buf, at, end, first)
        for (const note of notes) {
          expect(note.length).toBeGreaterThanOrEqual(0)
          if (note.value !== '' && note.problem !== 'truncated')
            expect(note.at + note.length).toBeLessThanOrEqual(buf.length)
        }
      }),
      { numRuns: 3000 },
    )
  })
})

describe('a hex dump', () => {
  it('has offset, bytes in two groups, and the printable ones', () => {
    const buf = new Uint8Array(3 + 18).map((_, index) => 0x3c + index - 3)
    expect(hexDump(buf, 3, buf.length)).toEqual([
      '0000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|',
      '0010  4c 4d                                             |LM|',
    ])
    expect(hexDump(Uint8Array.of(0x1f, 0x20, 0x7e, 0x7f), 0, 99)).toEqual([`0000  1f 20 7e 7f${' '.repeat(39)}|. ~.|`])
    expect(hexDump(buf, 5, 5)).toEqual([])
  })

  it('reads back to the bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (buf) => {
        const digits = hexDump(buf, 0, buf.length).map((line) => line.slice(6, 54))
        expect(bytesFrom(digits.join(''))).toEqual(buf)
      }),
    )
  })
})
