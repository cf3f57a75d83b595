// IPv6 fragment header: property suite and golden bytes.
import { describe, expect, it } from 'vitest'
import * as fragment from '../../../dataplane/wire/ipv6-fragment.ts'
import { goldenFrame } from '../../support/golden-frames.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

checkWireFormat<fragment.Ipv6FragmentHeader>('IPv6 fragment', {
  fields: fragment.FIELDS,
  headerLength: fragment.HEADER_LEN,
  parse: fragment.parse,
  emit: fragment.emit,
  describe: fragment.describe,
  valid: fieldValues<fragment.Ipv6FragmentHeader>(fragment.FIELDS),
  tail: () => 0,
  golden: [
    {
      header: {
        nextHeader: 17,
        reserved: 0,
        fragmentOffset: 350,
        reserved2: 0,
        moreFragments: 1,
        identification: 0xc7d09ed4,
      },
      hex: '11 00 0a f1 c7 d0 9e d4',
    },
  ],
  refused: { truncated: '11 00 0a f1 c7 d0 9e' },
  getters: [
    { name: 'offset', get: fragment.getOffsetBytes, of: (header) => header.fragmentOffset * 8 },
    { name: 'M', get: fragment.getMoreFragments, of: (header) => header.moreFragments },
    { name: 'identification', get: fragment.getIdentification, of: (header) => header.identification },
  ],
  setters: [],
})

describe('the fragments that the kernel makes of a datagram of 3000 bytes', () => {
  const HEADER_AT = 64 + 40
  const read = (name: string) => {
    const frame = goldenFrame(`vxlan-ipv6/${name}`)
    const view = new DataView(frame.buffer)
    return {
      offset: fragment.getOffsetBytes(view, HEADER_AT),
      more: fragment.getMoreFragments(view, HEADER_AT),
      identification: fragment.getIdentification(view, HEADER_AT),
      bytes: frame.length - HEADER_AT - fragment.HEADER_LEN,
    }
  }

  it('begin at 0, say that more follow, and end where the datagram does', () => {
    const first = read('udp-first-fragment')
    const last = read('udp-last-fragment')
    expect([first.offset, first.more, last.more]).toEqual([0, 1, 0])
    expect(last.offset % first.bytes).toBe(0)
    expect(last.offset + last.bytes).toBe(8 + 3000)
    expect(last.identification).toBe(first.identification)
  })
})
