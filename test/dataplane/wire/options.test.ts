// Lists of options: whole ones, and those that lie about their lengths.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { describeOptions, IPV6_OPTIONS, parseOptions } from '../../../dataplane/wire/options.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'

const NAMES = { 2: { name: 'two', about: 'known', show: (data: Uint8Array) => String(data[0]) } }
const kinds = (hex: string) => parseOptions(bytesFrom(hex), 0, bytesFrom(hex).length).map((option) => option.kind)
const notesOf = (hex: string, end = bytesFrom(hex).length) => describeOptions('Test', NAMES, bytesFrom(hex), 0, end)
const brief = (hex: string, end?: number) =>
  notesOf(hex, end).map((note) => `${note.at}+${note.length} ${note.name} ${note.value}`)

describe('a list of options', () => {
  it('is parsed into kind, length and data', () => {
    expect(parseOptions(bytesFrom('01 02 04 05 82 04 02 00'), 0, 8)).toEqual([
      { kind: 1, length: 1, data: new Uint8Array() },
      { kind: 2, length: 4, data: bytesFrom('05 82') },
      { kind: 4, length: 2, data: new Uint8Array() },
      { kind: 0, length: 1, data: new Uint8Array() },
    ])
  })

  it.each([
    ['an end of list', '01 00 02 02', [1, 0]],
    ['a length of 0', '01 02 00 01', [1]],
    ['a length of 1', '01 02 01 01', [1]],
    ['a length beyond the header', '01 02 04 01', [1]],
    ['a missing length', '01 01 01 02', [1, 1, 1]],
  ])('ends at %s', (_, hex, expected) => {
    expect(kinds(hex)).toEqual(expected)
  })

  it('is described with names, padding, and what cannot be read', () => {
    expect(brief('01 02 03 07 fe 02 00 ff')).toEqual([
      '0+1 nop ',
      '1+3 two 7',
      '4+2 option 254 ',
      '6+1 end ',
      '7+1 padding ff',
    ])
    expect(notesOf('01 02 00 09')).toMatchObject([
      { name: 'nop' },
      { name: 'option 2', at: 1, length: 3, value: '020009' },
    ])
    expect(notesOf('01 02 00 09')[1]?.problem).toMatch(/below 2/)
  })

  it('that is cut off is called truncated', () => {
    expect(notesOf('01 02 04', 8)[1]).toMatchObject({ name: 'option 2', problem: 'truncated' })
    expect(notesOf('01 01', 8).at(-1)).toMatchObject({ name: 'options', at: 2, length: 6, problem: 'truncated' })
  })

  it('is described whole, whatever the bytes: no gap, no overlap, no throw', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), fc.nat(8), (buf, missing) => {
        const notes = describeOptions('Test', NAMES, buf, 0, buf.length + missing)
        let at = 0
        for (const note of notes.filter((candidate) => candidate.name !== 'options')) {
          expect(note.at).toBe(at)
          at += note.length
        }
        expect(at).toBe(buf.length)
      }),
      { numRuns: 1000 },
    )
  })
})

describe('a list of IPv6 options', () => {
  const parsed = (hex: string) => parseOptions(bytesFrom(hex), 0, bytesFrom(hex).length, IPV6_OPTIONS)

  it('has lengths that count the data alone, one-byte padding, and no end but its own', () => {
    expect(parsed('05 02 00 01 00 00 01 00')).toEqual([
      { kind: 5, length: 4, data: bytesFrom('00 01') },
      { kind: 0, length: 1, data: new Uint8Array() },
      { kind: 0, length: 1, data: new Uint8Array() },
      { kind: 1, length: 2, data: new Uint8Array() },
    ])
  })

  it('ends before an option that is cut off', () => {
    expect(parsed('00 01 05 00')).toHaveLength(1)
    expect(parsed('00 01')).toHaveLength(1)
  })
})
