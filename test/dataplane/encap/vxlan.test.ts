// The VXLAN encapsulation: what it writes for a peer, what it takes from one, and what it adds to a packet.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { OVERHEAD_BYTES } from '../../../dataplane/encap/overhead.ts'
import { VxlanEncapsulation } from '../../../dataplane/encap/vxlan.ts'
import { encodeForwardingTable, ForwardingTable } from '../../../dataplane/forwarding/forwarding-table.ts'
import * as ethernet from '../../../dataplane/wire/ethernet.ts'
import { prefixAround } from '../../../dataplane/wire/prefix.ts'
import * as vxlan from '../../../dataplane/wire/vxlan.ts'
import { entryFor, NODE_B, VNI } from '../../support/engine-pair.ts'
import { ip, viewOf } from '../../support/packets.ts'
import { ENCAP_BYTES, vxlanFrame } from '../../support/vxlan-frame.ts'

const tableOf = (mac: number, vni: number) =>
  new ForwardingTable(
    encodeForwardingTable(
      [{ prefix: prefixAround(ip('10.244.2.0'), 24), vtep: { underlayAddress: 1, port: 8472, mac, vni } }],
      1,
    ),
  )

/** A unicast MAC that is not zero. */
const mac = fc.integer({ min: 1, max: 2 ** 40 - 1 })
const vni = fc.integer({ min: 1, max: 2 ** 24 - 1 })
const version = fc.constantFrom(4, 6)

describe('the header written', () => {
  it('names the VTEPs and the network, and overwrites every byte', () => {
    fc.assert(
      fc.property(mac, mac, vni, version, (ours, theirs, network, inner) => {
        const bytes = new Uint8Array(ENCAP_BYTES + 2).fill(0xa5)
        new VxlanEncapsulation({ vni: network, mac: ours }).write(viewOf(bytes), 1, tableOf(theirs, network), 0, inner)
        expect(vxlan.parse(bytes, 1, bytes.length)).toMatchObject({ flags: 8, vni: network })
        expect(ethernet.parse(bytes, 1 + vxlan.HEADER_LEN, bytes.length)).toEqual({
          destination: theirs,
          source: ours,
          etherType: inner === 4 ? ethernet.ETHERTYPE_IPV4 : ethernet.ETHERTYPE_IPV6,
        })
        expect([bytes[0], bytes.at(-1)]).toEqual([0xa5, 0xa5])
      }),
    )
  })

  it('is what the peer takes', () => {
    fc.assert(
      fc.property(mac, mac, vni, version, (ours, theirs, network, inner) => {
        fc.pre(ours !== theirs)
        const bytes = new Uint8Array(ENCAP_BYTES + 1)
        bytes[ENCAP_BYTES] = inner << 4
        new VxlanEncapsulation({ vni: network, mac: ours }).write(viewOf(bytes), 0, tableOf(theirs, network), 0, inner)
        const peer = new VxlanEncapsulation({ vni: network, mac: theirs })
        expect(peer.check(viewOf(bytes), 0, bytes.length)).toBeNull()
        expect(peer.check(viewOf(bytes), 0, ENCAP_BYTES)).toBe('truncated')
        expect(peer.check(viewOf(bytes), 0, ENCAP_BYTES - 1)).toBe('vxlan-short')
        bytes[ENCAP_BYTES] = (10 - inner) << 4
        expect(peer.check(viewOf(bytes), 0, bytes.length)).toBe('bad-version')
      }),
    )
  })
})

describe('the header checked', () => {
  const ours = new VxlanEncapsulation({ vni: VNI, mac: NODE_B.mac })

  it('may differ in no bit but those of the source MAC', () => {
    const good = vxlanFrame(Uint8Array.of(0x45))
    const sourceAt = vxlan.HEADER_LEN + 6
    for (let bit = 0; bit < ENCAP_BYTES * 8; bit++) {
      const frame = good.slice()
      frame[bit >> 3]! ^= 0x80 >> (bit & 7)
      const reason = ours.check(viewOf(frame), 0, frame.length)
      const isInSource = bit >> 3 >= sourceAt && bit >> 3 < sourceAt + 6
      const isGroup = bit === sourceAt * 8 + 7
      if (isInSource && !isGroup && ethernet.getSource(viewOf(frame), vxlan.HEADER_LEN) !== NODE_B.mac) {
        expect(reason, `bit ${bit}`).toBeNull()
      } else expect(reason, `bit ${bit}`).not.toBeNull()
    }
  })
})

describe('what it adds', () => {
  it('is 50 bytes on an IPv4 underlay, 22 of them inside UDP', () => {
    expect(OVERHEAD_BYTES).toEqual({ vxlan: 50, udp: 28 })
    expect(new VxlanEncapsulation({ vni: VNI, mac: 1 }).headerBytes).toBe(ENCAP_BYTES)
    expect(entryFor(NODE_B).vtep.vni).toBe(VNI)
  })
})
