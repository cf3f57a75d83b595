// Frames that the kernel's VXLAN device sent, taken apart and put together again by our wire files: byte for byte the
// same.
import { describe, expect, it } from 'vitest'
import type { DropReason } from '../../../dataplane/drop-reason.ts'
import * as ethernet from '../../../dataplane/wire/ethernet.ts'
import * as icmpv4 from '../../../dataplane/wire/icmpv4.ts'
import * as icmpv6 from '../../../dataplane/wire/icmpv6.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import * as extension from '../../../dataplane/wire/ipv6-extension.ts'
import * as fragment from '../../../dataplane/wire/ipv6-fragment.ts'
import { describeLayers, VXLAN_PORT } from '../../../dataplane/wire/layers.ts'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import * as udp from '../../../dataplane/wire/udp.ts'
import * as vxlan from '../../../dataplane/wire/vxlan.ts'
import { GOLDEN_FILES, GOLDEN_FRAMES, goldenFrame } from '../../support/golden-frames.ts'

/** `parse` of a frame that is known to be good. */
function taken<H extends object>(parsed: H | DropReason): H {
  if (typeof parsed === 'string') throw new Error(`refused: ${parsed}`)
  return parsed
}

/** Takes headers off the front of `from` and writes them to the front of `to`. */
class Rebuilder {
  readonly from: Uint8Array
  readonly to: Uint8Array
  at = 0
  constructor(from: Uint8Array) {
    this.from = from
    this.to = new Uint8Array(from.length).fill(0xa5)
  }

  header<H extends object>(
    wire: {
      parse: (buf: Uint8Array, at: number, end: number) => H | DropReason
      emit: (header: H, buf: Uint8Array, at: number) => void
    },
    lengthOf: (header: H) => number,
  ): H {
    const header = taken(wire.parse(this.from, this.at, this.from.length))
    wire.emit(header, this.to, this.at)
    this.at += lengthOf(header)
    return header
  }

  /**
   * IPv4 and what it carries; a first fragment's UDP header speaks of more bytes than are there, so it goes as payload.
   */
  packet(): void {
    const ip = this.header(ipv4, (header) => header.headerWords * 4)
    if (ip.fragmentOffset !== 0 || (ip.flags & 1) !== 0) return
    this.transport(ip.protocol)
  }

  /** IPv6 with its extension headers; what a fragment carries goes as payload. */
  packet6(): void {
    let protocol = this.header(ipv6, () => ipv6.HEADER_LEN).nextHeader
    while (extension.isExtension(protocol)) {
      if (protocol === extension.FRAGMENT) {
        this.header(fragment, () => fragment.HEADER_LEN)
        return
      }
      protocol = this.header(extension, (header) => extension.HEADER_LEN + header.options.length).nextHeader
    }
    this.transport(protocol)
  }

  transport(protocol: number): void {
    if (protocol === ipv4.PROTOCOL_TCP) this.header(tcp, (header) => header.headerWords * 4)
    if (protocol === ipv4.PROTOCOL_ICMP) this.header(icmpv4, () => icmpv4.HEADER_LEN)
    if (protocol === ipv6.PROTOCOL_ICMPV6) this.header(icmpv6, () => icmpv6.HEADER_LEN)
    if (protocol !== ipv4.PROTOCOL_UDP) return
    const { destinationPort } = this.header(udp, () => udp.HEADER_LEN)
    if (destinationPort !== VXLAN_PORT) return
    this.header(vxlan, () => vxlan.HEADER_LEN)
    this.frame()
  }

  frame(): void {
    const { etherType } = this.header(ethernet, () => ethernet.HEADER_LEN)
    if (etherType === ethernet.ETHERTYPE_IPV4) this.packet()
    if (etherType === ethernet.ETHERTYPE_IPV6) this.packet6()
  }

  rest(): Uint8Array {
    this.to.set(this.from.subarray(this.at), this.at)
    return this.to
  }
}

const named = GOLDEN_FRAMES.map((frame) => [frame.name, frame.bytes] as const)
/** The IP layer inside the tunnel. */
const innerOf = (name: string) =>
  name.startsWith('vxlan-ipv6/') ? { layer: 'IPv6', wire: ipv6 } : { layer: 'IPv4', wire: ipv4 }
