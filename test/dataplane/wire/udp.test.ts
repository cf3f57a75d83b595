// UDP header: property suite, golden bytes, and the checksum that only the IP layer's addresses allow to judge.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { finish, fold, sumPseudoHeader, sumWords } from '../../../dataplane/wire/internet-checksum.ts'
import { PROTOCOL_UDP } from '../../../dataplane/wire/ipv4.ts'
import * as udp from '../../../dataplane/wire/udp.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

checkWireFormat<udp.UdpHeader>('UDP', {
  fields: udp.FIELDS,
  headerLength: udp.HEADER_LEN,
  parse: udp.parse,
  emit: udp.emit,
  describe: udp.describe,
  valid: fieldValues<udp.UdpHeader>(udp.FIELDS, { length: fc.integer({ min: 8, max: 2000 }) }),
  tail: (header) => header.length - udp.HEADER_LEN,
  golden: [
    { header: { sourcePort: 0x9aed, destinationPort: 8472, length: 8, checksum: 0 }, hex: '9a ed 21 18 00 08 00 00' },
    { header: { sourcePort: 53, destinationPort: 65535, length: 9, checksum: 0xbeef }, hex: '00 35 ff ff 00 09 be ef' },
  ],
  refused: { truncated: '9a ed 21 18 00 09 00 00', 'bad-header-length': '9a ed 21 18 00 07 00 00' },
  getters: [
    { name: 'both ports', get: udp.getPorts, of: (header) => (header.sourcePort * 65536 + header.destinationPort) | 0 },
    { name: 'source port', get: udp.getSourcePort, of: (header) => header.sourcePort },
    { name: 'destination port', get: udp.getDestinationPort, of: (header) => header.destinationPort },
    { name: 'length', get: udp.getLength, of: (header) => header.length },
    { name: 'checksum', get: udp.getChecksum, of: (header) => header.checksum },
  ],
  setters: [
    { name: 'the length', set: udp.setLength, get: udp.getLength, bits: 16, bytes: 2 },
    { name: 'the checksum', set: udp.setChecksum, get: udp.getChecksum, bits: 16, bytes: 2 },
  ],
})

const CARRIAGE = { source: 0x0af40107, destination: 0x0af40209, partial: false, pending: false }

/** What the description says about the checksum of a datagram with `payload` that carries `checksum`. */
function judged(payload: Uint8Array, checksum: (right: number, pseudo: number) => number, carriage = CARRIAGE) {
  const buf = new Uint8Array(udp.HEADER_LEN + payload.length)
  udp.emit({ sourcePort: 4000, destinationPort: 5000, length: buf.length, checksum: 0 }, buf, 0)
  buf.set(payload, udp.HEADER_LEN)
  const pseudo = sumPseudoHeader(carriage.source, carriage.destination, PROTOCOL_UDP, buf.length)
  udp.setChecksum(new DataView(buf.buffer), 0, checksum(finish(sumWords(buf, 0, buf.length, pseudo)), fold(pseudo)))
  return udp.describe(buf, 0, buf.length, carriage).find((note) => note.name === 'checksum')?.problem
}

describe('the UDP checksum in a description', () => {
  const odd = bytesFrom('01 02 03')

  it('is right, absent, or wrong with the right one named', () => {
    expect(judged(odd, (right) => right)).toBeUndefined()
    expect(judged(odd, () => 0)).toBeUndefined()
    expect(judged(odd, () => 0xbeef)).toMatch(/^wrong, should be 0x[0-9a-f]{4}$/)
  })

  it('has to be there over IPv6, but for a part of a datagram', () => {
    const buf = bytesFrom('0f a0 13 88 00 08 00 00')
    const over = (partial: boolean) =>
      udp
        .describe(buf, 0, buf.length, { source: 1n, destination: 2n, partial, pending: false })
        .flatMap(({ problem }) => problem ?? [])
    expect(over(false)).toEqual(['none, and IPv6 demands one'])
    expect(over(true)).toEqual([])
  })

  it('is recognised when it holds only the pseudo-header sum, which is right where somebody completes it', () => {
    expect(judged(odd, (_, pseudo) => pseudo)).toMatch(/only the pseudo-header sum/)
    expect(judged(odd, (_, pseudo) => pseudo, { ...CARRIAGE, pending: true })).toBeUndefined()
    expect(judged(odd, () => 0xbeef, { ...CARRIAGE, pending: true })).toMatch(/wrong/)
  })

  it('is not judged in a fragment, where most of what it covers is elsewhere', () => {
    expect(judged(odd, () => 0xbeef, { ...CARRIAGE, partial: true })).toBeUndefined()
  })
})
