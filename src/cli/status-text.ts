// A status report for people, on one screen: what is well in few words, what is not in more.
import { counted } from '../counted.ts'
import { droppedPackets } from '../daemon/drop-counts.ts'
import type { DaemonStatus } from '../daemon/status-file.ts'
import { awayInWords, endOf } from '../daemon/status-line.ts'
import { formatSpan } from '../time-span.ts'
import type { StatusReport } from './status-report.ts'
import { mark, paint, shown, type Terminal, table } from './table.ts'

/** Peers on one screen; those in trouble come first. `-o wide` shows all. */
const PEERS_SHOWN = 15
const DROPS_SHOWN = 8
const WARNINGS_SHOWN = 8

type Peer = StatusReport['status']['peers'][number]

const STATES: Readonly<Record<NonNullable<Peer['state']>, { good: boolean; words: string }>> = {
  'no-answer': { good: false, words: 'sending, nothing comes back' },
  sending: { good: true, words: 'sending' },
  active: { good: true, words: 'active' },
  idle: { good: true, words: 'idle' },
}

/** `nowMs` is the wall clock; `wide` shows everything. */
export function statusText(report: StatusReport, terminal: Terminal, nowMs: number, wide: boolean): string {
  const parts = [
    heading(report, terminal),
    facts(report, nowMs),
    peersText(report, terminal, nowMs, wide),
    dropsText(report, terminal, wide),
    wide ? featuresText(report, terminal) : '',
    warningsText(report, terminal, wide),
    `next: ${paint('bold', report.next, terminal)}\n`,
  ]
  return shown(parts.filter(Boolean).join('\n'), terminal)
}

/** What `-o name` prints: one peer a line. */
export function peerNames({ status }: StatusReport): string {
  return status.peers.map(({ publicIp }) => `peer/${publicIp}\n`).join('')
}

function heading({ daemon, ready, status }: StatusReport, terminal: Terminal): string {
  const state = daemon === 'dead' ? (endOf(status)?.replace('-', ' ') ?? 'not answering') : status.state
  const how = dataplaneInWords(status)
  const why = status.dataplaneWhy == null ? '' : ` (${status.dataplaneWhy})`
  const who = status.lease?.publicIp ?? status.node?.underlayAddress ?? 'this node'
  return `${mark(ready, terminal)} ${paint('bold', `${who} ${state}`, terminal)} · ${how}${why} · pid ${status.pid}\n`
}

function dataplaneInWords({ dataplane, driver }: DaemonStatus): string {
  if (dataplane === 'none') return 'no dataplane'
  if (dataplane === 'routes') return 'routes of the kernel, no tunnel'
  if (dataplane === 'commands') return 'commands of the extension'
  return dataplane === 'kernel' ? 'kernel dataplane' : `${dataplane} dataplane, ${driver}`
}

function deviceInWords({ device, mtu, vni, port }: NonNullable<DaemonStatus['node']>): string {
  return device === '' ? `none of its own, MTU ${mtu}` : `${device}, MTU ${mtu}, VNI ${vni}, UDP port ${port}`
}

function facts({ status }: StatusReport, nowMs: number): string {
  const { lease, node, store } = status
  const until = (iso: string | null) => (iso === null ? 'never' : `in ${formatSpan(Date.parse(iso) - nowMs)} (${iso})`)
  const lines =
    lease === null
      ? [['lease', 'none yet']]
      : [
          ['lease', `${[...new Set([lease.subnet, lease.ipv6Subnet])].filter(Boolean).join(' and ')}, ${lease.state}`],
          ['public IP', publicText(lease) + (node === null ? '' : ` on ${node.underlayInterface}`)],
          ['expires', until(lease.expiresAt)],
          ['renewal', until(lease.renewsAt)],
        ]
  if (node !== null) lines.push(['device', deviceInWords(node)])
  if (node?.ipv6Device) lines.push(['IPv6', `${node.ipv6Device.device}, MTU ${node.ipv6Device.mtu}`])
  // Before the lease a store may answer that there is nothing to start with: `why` says so.
  const why = store.why === '' ? '' : `: ${store.why}`
  lines.push(['store', store.reachable ? `${store.name} answers${why}` : awayInWords(store)])
  lines.push([
    'table',
    `generation ${status.generation}, ${counted(status.peers.length, 'peer')}, ${status.pendingPeers} pending`,
  ])
  return lines.map(([name, text]) => `${name!.padEnd(10)} ${text}\n`).join('')
}

