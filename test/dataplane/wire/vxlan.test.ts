// VXLAN header: property suite, golden bytes, and what the kernel refuses.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HEADER_LEN as ETHERNET_HEADER_LEN } from '../../../dataplane/wire/ethernet.ts'
import * as vxlan from '../../../dataplane/wire/vxlan.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat } from '../../support/wire-properties.ts'

const FRAME = '00'.repeat(ETHERNET_HEADER_LEN)
const header = (vni: number): vxlan.VxlanHeader => ({ flags: 0x08, reserved1: 0, vni, reserved2: 0 })

checkWireFormat<vxlan.VxlanHeader>('VXLAN', {
  fields: vxlan.FIELDS,
  headerLength: vxlan.HEADER_LEN,
  parse: vxlan.parse,
  emit: vxlan.emit,
  describe: vxlan.describe,
  valid: fc.integer({ min: 0, max: 0xffffff }).map(header),
  tail: () => ETHERNET_HEADER_LEN,
  golden: [
    { header: header(1), hex: '08 00 00 00 00 00 01 00' },
    { header: header(0x010203), hex: '08 00 00 00 01 02 03 00' },
    { header: header(0xffffff), hex: '08 00 00 00 ff ff ff 00' },
  ],
  refused: {
    'vxlan-short': `08000000 00000100 ${FRAME.slice(2)}`,
    'vxlan-no-vni': `00000000 00000100 ${FRAME}`,
    'vxlan-reserved-bits': `08000000 00000101 ${FRAME}`,
  },
  getters: [
    { name: 'flags', get: vxlan.getFlags, of: ({ flags }) => flags },
    { name: 'VNI', get: vxlan.getVni, of: ({ vni }) => vni },
    { name: 'the first word', get: vxlan.getWord0, of: () => vxlan.WORD0 },
    { name: 'the second word', get: vxlan.getWord1, of: ({ vni }) => vni * 256 },
  ],
  setters: [{ name: 'the VNI', set: vxlan.write, get: vxlan.getVni, bits: 24, bytes: 8 }],
})

describe('a received VXLAN header', () => {
  const withFrame = (hex: string) => bytesFrom(hex + FRAME)
  const parse = (hex: string) => {
    const buf = withFrame(hex)
    return vxlan.parse(buf, 0, buf.length)
  }
  const problems = (hex: string) => {
    const buf = withFrame(hex)
    const bad = vxlan.describe(buf, 0, buf.length).filter((note) => note.problem !== undefined)
    return Object.fromEntries(bad.map((note) => [note.name, note.problem]))
  }

  it('without the I flag is refused, whatever else is set', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 22, maxLength: 22 }), (bytes) => {
        bytes[0] = (bytes[0] ?? 0) & ~vxlan.FLAG_VNI_VALID
        expect(vxlan.parse(bytes, 0, bytes.length)).toBe('vxlan-no-vni')
      }),
    )
    expect(problems('00 000000 000001 00')).toEqual({ flags: expect.stringContaining('I flag is clear') })
  })

  it('with any reserved bit set is refused, each of them', () => {
    const vniBits = Array.from({ length: 24 }, (_, index) => 32 + index)
    for (let bit = 0; bit < vxlan.HEADER_LEN * 8; bit++) {
      const buf = withFrame('08 000000 000000 00')
      const index = Math.floor(bit / 8)
      buf[index] = (buf[index] ?? 0) ^ (0x80 >> (bit % 8))
      const expected = vniBits.includes(bit)
        ? header(2 ** (55 - bit))
        : bit === 4
          ? 'vxlan-no-vni'
          : 'vxlan-reserved-bits'
      expect(vxlan.parse(buf, 0, buf.length), `bit ${bit}`).toEqual(expected)
    }
    expect(problems('18 000001 000001 80')).toEqual({
      flags: 'reserved bits are set',
      reserved1: 'reserved bits are set',
      reserved2: 'reserved bits are set',
    })
  })

  it('with Group Based Policy bits is refused and they are called by name', () => {
    expect(parse('88 00 0007 000001 00')).toBe('vxlan-reserved-bits')
    expect(problems('88 48 0007 000001 00')).toEqual({
      flags: expect.stringContaining('Group Based Policy'),
      reserved1: expect.stringContaining('Group Based Policy'),
    })
  })

  it('without room for an inner Ethernet header is refused, and the description says how much is missing', () => {
    for (let length = 0; length < 22; length++) {
      expect(vxlan.parse(withFrame('08 000000 000001 00'), 0, length)).toBe('vxlan-short')
    }
    const notes = vxlan.describe(withFrame('08 000000 000001 00'), 0, 21)
    expect(notes.at(-1)).toMatchObject({ name: 'frame', length: 13, problem: 'only 13 bytes, and its header needs 14' })
  })

  it('with VNI 0 is well-formed: whose it is, the engine decides', () => {
    expect(parse('08 000000 000000 00')).toEqual(header(0))
  })
})
