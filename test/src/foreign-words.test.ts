// What others wrote, as it may stand in a line.
import { expect, test } from 'vitest'
import { foreignWords, withoutControls } from '../../src/foreign-words.ts'

test.each([
  ['\u001b[2J\u001b]0;owned\u0007', '\\x1b[2J\\x1b]0;owned\\x07'],
  ['a\nb\r\tc', 'a b\\x0d\\x09c'],
  ['\u009b31m\u007f', '\\x9b31m\\x7f'],
  ['\u202etxt.exe\u2066', '\\u202etxt.exe\\u2066'],
  ['größe → 日本 🙂', 'größe → 日本 🙂'],
])('%j becomes %j', (text, shown) => {
  expect(withoutControls(text)).toBe(shown)
})

test('no more is shown than anybody reads', () => {
  expect(foreignWords('x'.repeat(1_000_000), 10)).toBe('xxxxxxxxxx…')
  expect(foreignWords('x'.repeat(10), 10)).toBe('xxxxxxxxxx')
  expect(foreignWords('\u001b'.repeat(1_000_000), 10)).toBe('\\x1b\\x1b\\x…')
})