/** Where peers send to: one address, or one of each family. */
function publicText({ publicIp, publicIpv6 }: NonNullable<StatusReport['status']['lease']>): string {
  return publicIpv6 == null || publicIpv6 === publicIp ? publicIp : `${publicIp} and ${publicIpv6}`
}

function peersText({ status }: StatusReport, terminal: Terminal, nowMs: number, wide: boolean): string {
  if (status.peers.length === 0) return 'no peers\n'
  const isPending = ({ ways }: Peer) => (ways ?? []).some(({ way }) => way === 'none')
  const worst = (peer: Peer) => (peer.state === 'no-answer' || isPending(peer) ? 0 : 1)
  const sorted = [...status.peers].sort((a, b) => worst(a) - worst(b))
  const listed = wide ? sorted : sorted.slice(0, PEERS_SHOWN)
  const ago = (iso: string | null | undefined) => {
    if (iso === undefined) return '-'
    return iso === null ? 'never' : `${formatSpan(nowMs - Date.parse(iso))} ago`
  }
  const hasWays = listed.some(({ ways }) => ways != null)
  // Seldom there is any.
  const limited = listed.some(({ pathMtu = null }) => pathMtu !== null)
  const columns = [
    ...['PEER', 'SUBNET', ...(hasWays ? ['WAY'] : []), 'STATE', 'LAST OUT', 'LAST IN', 'SENT', 'RECEIVED'],
    ...(limited ? ['PATH MTU'] : []),
  ]
  const rows = listed.map((peer) => {
    const { publicIp, subnet, traffic, ipv6Subnet, vtepMac, expiresAt } = peer
    const counts = [String(traffic?.sentPackets ?? '-'), String(traffic?.receivedPackets ?? '-')]
    const cells = [
      publicIp,
      subnet,
      ...(hasWays ? [wayOf(peer)] : []),
      stateOf(peer, terminal),
      ago(traffic?.lastSent),
      ago(traffic?.lastReceived),
      ...counts,
      ...(limited ? [String(peer.pathMtu ?? '-')] : []),
    ]
    return wide ? [...cells, ipv6Subnet ?? '-', vtepMac ?? '-', expiresAt ?? 'never'] : cells
  })
  const text = table(wide ? [...columns, 'IPV6 SUBNET', 'MAC', 'EXPIRES'] : columns, rows)
  const rest = sorted.length - listed.length
  return rest === 0 ? text : `${text}and ${rest} more: -o wide\n`
}

/** `direct`, or both ways where an IPv6 half takes another one. */
function wayOf({ ways }: Peer): string {
  const words = (ways ?? []).map(({ way }) => (way === 'none' ? 'pending' : way))
  return [...new Set(words)].join(', ') || '-'
}

function stateOf({ state }: Peer, terminal: Terminal): string {
  if (state === null) return 'not counted'
  const { good, words } = STATES[state]
  return `${mark(good, terminal)} ${words}`
}

function dropsText({ drops, status }: StatusReport, terminal: Terminal, wide: boolean): string {
  if (droppedPackets(status) === null) return 'dropped packets are not counted\n'
  if (drops.length === 0) return 'no packet dropped\n'
  const rows = drops
    .slice(0, wide ? drops.length : DROPS_SHOWN)
    .map(({ packets, direction, reason, about }) => [
      String(packets),
      direction,
      paint('yellow', reason, terminal),
      about,
    ])
  const rest = drops.length - rows.length
  return `${table(['DROPPED', 'DIRECTION', 'REASON', 'MEANING'], rows)}${rest > 0 ? `and ${rest} more reasons: -o wide\n` : ''}`
}

function featuresText({ status }: StatusReport, terminal: Terminal): string {
  const rows = Object.entries(status.features).map(([name, feature]) => {
    return [name, mark(feature!.on, terminal), feature!.why]
  })
  return rows.length === 0 ? '' : table(['FEATURE', 'USED', 'WHY'], rows)
}

function warningsText({ warnings }: StatusReport, terminal: Terminal, wide: boolean): string {
  const listed = wide ? warnings : warnings.slice(0, WARNINGS_SHOWN)
  const rest = warnings.length - listed.length
  const lines = listed.map((warning) => `${paint('yellow', 'warning', terminal)}: ${warning}\n`)
  return [...lines, ...(rest > 0 ? [`and ${rest} more warnings: -o wide\n`] : [])].join('')
}
