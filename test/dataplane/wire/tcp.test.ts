// TCP header: property suite, golden bytes, flags, options.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as tcp from '../../../dataplane/wire/tcp.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

type Fields = Omit<tcp.TcpHeader, 'options'>

const optionBytes = fc.integer({ min: 0, max: 10 }).map((words) => new Uint8Array(words * 4).fill(1))

/** What Linux sends as the first segment of a connection: MSS 1410, SACK, timestamps, window scale 10. */
const SYN = {
  fixed: '85 73 13 89 00 00 00 01 00 00 00 00 a0 02 fa f0 3c 5b 00 00',
  options: '02 04 05 82 04 02 08 0a 00 00 00 07 00 00 00 00 01 03 03 0a',
}

checkWireFormat<tcp.TcpHeader>('TCP', {
  fields: tcp.FIELDS,
  headerLength: tcp.HEADER_LEN,
  parse: tcp.parse,
  emit: tcp.emit,
  describe: tcp.describe,
  valid: fc
    .tuple(fieldValues<Fields>(tcp.FIELDS, { reserved: fc.constant(0) }), optionBytes)
    .map(([fields, options]) => ({ ...fields, headerWords: 5 + options.length / 4, options })),
  tail: () => 0,
  golden: [
    {
      header: {
        sourcePort: 0x8573,
        destinationPort: 5001,
        sequence: 1,
        acknowledgment: 0,
        headerWords: 10,
        reserved: 0,
        accurateEcn: 0,
        flags: tcp.FLAG_SYN,
        window: 64240,
        checksum: 0x3c5b,
        urgentPointer: 0,
        options: bytesFrom(SYN.options),
      },
      hex: `${SYN.fixed} ${SYN.options}`,
    },
    {
      header: {
        sourcePort: 1,
        destinationPort: 2,
        sequence: 0xffffffff,
        acknowledgment: 0x80000000,
        headerWords: 5,
        reserved: 5,
        accurateEcn: 1,
        flags: tcp.FLAG_CWR | tcp.FLAG_ECE | tcp.FLAG_URG | tcp.FLAG_PSH | tcp.FLAG_FIN,
        window: 1,
        checksum: 2,
        urgentPointer: 3,
        options: new Uint8Array(),
      },
      hex: '0001 0002 ffffffff 80000000 5b e9 0001 0002 0003',
    },
  ],
  refused: {
    truncated: '0001 0002 ffffffff 80000000 50 10 0001 0002 00',
    'bad-header-length': '0001 0002 ffffffff 80000000 60 10 0001 0002 0003',
  },
  getters: [
    { name: 'both ports', get: tcp.getPorts, of: (header) => (header.sourcePort * 65536 + header.destinationPort) | 0 },
    { name: 'source port', get: tcp.getSourcePort, of: (header) => header.sourcePort },
    { name: 'destination port', get: tcp.getDestinationPort, of: (header) => header.destinationPort },
    { name: 'sequence', get: tcp.getSequence, of: (header) => header.sequence },
    { name: 'acknowledgment', get: tcp.getAcknowledgment, of: (header) => header.acknowledgment },
    { name: 'header bytes', get: tcp.getHeaderBytes, of: (header) => header.headerWords * 4 },
    { name: 'flags', get: tcp.getFlags, of: (header) => header.flags },
    { name: 'accurate ECN bit', get: tcp.getAccurateEcn, of: (header) => header.accurateEcn },
    { name: 'window', get: tcp.getWindow, of: (header) => header.window },
    { name: 'checksum', get: tcp.getChecksum, of: (header) => header.checksum },
    { name: 'urgent pointer', get: tcp.getUrgentPointer, of: (header) => header.urgentPointer },
  ],
  setters: [
    { name: 'the sequence', set: tcp.setSequence, get: tcp.getSequence, bits: 32, bytes: 4 },
    { name: 'the flags', set: tcp.setFlags, get: tcp.getFlags, bits: 8, bytes: 1 },
    { name: 'the checksum', set: tcp.setChecksum, get: tcp.getChecksum, bits: 16, bytes: 2 },
  ],
})

describe('a TCP header', () => {
  it('takes a sequence number modulo 2^32', () => {
    const view = new DataView(new ArrayBuffer(tcp.HEADER_LEN))
    tcp.setSequence(view, 0, 2 ** 32 + 5)
    expect(tcp.getSequence(view, 0)).toBe(5)
  })

  it('keeps the accurate ECN bit apart from the flags and the header length', () => {
    const buf = bytesFrom('0001 0002 00000000 00000000 51 00 0001 0002 0003')
    const view = new DataView(buf.buffer)
    tcp.setFlags(view, 0, 0xff)
    expect([tcp.getAccurateEcn(view, 0), tcp.getHeaderBytes(view, 0), tcp.getFlags(view, 0)]).toEqual([1, 20, 0xff])
    tcp.setFlags(view, 0, 0)
    expect([tcp.getAccurateEcn(view, 0), tcp.getHeaderBytes(view, 0), tcp.getFlags(view, 0)]).toEqual([1, 20, 0])
  })

  it('has its options described by name and value', () => {
    const buf = bytesFrom(SYN.fixed + SYN.options)
    const options = tcp.describe(buf, 0, buf.length).slice(tcp.FIELDS.length)
    expect(options.map((note) => `${note.at} ${note.name} ${note.value}`)).toEqual([
      '20 mss 1410',
      '24 sackPermitted ',
      '26 timestamps 7, 0',
      '36 nop ',
      '37 windowScale 10',
    ])
  })

  it('with a header length below 20 or beyond the packet is refused and marked', () => {
    for (const [byte, problem] of [
      ['40', 'below the 5 words of a header without options'],
      ['f0', 'the header would be longer than the packet'],
    ] as const) {
      const buf = bytesFrom(`0001 0002 00000000 00000000 ${byte} 10 0001 0002 0003`)
      expect(tcp.parse(buf, 0, buf.length)).toBe('bad-header-length')
      expect(tcp.describe(buf, 0, buf.length).find((note) => note.name === 'headerWords')?.problem).toBe(problem)
    }
  })
})
