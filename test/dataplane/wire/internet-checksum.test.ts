// The plain Internet checksum: the example of RFC 1071 §3, and its laws on random bytes.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  checksumProblem,
  correctChecksum,
  finish,
  fold,
  sumPseudoHeader,
  sumPseudoHeader6,
  sumWords,
} from '../../../dataplane/wire/internet-checksum.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'

const bytes = fc.uint8Array({ maxLength: 200 })

describe('the Internet checksum', () => {
  it('gives the sum of the example in RFC 1071', () => {
    const buf = bytesFrom('00 01 f2 03 f4 f5 f6 f7')
    expect(sumWords(buf, 0, buf.length)).toBe(0x2ddf0)
    expect(fold(0x2ddf0)).toBe(0xddf2)
    expect(finish(0x2ddf0)).toBe(0x220d)
  })

  it('pads an odd last byte with zero and reads no byte beyond the end', () => {
    expect(sumWords(bytesFrom('01 02 03 ff'), 0, 3)).toBe(0x0102 + 0x0300)
    expect(sumWords(bytesFrom('01'), 0, 1, 5)).toBe(0x0105)
    expect(sumWords(bytesFrom('01'), 0, 0, 5)).toBe(5)
  })

  it('does not depend on where an even cut is made', () => {
    fc.assert(
      fc.property(bytes, fc.nat(100), (buf, half) => {
        const cut = Math.min(half * 2, buf.length - (buf.length % 2))
        expect(sumWords(buf, cut, buf.length, sumWords(buf, 0, cut))).toBe(sumWords(buf, 0, buf.length))
      }),
    )
  })

  it('makes the whole sum 0xffff once it is written into the bytes, and finds each other value wrong', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 2, maxLength: 200 }), fc.nat(0xffff), (buf, found) => {
        const view = new DataView(buf.buffer)
        view.setUint16(0, found)
        const right = correctChecksum(found, sumWords(buf, 0, buf.length))
        const judged = checksumProblem(found, sumWords(buf, 0, buf.length))
        view.setUint16(0, right)
        expect(fold(sumWords(buf, 0, buf.length))).toBe(0xffff)
        expect(checksumProblem(right, sumWords(buf, 0, buf.length))).toBeUndefined()
        if (judged !== undefined) expect(found).not.toBe(right)
        // 0 and 0xffff are the same number in one's complement: either is taken for the other.
        else expect(found % 0xffff).toBe(right % 0xffff)
      }),
    )
  })

  it('sums the pseudo header as if it lay before the datagram', () => {
    const pseudo = bytesFrom('0a f4 01 07  ff fe fd fc  00 11 01 02')
    expect(sumPseudoHeader(0x0af40107, 0xfffefdfc, 17, 0x0102)).toBe(sumWords(pseudo, 0, pseudo.length))
  })

  it('sums the pseudo header of IPv6 as if it lay before the packet, also with a length beyond 16 bits', () => {
    // RFC 8200 §8.1: addresses, 32 bits of length, three zero bytes, next header.
    const pseudo = bytesFrom(
      'fd00 0010 0244 0001 0000 0000 0000 0107  fe80 ffff fdfc 0000 8000 0000 0000 0002  00 01 01 02 000000 3a',
    )
    const [source, destination] = [
      0xfd00_0010_0244_0001_0000_0000_0000_0107n,
      0xfe80_ffff_fdfc_0000_8000_0000_0000_0002n,
    ]
    expect(sumPseudoHeader6(source, destination, 58, 0x10102)).toBe(sumWords(pseudo, 0, pseudo.length))
  })
})
