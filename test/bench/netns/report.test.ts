// What the benchmark prints.
import { expect, test } from 'vitest'
import type { Comparison } from '../../../bench/netns/compare.ts'
import { AGAINST_THE_KERNEL } from '../../../bench/netns/contestants.ts'
import { guardOf } from '../../../bench/netns/guards.ts'
import { table } from '../../../bench/netns/report.ts'
import { summarize } from '../../../bench/netns/rounds.ts'

const environment = {
  at: '2026-01-02T03:04:05.000Z',
  kernel: '6.18.0',
  system: 'Debian',
  cpu: 'a processor',
  cores: 2,
  node: 'v20.19.0',
  commit: 'abc1234',
  iperf3: 'iperf 3.12',
}

function comparison(ours: number): Comparison {
  const of = (value: number) => summarize([{ value, cpuSeconds: 2, moved: 10 }])
  const guard = guardOf(AGAINST_THE_KERNEL, 'tcp', 'wire')?.atLeast ?? null
  const ratio = ours / 5
  const figures = { base: of(5), challenge: of(ours), ratio, guard, links: [] }
  return { ...AGAINST_THE_KERNEL, load: 'tcp', underlay: 'wire', unit: 'Gbit/s', ...figures }
}

test('a comparison below the demanded ratio is marked', () => {
  const report = { version: 1, environment, seconds: 4, comparisons: [comparison(2.5), comparison(4)] } as const
  const [slow, fast] = table(report).split('\n').slice(-2)
  expect(slow).toMatch(
    /kernel 5\.00 \(5\.00–5\.00\) Gbit\/s +ours 2\.50 .* 0\.50 +≥ 0\.6 +0\.20 s\/Gbit +0\.20 s\/Gbit +too slow$/,
  )
  expect(fast).toMatch(/ 0\.80 +≥ 0\.6 .*s\/Gbit$/)
})

test('the machine, the commit and the way of measuring stand above the table', () => {
  const text = table({ version: 1, environment, seconds: 4, comparisons: [comparison(4)] })
  expect(text).toContain('Linux 6.18.0, Debian, 2 × a processor, Node v20.19.0, iperf 3.12, commit abc1234')
  expect(text).toContain('medians of 1 round in turns, 4 s each')
})
