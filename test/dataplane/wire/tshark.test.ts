// Wireshark's dissector as a second opinion: what it reads in the golden frames and what describe says must be the
// same.
import { describe, expect, it, type TestContext } from 'vitest'
import type { FieldNote } from '../../../dataplane/wire/field.ts'
import { describeLayers } from '../../../dataplane/wire/layers.ts'
import { GOLDEN_FRAMES, goldenFrame } from '../../support/golden-frames.ts'
import { dissect, whyNoTshark } from '../../support/tshark.ts'
import { numberOf } from '../../support/wire-properties.ts'

/** Our layer (or layers) and field, its name in tshark, and the factor between our unit and tshark's. */
const SAME: readonly (readonly [layer: string, name: string, tshark: string, factor?: number])[] = [
  ['Ethernet', 'destination', 'eth.dst'],
  ['Ethernet', 'source', 'eth.src'],
  ['Ethernet', 'etherType', 'eth.type'],
  // To tshark, IPv6 headers have both.
  ['IPv4|IPv6', 'version', 'ip.version'],
  ['IPv4', 'headerWords', 'ip.hdr_len', 4],
  ['IPv4', 'dscp', 'ip.dsfield.dscp'],
  ['IPv4', 'ecn', 'ip.dsfield.ecn'],
  ['IPv4', 'totalLength', 'ip.len'],
  ['IPv4', 'identification', 'ip.id'],
  ['IPv4', 'fragmentOffset', 'ip.frag_offset'],
  ['IPv4', 'ttl', 'ip.ttl'],
  ['IPv4', 'protocol', 'ip.proto'],
  ['IPv4', 'checksum', 'ip.checksum'],
  ['IPv4', 'source', 'ip.src'],
  ['IPv4', 'destination', 'ip.dst'],
  ['IPv6', 'version', 'ipv6.version'],
  ['IPv6', 'dscp', 'ipv6.tclass.dscp'],
  ['IPv6', 'ecn', 'ipv6.tclass.ecn'],
  ['IPv6', 'flowLabel', 'ipv6.flow'],
  ['IPv6', 'payloadLength', 'ipv6.plen'],
  ['IPv6', 'nextHeader', 'ipv6.nxt'],
  ['IPv6', 'hopLimit', 'ipv6.hlim'],
  ['IPv6 fragment', 'fragmentOffset', 'ipv6.fraghdr.offset'],
  ['IPv6 fragment', 'moreFragments', 'ipv6.fraghdr.more'],
  ['IPv6 fragment', 'identification', 'ipv6.fraghdr.ident'],
  ['IPv6 fragment', 'nextHeader', 'ipv6.fraghdr.nxt'],
  ['IPv6 hop-by-hop', 'nextHeader', 'ipv6.hopopts.nxt'],
  ['IPv6 hop-by-hop', 'routerAlert', 'ipv6.opt.router_alert'],
  ['IPv6 destination', 'nextHeader', 'ipv6.dstopts.nxt'],
  ['UDP', 'sourcePort', 'udp.srcport'],
  ['UDP', 'destinationPort', 'udp.dstport'],
  ['UDP', 'length', 'udp.length'],
  ['UDP', 'checksum', 'udp.checksum'],
  ['VXLAN', 'flags', 'vxlan.flags', 256],
  ['VXLAN', 'vni', 'vxlan.vni'],
  ['ICMP', 'type', 'icmp.type'],
  ['ICMP', 'code', 'icmp.code'],
  ['ICMP', 'checksum', 'icmp.checksum'],
  ['ICMPv6', 'type', 'icmpv6.type'],
  ['ICMPv6', 'code', 'icmpv6.code'],
  ['ICMPv6', 'checksum', 'icmpv6.checksum'],
  ['ICMPv6', 'identifier', 'icmpv6.echo.identifier'],
  ['ICMPv6', 'sequence', 'icmpv6.echo.sequence_number'],
  ['TCP', 'sourcePort', 'tcp.srcport'],
  ['TCP', 'destinationPort', 'tcp.dstport'],
  ['TCP', 'sequence', 'tcp.seq_raw'],
  ['TCP', 'acknowledgment', 'tcp.ack_raw'],
  ['TCP', 'headerWords', 'tcp.hdr_len', 4],
  ['TCP', 'flags', 'tcp.flags'],
  ['TCP', 'window', 'tcp.window_size_value'],
  ['TCP', 'checksum', 'tcp.checksum'],
  ['TCP', 'urgentPointer', 'tcp.urgent_pointer'],
  ['TCP', 'mss', 'tcp.options.mss_val'],
  ['TCP', 'windowScale', 'tcp.options.wscale.shift'],
]

