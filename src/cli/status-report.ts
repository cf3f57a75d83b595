// What a status means: from the daemon's facts to drops with their sentence, warnings, the command to type next, and
// the exit code. Pure. The form of `flannelette status -o json` is a promise: docs/status.schema.json.
import { type DropCount, dropCounts } from '../daemon/drop-counts.ts'
import { type PendingGroup, pendingGroups, pendingSentences } from '../daemon/pending-peers.ts'
import type { DaemonStatus } from '../daemon/status-file.ts'
import { endInWords, endOf } from '../daemon/status-line.ts'
import type { StatusFound } from '../daemon/status-source.ts'
import { unreadableInWords } from '../daemon/unreadable-leases.ts'
import { EXIT } from '../errors.ts'
import { foreignRouteIn, isForeignRoute } from '../host/route-place.ts'

export interface StatusReport {
  /** Counts the breaks of this form: fields are added, never renamed. */
  readonly version: 1
  readonly daemon: 'running' | 'dead'
  /** Whether all is well: the exit code is 0 then. */
  readonly ready: boolean
  readonly warnings: readonly string[]
  /** Most packets first; none that is 0. */
  readonly drops: readonly DropCount[]
  /** The command to type next. */
  readonly next: string
  readonly status: DaemonStatus
}

/** `more`: words that commands of ours need to find the same daemon, empty for the usual one. */
export function reportOf({ isLive, status }: StatusFound, more: readonly string[] = []): StatusReport {
  return {
    version: 1,
    daemon: isLive ? 'running' : 'dead',
    ready: isLive && status.state === 'ready' && (status.health?.ready ?? true),
    warnings: isLive
      ? warningsOf(status)
      : [`the daemon (pid ${status.pid}) ${endInWords(status, 'does not answer')}: this is what it said last`],
    drops: dropCounts(status.counters)
      .filter(({ packets }) => packets > 0)
      .sort((a, b) => b.packets - a.packets),
    next: isLive ? [nextCommand(status), ...more].join(' ') : nextOfDead(status),
    status,
  }
}

export function exitCodeOf(report: StatusReport): number {
  if (report.daemon === 'dead') return EXIT.unreachable
  return report.ready ? EXIT.ok : EXIT.failed
}

/** The gravest first. */
function warningsOf(status: DaemonStatus): string[] {
  const failed = (status.health?.checks ?? []).filter(({ ok }) => !ok)
  const silent = status.peers.filter(({ state }) => state === 'no-answer')
  const downgrades = Object.entries(status.features).filter(
    ([name, feature]) => feature?.on === false && (status.counters[`downgrade.${name}`] ?? 0) > 0,
  )
  const unreadable = status.unreadableLeases === undefined ? null : unreadableInWords(status.unreadableLeases)
  const [offender] = status.offenders
  const ports = status.counters['downgrade.source-ports'] ?? 0
  const restarts = status.counters['worker.restarts'] ?? 0
  return [
    ...failed.map(({ name, about }) => `${name}: ${about}`),
    ...(status.health?.notes ?? []),
    ...(unreadable === null ? [] : [unreadable]),
    ...silent.map((peer) => `sending to ${peer.publicIp} (${peer.subnet}), but nothing comes back`),
    ...pendingGroups(status.peers).flatMap(pendingWarnings),
    ...status.peers.flatMap(foreignTroubles),
    ...status.leftOut.map((peer) => `no forwarding to ${peer.subnet} (${peer.publicIp}): ${peer.detail}`),
    ...status.conflicts,
    ...(offender === undefined
      ? []
      : [`refused ${offender.innerSource} from ${offender.outerSource} (${offender.reason})`]),
    ...(restarts > 0 ? [`workers died and were replaced ${restarts} times`] : []),
    ...downgrades.map(([name, feature]) => `${name} is not used: ${feature!.why}`),
    ...(ports > 0 ? [`${ports} source ports are missing`] : []),
  ]
}

/** With the command that ends it, where somebody else's route is the reason. */
function pendingWarnings(group: PendingGroup): string[] {
  const foreign = foreignRouteIn(group.why)
  const remedy = foreign === null ? '' : `; if nothing needs it: ip route delete ${foreign}`
  return pendingSentences(group).map((sentence) => sentence + remedy)
}

/** Subnets that are reached, and that somebody else's route takes packets of or keeps from being reached directly. */
function foreignTroubles({ publicIp, ways }: DaemonStatus['peers'][number]): string[] {
  return (ways ?? []).flatMap(({ subnet, way, why }) => {
    return way !== 'none' && isForeignRoute(why) ? [`${subnet} (${publicIp}): ${why}`] : []
  })
}

/** Who was stopped has nothing to look into; who ended by itself says why in its log, and would end again. */
function nextOfDead(status: DaemonStatus): string {
  const end = endOf(status)
  if (end === 'stopped') return 'systemctl start flannelette'
  if (end === null) return 'systemctl restart flannelette; journalctl -u flannelette -e'
  return 'journalctl -u flannelette -e; systemctl start flannelette'
}

function nextCommand(status: DaemonStatus): string {
  const silent = status.peers.find(({ state }) => state === 'no-answer')
  if (silent !== undefined) return `flannelette ping ${silent.publicIp}`
  const isWell = status.state === 'ready' && (status.health?.ready ?? true)
  if (!isWell) return status.state === 'starting' ? 'flannelette status --wait --for ready' : 'flannelette doctor'
  const [peer] = status.peers
  return peer === undefined ? 'flannelette status --wait --for peers=1' : `flannelette ping ${peer.publicIp}`
}
