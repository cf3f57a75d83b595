// Ethernet II header: property suite and golden bytes.
import { describe, expect, it } from 'vitest'
import * as ethernet from '../../../dataplane/wire/ethernet.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

checkWireFormat<ethernet.EthernetHeader>('Ethernet', {
  fields: ethernet.FIELDS,
  headerLength: ethernet.HEADER_LEN,
  parse: ethernet.parse,
  emit: ethernet.emit,
  describe: ethernet.describe,
  valid: fieldValues<ethernet.EthernetHeader>(ethernet.FIELDS),
  tail: () => 0,
  golden: [
    {
      header: { destination: 0x0e5a00000002, source: 0xfe5a80000001, etherType: ethernet.ETHERTYPE_IPV4 },
      hex: '0e 5a 00 00 00 02  fe 5a 80 00 00 01  08 00',
    },
  ],
  refused: { truncated: '0e 5a 00 00 00 02  fe 5a 80 00 00 01  08' },
  getters: [
    { name: 'destination', get: ethernet.getDestination, of: (header) => header.destination },
    { name: 'source', get: ethernet.getSource, of: (header) => header.source },
    { name: 'EtherType', get: ethernet.getEtherType, of: (header) => header.etherType },
  ],
  setters: [
    {
      name: 'the destination',
      set: (view, at, mac) => ethernet.write(view, at, mac, 0, 0),
      get: ethernet.getDestination,
      bits: 48,
      bytes: ethernet.HEADER_LEN,
    },
    {
      name: 'the source',
      set: (view, at, mac) => ethernet.write(view, at, 0, mac, 0),
      get: ethernet.getSource,
      bits: 48,
      bytes: ethernet.HEADER_LEN,
    },
  ],
})

describe('Ethernet write', () => {
  it('writes what emit writes, for MACs with the top bit set too', () => {
    const header = { destination: 0xffff_ffff_ffff, source: 0x8000_8000_0001, etherType: ethernet.ETHERTYPE_IPV6 }
    const written = new Uint8Array(ethernet.HEADER_LEN).fill(0xa5)
    ethernet.write(new DataView(written.buffer), 0, header.destination, header.source, header.etherType)
    const emitted = new Uint8Array(ethernet.HEADER_LEN)
    ethernet.emit(header, emitted, 0)
    expect(written).toEqual(emitted)
  })
})
