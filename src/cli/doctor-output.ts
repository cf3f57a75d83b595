// How doctor's report reads: as text, quiet when all is well, or as JSON with a version.
import { counted } from '../counted.ts'
import type { BundledFile } from '../doctor/bundle.ts'
import { type Finding, GROUPS, type Severity } from '../doctor/finding.ts'
import type { MatrixRow, TunnelRow } from '../doctor/peer-matrix.ts'
import { mark, markColumn, paint, shown, type Terminal, table } from './table.ts'

export interface DoctorReport {
  /** ISO 8601. */
  readonly at: string
  readonly findings: readonly Finding[]
  /** `null` when peers were not asked. */
  readonly peers: readonly MatrixRow[] | null
  /** Whether warnings count. */
  readonly strict: boolean
}

export interface DoctorSummary {
  readonly healthy: boolean
  readonly errors: number
  readonly warnings: number
  readonly unseen: number
}

/** Findings by gravity. `healthy`: no error, and with `strict` no warning either; it decides the exit code. */
export function summaryOf({ findings, strict }: DoctorReport): DoctorSummary {
  const count = (severity: Severity) => findings.filter((one) => one.severity === severity).length
  const [errors, warnings, unseen] = [count('error'), count('warning'), count('unseen')]
  return { healthy: errors === 0 && (!strict || warnings === 0), errors, warnings, unseen }
}

/** The shape is a promise: fields are added, never renamed, and `version` counts the breaks. */
export function doctorJson(report: DoctorReport): string {
  const { at, findings, peers } = report
  return `${JSON.stringify({ version: 1, at, ...summaryOf(report), findings, peers }, null, 2)}\n`
}

const QUIET: readonly Severity[] = ['error', 'warning']

export function doctorText(report: DoctorReport, terminal: Terminal, verbose: boolean): string {
  const wanted = report.findings.filter(({ severity }) => verbose || QUIET.includes(severity))
  const groups = GROUPS.flatMap((group) => {
    const inGroup = wanted.filter((finding) => finding.group === group)
    if (inGroup.length === 0) return []
    return [`${paint('bold', group, terminal)}\n${inGroup.map((one) => findingText(one, terminal)).join('')}`]
  })
  const matrix = report.peers === null ? [] : [matrixText(report.peers, terminal)]
  return [...groups, ...matrix, closingLine(report, verbose)].join('\n')
}

function findingText({ severity, message, remedy, docs }: Finding, terminal: Terminal): string {
  const line = `  ${markColumn(SIGNS[severity], terminal)} ${shown(message, terminal)}\n`
  const more = remedy === null ? '' : `       ${shown('→', terminal)} ${shown(remedy, terminal)}\n`
  const see = QUIET.includes(severity) ? `       ${paint('dim', docs, terminal)}\n` : ''
  return line + more + see
}

const SIGNS = { ok: 'good', error: 'bad', warning: '!', note: 'i', unseen: '?' } as const

function matrixText(peers: readonly MatrixRow[], terminal: Terminal): string {
  if (peers.length === 0) return 'no peers to ask: no daemon has named any\n'
  const time = (ms: number | null) => (ms === null ? mark(false, terminal) : `${ms.toFixed(2)} ms`)
  // A tunnel of its own has a row of its own, where the same is asked by IPv6.
  const ipv6Of = ({ ipv6Ms, ipv6Tunnel }: MatrixRow) => (ipv6Tunnel === undefined ? ipv6Ms : undefined)
  const withIpv6 = peers.some((peer) => ipv6Of(peer) !== undefined)
  const cells = ({ publicIp, subnet, underlayMs, vtepMs, whole, fragmented }: TunnelRow, ipv6Ms?: number | null) => [
    ...[publicIp, subnet, time(underlayMs), time(vtepMs)],
    ...(withIpv6 ? [ipv6Ms === undefined ? '-' : time(ipv6Ms)] : []),
    ...[mark(whole, terminal), mark(fragmented, terminal)],
  ]
  return table(
    ['PEER', 'SUBNET', 'UNDERLAY', 'TUNNEL', ...(withIpv6 ? ['IPV6'] : []), 'FULL SIZE', 'FRAGMENTS'],
    peers.flatMap((peer) => [cells(peer, ipv6Of(peer)), ...(peer.ipv6Tunnel ? [cells(peer.ipv6Tunnel)] : [])]),
  )
}

function closingLine(report: DoctorReport, verbose: boolean): string {
  const { errors, warnings, unseen } = summaryOf(report)
  const looked = new Set(report.findings.map(({ check }) => check)).size
  const blind =
    unseen === 0 || verbose ? '' : `; ${counted(unseen, 'thing')} could not be looked at (-v says which and why)`
  if (errors + warnings === 0) return `nothing wrong found in ${looked} checks${blind}\n`
  return `${counted(errors, 'error')}, ${counted(warnings, 'warning')} in ${looked} checks${blind}\n`
}

/** What a bundle holds, for whoever is about to send it. */
export function bundleText(path: string, files: readonly BundledFile[]): string {
  const rows = files.map(({ name, bytes }) => `  ${String(bytes).padStart(9)}  ${name}\n`).join('')
  return `\n${path} holds, with secrets masked:\n${rows}look through it before you send it: tar -xOzf ${path} | less\n`
}
