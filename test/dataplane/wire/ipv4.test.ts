// IPv4 header: property suite, golden bytes, options, and each way to refuse one.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { finish, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import * as ipv4 from '../../../dataplane/wire/ipv4.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

type Fields = Omit<ipv4.Ipv4Header, 'options'>

/** Up to ten words of nop options. */
const optionBytes = fc.integer({ min: 0, max: 10 }).map((words) => new Uint8Array(words * 4).fill(1))

function withRightChecksum(header: ipv4.Ipv4Header): ipv4.Ipv4Header {
  const buf = new Uint8Array(ipv4.HEADER_LEN + header.options.length)
  ipv4.emit({ ...header, checksum: 0 }, buf, 0)
  return { ...header, checksum: finish(sumWords(buf, 0, buf.length)) }
}

const valid = fc
  .tuple(fieldValues<Fields>(ipv4.FIELDS), optionBytes, fc.integer({ min: 0, max: 1500 }))
  .map(([fields, options, payloadBytes]) =>
    withRightChecksum({
      ...fields,
      version: 4,
      flags: fields.flags & 3,
      headerWords: 5 + options.length / 4,
      totalLength: ipv4.HEADER_LEN + options.length + payloadBytes,
      options,
    }),
  )

checkWireFormat<ipv4.Ipv4Header>('IPv4', {
  fields: ipv4.FIELDS,
  headerLength: ipv4.HEADER_LEN,
  parse: ipv4.parse,
  emit: ipv4.emit,
  describe: ipv4.describe,
  valid,
  tail: (header) => header.totalLength - header.headerWords * 4,
  golden: [
    {
      header: {
        version: 4,
        headerWords: 5,
        dscp: 46,
        ecn: 1,
        totalLength: 84,
        identification: 0x4e22,
        flags: 2,
        fragmentOffset: 0,
        ttl: 64,
        protocol: ipv4.PROTOCOL_ICMP,
        checksum: 0xd2e6,
        source: 0x0af40100,
        destination: 0x0af40200,
        options: new Uint8Array(),
      },
      hex: '45 b9 00 54 4e 22 40 00 40 01 d2 e6 0a f4 01 00 0a f4 02 00',
    },
    {
      header: {
        version: 4,
        headerWords: 6,
        dscp: 0,
        ecn: 3,
        totalLength: 24,
        identification: 1,
        flags: 1,
        fragmentOffset: 178,
        ttl: 1,
        protocol: ipv4.PROTOCOL_UDP,
        checksum: 0x2b66,
        source: 0xc0a8380b,
        destination: 0xe0000001,
        options: bytesFrom('94 04 00 00'),
      },
      hex: '46 03 00 18 00 01 20 b2 01 11 2b 66 c0 a8 38 0b e0 00 00 01 94 04 00 00',
    },
  ],
  refused: {
    truncated: '45 00 00 15 00 01 00 00 40 01 00 00 0a f4 01 00 0a f4 02 00',
    'bad-version': '65 00 00 14 00 01 00 00 40 01 00 00 0a f4 01 00 0a f4 02 00',
    'bad-header-length': '44 00 00 14 00 01 00 00 40 01 00 00 0a f4 01 00 0a f4 02 00',
    'bad-checksum': '45 00 00 14 00 01 00 00 40 01 00 00 0a f4 01 00 0a f4 02 00',
  },
  getters: [
    { name: 'version', get: ipv4.getVersion, of: (header) => header.version },
    { name: 'header bytes', get: ipv4.getHeaderBytes, of: (header) => header.headerWords * 4 },
    { name: 'type of service', get: ipv4.getTos, of: (header) => header.dscp * 4 + header.ecn },
    { name: 'total length', get: ipv4.getTotalLength, of: (header) => header.totalLength },
    { name: 'identification', get: ipv4.getIdentification, of: (header) => header.identification },
    {
      name: 'flags and fragment offset',
      get: ipv4.getFragmentWord,
      of: (header) => header.flags * 8192 + header.fragmentOffset,
    },
    { name: 'TTL', get: ipv4.getTtl, of: (header) => header.ttl },
    { name: 'protocol', get: ipv4.getProtocol, of: (header) => header.protocol },
    { name: 'checksum', get: ipv4.getChecksum, of: (header) => header.checksum },
    { name: 'source', get: ipv4.getSource, of: (header) => header.source },
    { name: 'destination', get: ipv4.getDestination, of: (header) => header.destination },
  ],
  setters: [
    { name: 'the type of service', set: ipv4.setTos, get: ipv4.getTos, bits: 8, bytes: 1 },
    { name: 'the total length', set: ipv4.setTotalLength, get: ipv4.getTotalLength, bits: 16, bytes: 2 },
    { name: 'the identification', set: ipv4.setIdentification, get: ipv4.getIdentification, bits: 16, bytes: 2 },
    { name: 'the fragment word', set: ipv4.setFragmentWord, get: ipv4.getFragmentWord, bits: 16, bytes: 2 },
    { name: 'the TTL', set: ipv4.setTtl, get: ipv4.getTtl, bits: 8, bytes: 1 },
    { name: 'the checksum', set: ipv4.setChecksum, get: ipv4.getChecksum, bits: 16, bytes: 2 },
    { name: 'the source', set: ipv4.setSource, get: ipv4.getSource, bits: 32, bytes: 4 },
    { name: 'the destination', set: ipv4.setDestination, get: ipv4.getDestination, bits: 32, bytes: 4 },
  ],
})