/** Of an ICMP echo tshark prints every number in both byte orders: the first is the one on the wire. */
const FIRST: readonly (readonly [layer: string, name: string, tshark: string])[] = [
  ['ICMP', 'identifier', 'icmp.ident'],
  ['ICMP', 'sequence', 'icmp.seq'],
]

/** Addresses, compared as they are written. */
const SAME_TEXT: readonly (readonly [layer: string, name: string, tshark: string])[] = [
  ['IPv6', 'source', 'ipv6.src'],
  ['IPv6', 'destination', 'ipv6.dst'],
  ['ICMPv6', 'target', 'icmpv6.nd.ns.target_address'],
]

const STATUS = ['ip', 'udp', 'tcp', 'icmp', 'icmpv6'].map((protocol) => `${protocol}.checksum.status`)
const BAD = '0'
const GOOD = '1'

function valuesOf(notes: readonly FieldNote[], layer: string, name: string): string[] {
  const layers = layer.split('|')
  return notes.filter((note) => layers.includes(note.layer) && note.name === name).map((note) => note.value)
}

function numbersOf(notes: readonly FieldNote[], layer: string, name: string, factor = 1): number[] {
  return valuesOf(notes, layer, name).map((value) => numberOf(value) * factor)
}

function needTshark(context: TestContext): void {
  const reason = whyNoTshark()
  if (reason !== undefined) context.skip(reason)
}

describe('tshark', () => {
  it('reads in the golden frames what describe says', (context) => {
    needTshark(context)
    const dissected = dissect(
      GOLDEN_FRAMES.map((frame) => frame.bytes),
      [...SAME, ...FIRST, ...SAME_TEXT].map(([, , field]) => field),
    )
    expect(dissected).toHaveLength(GOLDEN_FRAMES.length)
    const compared = new Map<string, number>()
    for (const [index, { name, bytes }] of GOLDEN_FRAMES.entries()) {
      const notes = describeLayers(bytes, 0, bytes.length, 'ethernet')
      for (const [layer, note, field, factor] of SAME) {
        const theirs = dissected[index]?.get(field)?.map(numberOf) ?? []
        expect(numbersOf(notes, layer, note, factor), `${name} ${field}`).toEqual(theirs)
        compared.set(field, (compared.get(field) ?? 0) + theirs.length)
      }
      for (const [layer, note, field] of FIRST) {
        const theirs = dissected[index]?.get(field)?.slice(0, 1).map(numberOf) ?? []
        expect(numbersOf(notes, layer, note), `${name} ${field}`).toEqual(theirs)
        compared.set(field, (compared.get(field) ?? 0) + theirs.length)
      }
      for (const [layer, note, field] of SAME_TEXT) {
        const theirs = dissected[index]?.get(field) ?? []
        expect(valuesOf(notes, layer, note), `${name} ${field}`).toEqual(theirs)
        compared.set(field, (compared.get(field) ?? 0) + theirs.length)
      }
    }
    expect([...compared].filter(([, count]) => count === 0)).toEqual([])
  })

  it('finds every checksum in the golden frames good, as describe does', (context) => {
    needTshark(context)
    const dissected = dissect(
      GOLDEN_FRAMES.map((frame) => frame.bytes),
      STATUS,
    )
    for (const [index, frame] of dissected.entries()) {
      const statuses = STATUS.flatMap((field) => frame.get(field) ?? [])
      expect(statuses, GOLDEN_FRAMES[index]?.name).toContain(GOOD)
      expect(statuses, GOLDEN_FRAMES[index]?.name).not.toContain(BAD)
    }
  })

  it('and describe both find one flipped bit, each in the right checksum', (context) => {
    needTshark(context)
    const names = ['tcp-data', 'udp', 'icmp-echo-request'].map((name) => `vxlan-noudpcsum/${name}`)
    const flipped = [...names, 'vxlan-ipv6/icmpv6-echo-request'].map((name) => {
      const frame = goldenFrame(name).slice()
      const last = frame.length - 1
      frame[last] = (frame[last] ?? 0) ^ 0x01
      return frame
    })
    const bad = dissect(flipped, STATUS).map((frame) => STATUS.filter((field) => frame.get(field)?.includes(BAD)))
    expect(bad).toEqual([
      ['tcp.checksum.status'],
      ['udp.checksum.status'],
      ['icmp.checksum.status'],
      ['udp.checksum.status', 'icmpv6.checksum.status'],
    ])
    const ours = flipped.map((frame) =>
      describeLayers(frame, 0, frame.length, 'ethernet').filter((note) => note.problem !== undefined),
    )
    expect(ours.map((notes) => notes.map((note) => `${note.layer} ${note.name}`))).toEqual([
      ['TCP checksum'],
      ['UDP checksum'],
      ['ICMP checksum'],
      ['UDP checksum', 'ICMPv6 checksum'],
    ])
  })
})
