// How the lab's results read: as text for people, or the same data as JSON.
import { basename, relative } from 'node:path'
import { dropCounts, droppedPackets } from '../daemon/drop-counts.ts'
import { describeFault } from '../lab/faults.ts'
import type { IperfResult } from '../lab/iperf.ts'
import type { HostReport, LabReport } from '../lab/lab.ts'
import type { PingResult } from '../lab/ping.ts'
import { LAB_DEFAULTS } from '../lab/plan.ts'
import { formatBitrate, mark, type Terminal, table } from './table.ts'

export function labStatusText(report: LabReport, terminal: Terminal): string {
  const hosts = table(
    ['HOST', 'DATAPLANE', 'DRIVER', 'DAEMON', 'UNDERLAY', 'SUBNET', 'PEERS', 'DROPPED'],
    report.hosts.map((host) => [
      host.name,
      host.status?.dataplane ?? host.dataplane,
      driverOf(host),
      daemonText(host, terminal),
      host.underlayAddress,
      host.subnet,
      String(host.status?.peers.length ?? '-'),
      String((host.status && droppedPackets(host.status)) ?? '-'),
    ]),
  )
  const pods = table(
    ['POD', 'HOST', 'ADDRESS', ...(report.pods.some(({ ipv6Address }) => ipv6Address !== null) ? ['IPV6'] : [])],
    report.pods.map((pod) => [pod.name, pod.host, pod.address, ...(pod.ipv6Address === null ? [] : [pod.ipv6Address])]),
  )
  const faults = report.faults.length === 0 ? 'none' : report.faults.map(describeFault).join(', ')
  return `${hosts}${choicesText(report.hosts)}${dropsText(report.hosts)}\n${pods}\nfaults: ${faults}\n`
}

/** What hosts that choose their dataplane have taken, and why. */
function choicesText(hosts: readonly HostReport[]): string {
  const chosen = hosts.flatMap(({ name, dataplane, status }) =>
    dataplane === 'auto' && status?.dataplaneWhy ? [`${name}: ${status.dataplane} (${status.dataplaneWhy})\n`] : [],
  )
  return chosen.length === 0 ? '' : `\n${chosen.join('')}`
}

/** Why packets were dropped, most frequent first; nothing when none were. */
function dropsText(hosts: readonly HostReport[]): string {
  const drops = hosts.flatMap(({ name, status }) =>
    dropCounts(status?.counters ?? {})
      .filter(({ packets }) => packets > 0)
      .map(({ direction, reason, packets }) => ({ name, direction, reason, packets })),
  )
  if (drops.length === 0) return ''
  const rows = drops
    .sort((a, b) => b.packets - a.packets)
    .map(({ name, direction, reason, packets }) => [String(packets), name, direction, reason])
  return `\n${table(['DROPPED', 'ON', 'WAY', 'REASON'], rows)}`
}

/** Only of a daemon that runs is it known what it took, and the kernel dataplane has none. */
function driverOf({ status }: HostReport): string {
  return status === null || status.driver === 'kernel' || status.driver === 'none' ? '-' : status.driver
}

function daemonText(host: HostReport, terminal: Terminal): string {
  if (!host.alive) return `${mark(false, terminal)} not running`
  const state = host.status?.state ?? 'silent'
  return `${mark(state === 'ready', terminal)} ${state}, pid ${host.daemonPid}`
}

/** Every pair as a matrix: the sender's row, the receiver's column. */
export function pingMatrix(results: readonly PingResult[], terminal: Terminal): string {
  const names = [...new Set(results.map((result) => result.from))]
  const cells = new Map(results.map((result) => [`${result.from} ${result.to}`, result]))
  const rows = names.map((from) => [
    from,
    ...names.map((to) => {
      const result = cells.get(`${from} ${to}`)
      if (result === undefined) return terminal.unicode ? '·' : '-'
      const time = result.averageMs === null ? '' : ` ${result.averageMs.toFixed(2)}`
      return `${mark(result.received === result.sent, terminal)}${time}`
    }),
  ])
  return `${table(['ms', ...names], rows)}${pingSummary(results)}\n`
}

function pingSummary(results: readonly PingResult[]): string {
  const sent = results.reduce((sum, result) => sum + result.sent, 0)
  const received = results.reduce((sum, result) => sum + result.received, 0)
  return `${received} of ${sent} pings answered`
}

export function pingText(result: PingResult, terminal: Terminal): string {
  const time = result.averageMs === null ? 'no answer' : `${result.averageMs.toFixed(3)} ms on average`
  const good = mark(result.received === result.sent, terminal)
  return `${good} ${result.from} to ${result.to}: ${result.received} of ${result.sent} answered, ${time}\n`
}

export function iperfText(result: IperfResult): string {
  const details =
    result.protocol === 'tcp'
      ? `${result.retransmits ?? 0} retransmits`
      : `${result.lostPackets} of ${result.packets} datagrams lost${overflowText(result)}`
  const rate = formatBitrate(result.bitsPerSecond)
  return `${result.from} to ${result.to}: ${result.protocol.toUpperCase()} ${rate} in ${result.seconds.toFixed(1)} s, ${details}\n`
}

/** Says that the way is not to blame. */
function overflowText({ overflowedPackets, to }: IperfResult): string {
  if (overflowedPackets === null || overflowedPackets === 0) return ''
  return `, ${overflowedPackets} of them by a full socket buffer in ${to}`
}

/** What to do with a fresh lab, in words that can be pasted. */
export function suggestions(report: LabReport, command = invocation()): string {
  const [first] = report.pods
  const last = report.pods.at(-1)
  const name = report.name === LAB_DEFAULTS.name ? '' : ` --name ${report.name}`
  const words = ['status', 'ping all']
  if (first !== undefined && last !== undefined && first !== last) {
    words.push(`iperf ${first.name} ${last.name}`, `exec ${first.name} -- ping -c 3 ${last.address}`)
  }
  words.push('fault loss 1', 'heal', 'down')
  const lines = words.map(
    (text) => `  ${command} lab ${text.includes(' -- ') ? text.replace(' -- ', `${name} -- `) : text + name}`,
  )
  return `try next:\n${lines.join('\n')}\n`
}

/** How this program was called: `flannelette` when installed, else node with the path of the build. */
export function invocation(script = process.argv[1] ?? '', directory = process.cwd()): string {
  if (basename(script) !== 'main.js') return 'flannelette'
  const path = relative(directory, script)
  return `node ${path.startsWith('..') ? script : path}`
}
