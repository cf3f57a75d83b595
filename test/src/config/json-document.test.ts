// The JSON reader agrees with the engine's own on every document, and says where a bad one breaks.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { JsonProblem, memberOf, parseJson, positionOf, toPlain } from '../../../src/config/json-document.ts'

test('reads every document as JSON.parse does', () => {
  fc.assert(
    fc.property(fc.json(), fc.constantFrom(undefined, 1, '\t'), (text, indent) => {
      const value = JSON.parse(text) as unknown
      expect(toPlain(parseJson(JSON.stringify(value, null, indent)))).toEqual(value)
    }),
  )
})

test('refuses whatever JSON.parse refuses, and nothing else', () => {
  const soup = fc.string({
    unit: fc.constantFrom(...'{}[]":,-+.eE019 \n\t', '\\u0041', '\\x', 'null', 'tru', '\u0001'),
  })
  fc.assert(
    fc.property(soup, (text) => {
      let valid = true
      try {
        JSON.parse(text)
      } catch {
        valid = false
      }
      if (valid) expect(toPlain(parseJson(text))).toEqual(JSON.parse(text))
      else expect(() => parseJson(text)).toThrow(JsonProblem)
    }),
    { numRuns: 2000 },
  )
})

test('nesting without end is refused, not a crash', () => {
  expect(() => parseJson('['.repeat(100_000))).toThrow(JsonProblem)
})

test('a member is found whatever its case, the last one of several', () => {
  const node = parseJson('{"a": 1, "B": 2, "A": 3}')
  expect(memberOf(node, 'a')).toMatchObject({ text: '3' })
  expect(memberOf(node, 'c')).toBeUndefined()
  expect(memberOf(parseJson('[1]'), 'a')).toBeUndefined()
})

test('a key named like a property of every object is only a key', () => {
  expect(toPlain(parseJson('{"__proto__": {"polluted": true}}'))).not.toHaveProperty('polluted')
})

test('positions count lines and columns from 1', () => {
  expect(positionOf('a\nbc', 3)).toEqual({ line: 2, column: 2 })
})
