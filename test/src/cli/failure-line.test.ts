// The last word of `run`: in the form of its log, where a program reads that one.
import { describe, expect, test } from 'vitest'
import { failureFormOf, failureLine } from '../../../src/cli/failure-line.ts'
import { main } from '../../../src/main.ts'

describe('the form', () => {
  test.each<[string, Record<string, string>, 'terminal' | 'journal' | 'other', string]>([
    ['run', {}, 'terminal', 'plain'],
    ['run', {}, 'journal', 'plain'],
    ['run', {}, 'other', 'json'],
    ['run --log-format=json', {}, 'terminal', 'json'],
    ['run -log-format json', {}, 'journal', 'json'],
    ['run --log-format klog', {}, 'other', 'klog'],
    ['run --log-format text', {}, 'other', 'plain'],
    ['run --log-format json --log-format text', {}, 'other', 'plain'],
    ['run', { FLANNELLETTE_LOG_FORMAT: 'json' }, 'terminal', 'json'],
    ['run --log-format=text', { FLANNELLETTE_LOG_FORMAT: 'json' }, 'terminal', 'plain'],
    ['run --log-format', {}, 'other', 'json'],
    ['run --log-format xml', {}, 'terminal', 'plain'],
    ['status --log-format json', { FLANNELLETTE_LOG_FORMAT: 'json' }, 'other', 'plain'],
    ['', {}, 'other', 'plain'],
  ])('of "%s" with %j, read by %s, is %s', (words, environment, reader, form) => {
    expect(failureFormOf(words.split(' '), environment, reader)).toBe(form)
  })
})

describe('the line', () => {
  const failure = { code: 'network-overlap', sentence: 'a is\n in b; move a', remedy: 'move a' } as const

  test('has code, sentence and remedy in JSON', () => {
    expect(failureLine(failure, 'json', 0)).toMatch(/^\{"level":"fatal"[^\n]*\}\n$/)
    expect(JSON.parse(failureLine(failure, 'json', 0))).toEqual({
      level: 'fatal',
      time: '1970-01-01T00:00:00.000Z',
      event: 'failed',
      code: 'network-overlap',
      remedy: 'move a',
      msg: 'a is in b; move a',
    })
  })

  test('is fatal for programs that read flannel’s log, and a sentence for people', () => {
    expect(failureLine(failure, 'klog', 0)).toMatch(
      /^F\d{4} [\d:.]+ +\d+ failed:1\] a is in b; move a code=network-overlap\n$/,
    )
    expect(failureLine(failure, 'plain', 0)).toBe('flannelette: a is in b; move a\n')
  })
})

test.each([
  ['an unknown flag', ['--ifcae', 'eth0'], 'usage', /^unknown option '--ifcae'.*; see flannelette run --help$/],
  ['a bad value', ['--workers', '99'], 'usage', /^--workers 99 is out of range; give .* from 1 to 16$/],
  ['a truth behind a blank', ['--ip-masq', 'false'], 'usage', /^--ip-masq takes its value.*; write --ip-masq=false$/],
])('%s is one JSON line', async (_, words, code, sentence) => {
  const written: string[] = []
  const output = { out: () => {}, err: (text: string) => void written.push(text), form: 'json' as const }
  expect(await main(['run', ...words], output)).toBe(2)
  expect(written).toEqual([expect.stringMatching(/^[^\n]+\n$/)])
  const line = JSON.parse(written[0]!) as { readonly code: string; readonly msg: string; readonly remedy: string }
  expect([line.code, line.msg]).toEqual([code, expect.stringMatching(sentence)])
  expect(line.msg.endsWith(`; ${line.remedy}`)).toBe(true)
})