const OUTER_IP = ethernet.HEADER_LEN
const OUTER_UDP = OUTER_IP + ipv4.HEADER_LEN
const INNER_IP = OUTER_UDP + udp.HEADER_LEN + vxlan.HEADER_LEN + ethernet.HEADER_LEN

describe('the golden frames', () => {
  it('say where they come from', () => {
    for (const { provenance } of GOLDEN_FILES.values()) {
      expect(provenance).toEqual({
        kernel: expect.stringMatching(/^Linux \d+\.\d+/),
        captured: expect.stringMatching(/^\d{4}-\d\d-\d\d, .*capture-golden\.sh/),
        link: expect.stringContaining('type vxlan'),
        underlay: expect.stringContaining('tx off'),
      })
    }
  })

  it('are of every kind, with and without an outer checksum', () => {
    const kinds = (file: string) => GOLDEN_FILES.get(file)?.frames.map((frame) => frame.name)
    expect(kinds('vxlan-udpcsum')).toEqual(kinds('vxlan-noudpcsum'))
    expect(kinds('vxlan-udpcsum')).toEqual(
      expect.arrayContaining(['icmp-echo-request', 'tcp-syn', 'tcp-data', 'udp', 'udp-first-fragment', 'inner-ce']),
    )
    expect(kinds('vxlan-ipv6')).toEqual(
      expect.arrayContaining([
        'icmpv6-echo-request',
        'tcp-syn',
        'tcp-data',
        'udp',
        'hop-by-hop',
        'destination-options',
      ]),
    )
    for (const { name, bytes } of GOLDEN_FRAMES) {
      const checksum = udp.getChecksum(new DataView(bytes.buffer), OUTER_UDP)
      expect(checksum !== 0, name).toBe(!name.startsWith('vxlan-noudpcsum/'))
    }
  })

  it.each(named)('%s comes out as it went in: parse, emit, same bytes', (_, bytes) => {
    const rebuilder = new Rebuilder(bytes)
    rebuilder.frame()
    expect(rebuilder.at).toBeGreaterThan(INNER_IP)
    expect(rebuilder.rest()).toEqual(bytes)
  })

  it.each(named)('%s is described without a problem, down to the inner packet', (name, bytes) => {
    const notes = describeLayers(bytes, 0, bytes.length, 'ethernet')
    expect(notes.filter((note) => note.problem !== undefined)).toEqual([])
    const layers = notes.map((note) => note.layer).filter((layer, index, all) => layer !== all[index - 1])
    expect(layers.slice(0, 6), name).toEqual(['Ethernet', 'IPv4', 'UDP', 'VXLAN', 'Ethernet', innerOf(name).layer])
  })

  it('show how the kernel sets the outer ECN field: copied, but CE goes out as ECT(0)', () => {
    const ecn = (name: string) => {
      const view = new DataView(goldenFrame(`vxlan-udpcsum/${name}`).buffer)
      return [OUTER_IP, INNER_IP].map((at) => ipv4.getTos(view, at) & 3)
    }
    expect(ecn('icmp-echo-request')).toEqual([0, 0])
    expect(ecn('inner-ect-1')).toEqual([1, 1])
    expect(ecn('inner-ect-0')).toEqual([2, 2])
    expect(ecn('inner-ce')).toEqual([2, 3])
  })

  it('show that it does the same for IPv6 inside', () => {
    const view = new DataView(goldenFrame('vxlan-ipv6/inner-ce').buffer)
    expect([ipv4.getTos(view, OUTER_IP) & 3, ipv6.getEcn(view, INNER_IP)]).toEqual([2, 3])
  })
})

describe('a planted fault in a golden frame', () => {
  it.each(named)('%s: one changed byte of what a checksum covers is found', (name, bytes) => {
    const headers = ['Ethernet', 'VXLAN', 'payload']
    const { wire } = innerOf(name)
    const whole = describeLayers(bytes, 0, bytes.length, 'ethernet')
    const covered = whole.filter(
      (note) =>
        !headers.includes(note.layer) && note.at >= INNER_IP && note.at + note.length <= INNER_IP + wire.HEADER_LEN,
    )
    expect(covered.length, name).toBe(wire.FIELDS.length)
    for (const { at } of covered) {
      const changed = bytes.slice()
      changed[at] = (changed[at] ?? 0) ^ 0x10
      expect(describeLayers(changed, 0, changed.length, 'ethernet').some((note) => note.problem !== undefined)).toBe(
        true,
      )
    }
  })
})