describe('the masks of the IPv4 fragment word', () => {
  it('are the flags DF and MF and the 13 bits of the offset', () => {
    const buf = new Uint8Array(ipv4.HEADER_LEN)
    const view = new DataView(buf.buffer)
    const wordOf = (flags: number, fragmentOffset: number) => {
      const header = ipv4.parse(bytesFrom('45 00 00 14 00 01 00 00 40 01 62 01 0a f4 01 00 0a f4 02 00'), 0, 20)
      ipv4.emit({ ...(header as ipv4.Ipv4Header), flags, fragmentOffset }, buf, 0)
      return ipv4.getFragmentWord(view, 0)
    }
    expect(wordOf(2, 0)).toBe(ipv4.DONT_FRAGMENT)
    expect(wordOf(1, 0)).toBe(ipv4.MORE_FRAGMENTS)
    expect(wordOf(0, 0x1fff)).toBe(ipv4.OFFSET_MASK)
  })
})

describe('an IPv4 header', () => {
  const good = '45 00 00 14 00 01 00 00 40 01 62 01 0a f4 01 00 0a f4 02 00'
  const problemsOf = (buf: Uint8Array) =>
    Object.fromEntries(
      ipv4
        .describe(buf, 0, buf.length)
        .filter((note) => note.problem !== undefined)
        .map((note) => [note.name, note.problem]),
    )

  it('that would be longer than the packet is refused, though the bytes are there', () => {
    const buf = new Uint8Array(60)
    buf.set(bytesFrom(good))
    buf[0] = 0x46
    expect(ipv4.parse(buf, 0, buf.length)).toBe('bad-header-length')
    expect(problemsOf(buf)).toHaveProperty('headerWords', 'the header would be longer than the packet')
  })

  it('with padding behind the packet is accepted: short Ethernet frames are filled up', () => {
    const buf = new Uint8Array(46)
    buf.set(bytesFrom(good))
    expect(ipv4.parse(buf, 0, buf.length)).toMatchObject({ totalLength: 20, ttl: 64 })
    expect(problemsOf(buf)).toEqual({})
  })

  it('with one flipped bit has a wrong checksum or worse, and the description names the right checksum', () => {
    for (let bit = 0; bit < ipv4.HEADER_LEN * 8; bit++) {
      const buf = bytesFrom(good)
      const index = Math.floor(bit / 8)
      buf[index] = (buf[index] ?? 0) ^ (0x80 >> (bit % 8))
      expect(ipv4.parse(buf, 0, buf.length), `bit ${bit}`).toBeTypeOf('string')
      expect(problemsOf(buf), `bit ${bit}`).not.toEqual({})
    }
    const buf = bytesFrom(good)
    ipv4.setChecksum(new DataView(buf.buffer), 0, 0)
    expect(problemsOf(buf)).toEqual({ checksum: 'wrong, should be 0x6201' })
    expect(ipv4.computeChecksum(buf, 0)).toBe(0x6201)
    expect(ipv4.computeChecksum(bytesFrom(good), 0)).toBe(0x6201)
  })

  it('with the reserved flag is accepted as the kernel does, and marked', () => {
    const buf = bytesFrom(good)
    ipv4.setFragmentWord(new DataView(buf.buffer), 0, 0x8000)
    ipv4.setChecksum(new DataView(buf.buffer), 0, ipv4.computeChecksum(buf, 0))
    expect(ipv4.parse(buf, 0, buf.length)).toMatchObject({ flags: 4 })
    expect(problemsOf(buf)).toEqual({ flags: 'the reserved bit is set' })
  })

  it('has its options described by name', () => {
    const buf = bytesFrom('46 03 00 18 00 01 20 b2 01 11 2b 66 c0 a8 38 0b e0 00 00 01 94 04 00 00')
    const options = ipv4.describe(buf, 0, buf.length).slice(ipv4.FIELDS.length)
    expect(options).toMatchObject([{ name: 'routerAlert', at: 20, length: 4, value: '0000' }])
  })
})
