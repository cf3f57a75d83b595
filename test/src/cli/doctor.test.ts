// What doctor and ping print, and what their command lines refuse.
import { describe, expect, test } from 'vitest'
import { type DoctorReport, doctorJson, doctorText, summaryOf } from '../../../src/cli/doctor-output.ts'
import { rungText } from '../../../src/cli/ping-node.ts'
import { error, type Finding, note, ok, type Remark, unseen, warning } from '../../../src/doctor/finding.ts'
import { main } from '../../../src/main.ts'

const TERMINAL = { colour: false, unicode: true }
const ASCII = { colour: false, unicode: false }
const finding = (group: Finding['group'], check: string, remark: Remark): Finding => {
  return { check, group, ...remark, docs: `docs/troubleshooting.md#doctor-${check}` }
}
const report = (findings: readonly Finding[], more: Partial<DoctorReport> = {}): DoctorReport => {
  return { at: '2026-03-01T12:00:00.000Z', findings, peers: null, strict: false, ...more }
}
const GOOD = finding('system', 'koffi', ok('the koffi library loads'))
const KNOWN = finding('underlay', 'offloads', note('GRO is off', 'turn it on'))
const BLIND = finding('host', 'forward-policy', unseen('firewall: not permitted'))
const ODD = finding('lease', 'store', warning('the store is away', 'start it'))
const BAD = finding('host', 'ip-forward', error('ip_forward is 0 − off', 'sysctl -w net.ipv4.ip_forward=1'))

describe("doctor's report", () => {
  test('is one line when all is well', () => {
    expect(doctorText(report([GOOD, KNOWN]), TERMINAL, false)).toBe('nothing wrong found in 2 checks\n')
    expect(doctorText(report([GOOD, BLIND]), TERMINAL, false)).toBe(
      'nothing wrong found in 2 checks; 1 thing could not be looked at (-v says which and why)\n',
    )
  })

  test('groups what is wrong, each with remedy and docs', () => {
    expect(doctorText(report([GOOD, ODD, BAD]), TERMINAL, false)).toBe(
      [
        'lease',
        '  !    the store is away',
        '       → start it',
        '       docs/troubleshooting.md#doctor-store',
        '',
        'host',
        '  ✗    ip_forward is 0 − off',
        '       → sysctl -w net.ipv4.ip_forward=1',
        '       docs/troubleshooting.md#doctor-ip-forward',
        '',
        '1 error, 1 warning in 3 checks',
        '',
      ].join('\n'),
    )
  })

  test('lists everything with -v, in ASCII where need be', () => {
    const text = doctorText(report([GOOD, KNOWN, BLIND, BAD]), ASCII, true)
    expect(text).toMatch(/^ {2}OK {3}the koffi/m)
    expect(text).toMatch(/^ {2}i {4}GRO is off\n {7}-> turn it on$/m)
    expect(text).toMatch(/^ {2}\? {4}firewall: not permitted$/m)
    expect(text).toMatch(/^ {2}FAIL ip_forward is 0 - off$/m)
  })

  test('shows the peers as a table', () => {
    const row = { publicIp: '192.0.2.2', subnet: '10.244.2.0/24', refused: false, underlayMs: 0.1, vtepMs: null }
    const peers = [{ ...row, whole: false, fragmented: false }]
    expect(doctorText(report([], { peers }), TERMINAL, false)).toContain(
      '192.0.2.2  10.244.2.0/24  0.10 ms   ✗       ✗          ✗\n',
    )
    expect(doctorText(report([], { peers: [] }), TERMINAL, false)).toContain('no peers to ask')
  })

  test.each([
    [[GOOD, KNOWN, BLIND], false, true],
    [[ODD], false, true],
    [[ODD], true, false],
    [[BAD], false, false],
  ] as const)('is healthy or not: %#', (findings, strict, healthy) => {
    expect(summaryOf(report(findings, { strict })).healthy).toBe(healthy)
  })

  test('is JSON with a version, one entry a finding', () => {
    expect(JSON.parse(doctorJson(report([GOOD, BAD])))).toEqual({
      version: 1,
      at: '2026-03-01T12:00:00.000Z',
      healthy: false,
      errors: 1,
      warnings: 0,
      unseen: 0,
      findings: [GOOD, BAD],
      peers: null,
    })
  })
})

test('a rung is a line, and one more for what to do', () => {
  const rung = { name: 'vtep', text: 'ICMP 10.244.2.0: no answer', averageMs: null, next: 'look' } as const
  expect(rungText({ ...rung, verdict: 'bad' }, TERMINAL)).toBe(
    '  VTEP      ✗    ICMP 10.244.2.0: no answer\n            → look\n',
  )
  expect(rungText({ ...rung, verdict: 'good', averageMs: 0.314, next: null }, ASCII)).toBe(
    '  VTEP      OK   ICMP 10.244.2.0: no answer  0.31 ms\n',
  )
  expect(rungText({ ...rung, verdict: 'unproven', next: null }, TERMINAL)).toMatch(/^ {2}VTEP {6}\? {4}ICMP/)
})

test.each([
  [['ping', 'host9'], /"host9" is no address of a node; give a public address/],
  [['ping', '192.0.2.2', '--timeout', '30'], /--timeout.*a duration is wanted/],
  [['ping', '192.0.2.2', '--timeout', '25h'], /at most 24h/],
  [['ping', '192.0.2.2', '-n', 'x'], /--count NaN is no whole number/],
  [['doctor', '--peer'], /unknown option '--peer'.*--peers/],
])('wrong usage is exit code 2: %j', async (argv, line) => {
  const said: string[] = []
  const code = await main(argv, { out: (text) => void said.push(text), err: (text) => void said.push(text) })
  expect(said.join('')).toMatch(line)
  expect({ code, lines: said.join('').split('\n').length }).toEqual({ code: 2, lines: 2 })
})
