// Comparisons as a table for people and as JSON for programs.
import { counted } from '../../src/counted.ts'
import type { Comparison } from './compare.ts'
import type { Environment } from './environment.ts'
import type { Summary } from './rounds.ts'

export interface Report {
  readonly version: 1
  readonly environment: Environment
  readonly seconds: number
  readonly comparisons: readonly Comparison[]
}

const HEADINGS = ['underlay', 'load', 'baseline', 'challenger', 'ratio', 'demanded', 'CPU of both', '', '']

/** One line for each comparison: medians with the lowest and highest round, and CPU for each unit moved. */
export function table(report: Report): string {
  const rows = [HEADINGS, ...report.comparisons.map(row)]
  const widths = HEADINGS.map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0)))
  const lines = rows.map((cells) => cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
  return [about(report), '', ...lines.map((line) => line.trimEnd())].join('\n')
}

function about({ environment, seconds, comparisons }: Report): string {
  const { kernel, system, cpu, cores, node, commit, iperf3, at } = environment
  const rounds = comparisons[0]?.base.rounds.length ?? 0
  return [
    `Linux ${kernel}, ${system}, ${cores} × ${cpu}, Node ${node}, ${iperf3}, commit ${commit}, ${at}`,
    `medians of ${counted(rounds, 'round')} in turns, ${seconds} s each, lowest and highest in brackets; CPU of the whole machine`,
  ].join('\n')
}

function row({ underlay, load, unit, baseline, challenger, base, challenge, ratio, guard }: Comparison): string[] {
  return [
    underlay,
    load === 'tcp' ? 'one TCP stream' : '64-byte UDP, one flow',
    `${baseline} ${figure(base, unit)}`,
    `${challenger} ${figure(challenge, unit)}`,
    ratio.toFixed(2),
    guard === null ? '-' : `≥ ${guard}`,
    cpu(base, unit),
    cpu(challenge, unit),
    guard !== null && ratio < guard ? 'too slow' : '',
  ]
}

function figure({ median, lowest, highest }: Summary, unit: string): string {
  return `${short(median, unit)} (${short(lowest, unit)}–${short(highest, unit)}) ${unit.replace('packets', 'k packets')}`
}

function short(value: number, unit: string): string {
  return unit === 'Gbit/s' ? value.toFixed(2) : (value / 1000).toFixed(0)
}

function cpu({ cpuPerMoved }: Summary, unit: string): string {
  return unit === 'Gbit/s' ? `${cpuPerMoved.toFixed(2)} s/Gbit` : `${(cpuPerMoved * 1e6).toFixed(1)} s/M packets`
}
