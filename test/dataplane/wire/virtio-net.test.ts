// virtio-net header: property suite, golden bytes in little-endian order, and headers that contradict their packet.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as virtioNet from '../../../dataplane/wire/virtio-net.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

const PACKET_BYTES = 3040
const gsoTypes = [0x00, 0x01, 0x03, 0x04, 0x05, 0x81, 0x84]

checkWireFormat<virtioNet.VirtioNetHeader>('virtio-net', {
  fields: virtioNet.FIELDS,
  headerLength: virtioNet.HEADER_LEN,
  parse: virtioNet.parse,
  emit: virtioNet.emit,
  describe: virtioNet.describe,
  valid: fieldValues<virtioNet.VirtioNetHeader>(virtioNet.FIELDS, {
    gsoType: fc.constantFrom(...gsoTypes),
    gsoSize: fc.integer({ min: 1, max: 65535 }),
    checksumStart: fc.integer({ min: 0, max: 3000 }),
    checksumOffset: fc.integer({ min: 0, max: 38 }),
  }),
  tail: () => PACKET_BYTES,
  golden: [
    {
      header: {
        flags: virtioNet.FLAG_NEEDS_CSUM,
        gsoType: virtioNet.GSO_TCPV4 | virtioNet.GSO_ECN,
        headerLength: 52,
        gsoSize: 1398,
        checksumStart: 20,
        checksumOffset: 16,
      },
      hex: '01 81 34 00 76 05 14 00 10 00',
    },
    {
      header: { flags: 0, gsoType: 0, headerLength: 0, gsoSize: 0, checksumStart: 0, checksumOffset: 0 },
      hex: '00 00 00 00 00 00 00 00 00 00',
    },
  ],
  refused: {
    truncated: '00 00 00 00 00 00 00 00 00',
    'vnet-inconsistent': '00 02 00 00 00 00 00 00 00 00',
  },
  getters: [
    { name: 'flags', get: virtioNet.getFlags, of: (header) => header.flags },
    { name: 'GSO type', get: virtioNet.getGsoType, of: (header) => header.gsoType },
    { name: 'header length', get: virtioNet.getHeaderLength, of: (header) => header.headerLength },
    { name: 'GSO size', get: virtioNet.getGsoSize, of: (header) => header.gsoSize },
    { name: 'checksum start', get: virtioNet.getChecksumStart, of: (header) => header.checksumStart },
    { name: 'checksum offset', get: virtioNet.getChecksumOffset, of: (header) => header.checksumOffset },
  ],
  setters: [],
})

describe('a virtio-net header', () => {
  const parse = (hex: string, packetBytes: number) => {
    const buf = new Uint8Array(virtioNet.HEADER_LEN + packetBytes)
    buf.set(bytesFrom(hex))
    return virtioNet.parse(buf, 0, buf.length)
  }

  it('is written by write as emit writes it', () => {
    fc.assert(
      fc.property(fieldValues<virtioNet.VirtioNetHeader>(virtioNet.FIELDS), (header) => {
        const written = new Uint8Array(virtioNet.HEADER_LEN).fill(0xa5)
        const { flags, gsoType, headerLength, gsoSize, checksumStart, checksumOffset } = header
        const view = new DataView(written.buffer)
        virtioNet.write(view, 0, flags, gsoType, headerLength, gsoSize, checksumStart, checksumOffset)
        const emitted = new Uint8Array(virtioNet.HEADER_LEN)
        virtioNet.emit(header, emitted, 0)
        expect(written).toEqual(emitted)
      }),
    )
  })

  it('with a checksum to complete beyond the packet is refused, up to the last byte', () => {
    expect(parse('01 00 0000 0000 1400 1000', 38)).toMatchObject({ checksumStart: 20, checksumOffset: 16 })
    expect(parse('01 00 0000 0000 1400 1000', 37)).toBe('vnet-inconsistent')
    expect(parse('00 00 0000 0000 1400 1000', 37)).toMatchObject({ flags: 0 })
    expect(parse('01 00 0000 0000 ffff ffff', 2000)).toBe('vnet-inconsistent')
  })

  it('of a super-packet without a piece size, or of a type nobody knows, is refused', () => {
    for (const type of gsoTypes.filter((known) => known !== 0)) {
      const hex = type.toString(16).padStart(2, '0')
      expect(parse(`00 ${hex} 0000 0000 0000 0000`, 100)).toBe('vnet-inconsistent')
      expect(parse(`00 ${hex} 0000 0100 0000 0000`, 100)).toMatchObject({ gsoType: type, gsoSize: 1 })
    }
    const unknown = Array.from({ length: 256 }, (_, type) => type).filter((type) => !gsoTypes.includes(type))
    for (const type of unknown) {
      expect(parse(`00 ${type.toString(16).padStart(2, '0')} 0000 0100 0000 0000`, 100)).toBe('vnet-inconsistent')
    }
  })

  it('is not judged by its header length, which the kernel fills as it likes', () => {
    expect(parse('00 01 ffff 7605 0000 0000', 100)).toMatchObject({ headerLength: 65535 })
  })
})
