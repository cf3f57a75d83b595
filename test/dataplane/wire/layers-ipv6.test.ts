// The walk through IPv6 packets: extension headers, fragments, quotes, on what the kernel sent and on made-up ones.
import { describe, expect, it } from 'vitest'
import * as icmpv6 from '../../../dataplane/wire/icmpv6.ts'
import * as ipv6 from '../../../dataplane/wire/ipv6.ts'
import { describeLayers } from '../../../dataplane/wire/layers.ts'
import { goldenFrame } from '../../support/golden-frames.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { INNER_AT, problems, route, value, walk } from '../../support/layer-walk.ts'

const OUTER = 'Ethernet IPv4 UDP VXLAN Ethernet IPv6'

describe('the walk through IPv6', () => {
  it.each([
    ['icmpv6-echo-request', `${OUTER} ICMPv6 payload`],
    ['tcp-syn', `${OUTER} TCP`],
    ['udp', `${OUTER} UDP payload`],
    ['destination-options', `${OUTER} IPv6 destination UDP payload`],
    ['hop-by-hop', `${OUTER} IPv6 hop-by-hop ICMPv6 payload`],
    ['udp-first-fragment', `${OUTER} IPv6 fragment UDP payload`],
    ['udp-last-fragment', `${OUTER} IPv6 fragment payload`],
    ['icmpv6-port-unreachable', `${OUTER} ICMPv6 IPv6 UDP payload`],
    ['neighbour-solicitation', `${OUTER} ICMPv6 payload`],
  ])('of %s meets %s', (name, expected) => {
    expect(route(walk(goldenFrame(`vxlan-ipv6/${name}`)))).toBe(expected)
  })

  it('begins at any layer that it is told', () => {
    const frame = goldenFrame('vxlan-ipv6/icmpv6-echo-reply')
    expect(route(walk(frame.subarray(INNER_AT), 'ipv6'))).toBe('IPv6 ICMPv6 payload')
    expect(route(walk(frame.subarray(INNER_AT + 40), 'icmpv6'))).toBe('ICMPv6 payload')
    const withVnet = new Uint8Array(10 + frame.length - INNER_AT)
    withVnet.set(frame.subarray(INNER_AT), 10)
    expect(route(walk(withVnet, 'virtio-net'))).toBe('virtio-net IPv6 ICMPv6 payload')
  })

  it('passes several extension headers, AH too, and stops at the one that is cut', () => {
    const packet = bytesFrom(
      `60000000 002c 3c 40 ${'00'.repeat(32)} 3300 0104 00000000 2b01 0000 00000000 00000000 0600 0400 00000000`,
    )
    const tcp = bytesFrom('c8001389 c6f642e9 00000000 5002fd5c 50dc0000')
    const whole = new Uint8Array(packet.length + tcp.length)
    whole.set(packet)
    whole.set(tcp, packet.length)
    expect(packet.length).toBe(40 + 8 + 12 + 8)
    ipv6.setPayloadLength(new DataView(whole.buffer), 0, whole.length - 40)
    expect(route(walk(whole, 'ipv6'))).toBe('IPv6 IPv6 destination AH IPv6 routing TCP')
    ipv6.setPayloadLength(new DataView(whole.buffer), 0, 16)
    const cut = walk(whole.subarray(0, 56), 'ipv6')
    expect(route(cut)).toBe('IPv6 IPv6 destination AH')
    expect(problems(cut)).toContain('AH length: the header reaches beyond the packet')
  })

  it('does not judge a checksum whose last address lies in a routing header', () => {
    const segments = (left: string) =>
      bytesFrom(`60000000 0010 2b 40 ${'00'.repeat(32)} 1100 04 ${left} 00000000 0fa0 1388 0008 beef`)
    expect(problems(walk(segments('01'), 'ipv6'))).toEqual([])
    expect(problems(walk(segments('00'), 'ipv6'))).toEqual([expect.stringMatching(/^UDP checksum: wrong/)])
  })

  it('takes an atomic fragment for the whole packet that it is', () => {
    const packet = bytesFrom(`60000000 0010 2c 40 ${'00'.repeat(32)} 1100 0000 00000007 0fa0 1388 0008 beef`)
    expect(route(walk(packet, 'ipv6'))).toBe('IPv6 IPv6 fragment UDP')
    expect(problems(walk(packet, 'ipv6'))).toEqual([expect.stringMatching(/^UDP checksum: wrong/)])
  })

  it('does not take the ICMP of the other family for one', () => {
    expect(route(walk(bytesFrom(`60000000 0008 01 40 ${'00'.repeat(32)} 0800f7ff 00000000`), 'ipv6'))).toBe(
      'IPv6 payload',
    )
    expect(route(walk(bytesFrom('4500001c 00010000 403a0000 0af40100 0af40200 8000f7ff 00000000'), 'ipv4'))).toBe(
      'IPv4 payload',
    )
  })

  it('shows padding behind the packet as padding', () => {
    const frame = goldenFrame('vxlan-ipv6/udp').subarray(INNER_AT - 14)
    const buf = new Uint8Array(frame.length + 9)
    buf.set(frame)
    const notes = walk(buf)
    expect(problems(notes)).toEqual([])
    expect(notes).toContainEqual(expect.objectContaining({ layer: 'padding', at: frame.length, length: 9 }))
  })

  it('finds nothing wrong with a packet that a router quotes, however little it quotes', () => {
    const inner = goldenFrame('vxlan-ipv6/destination-options').subarray(INNER_AT)
    for (let quoted = 40; quoted <= inner.length; quoted++) {
      const message = new Uint8Array(8 + quoted)
      icmpv6.write(new DataView(message.buffer), 0, icmpv6.TYPE_PACKET_TOO_BIG, 0, 1400)
      message.set(inner.subarray(0, quoted), 8)
      const notes = walk(message, 'icmpv6')
      expect(problems(notes), `${quoted} bytes`).toEqual([])
      expect(value(notes, 'ICMPv6', 'mtu')).toEqual(['1400'])
    }
  })

  it('finds a fault wherever the packet is cut', () => {
    for (const name of ['tcp-syn', 'destination-options', 'hop-by-hop', 'neighbour-solicitation']) {
      const frame = goldenFrame(`vxlan-ipv6/${name}`)
      for (let length = 0; length < frame.length; length++) {
        const notes = describeLayers(frame, 0, length, 'ethernet')
        expect(problems(notes).length, `${name} cut at ${length}`).toBeGreaterThan(0)
      }
    }
  })
})
