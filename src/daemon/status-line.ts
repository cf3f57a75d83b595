// A node in one line, for `systemctl status`.
import { DROP_REASON_NAMES } from '../../dataplane/index.ts'
import type { DaemonStatus } from './status-file.ts'

/** `ready: 10.244.1.0/24, 12 peers (1 does not answer), 40 packets dropped` */
export function statusLine(status: DaemonStatus): string {
  const { state, lease, peers, store } = status
  if (lease === null) return `${state}: no lease yet from ${store.name}${store.why === '' ? '' : ` (${store.why})`}`
  const silent = peers.filter((peer) => peer.state === 'no-answer').length
  const doubts = [
    ...(status.pendingPeers > 0 ? [`${status.pendingPeers} not programmed`] : []),
    ...(silent > 0 ? [`${silent} without an answer`] : []),
  ]
  const known = `${peers.length} peers${doubts.length > 0 ? ` (${doubts.join(', ')})` : ''}`
  const away = store.reachable ? '' : `, store ${store.name} is away`
  return `${state}: ${lease.subnet}, ${known}, ${droppedPackets(status.counters)} packets dropped${away}`
}

/** All packets that were not passed on, also those that the kernel lost before they were read. */
export function droppedPackets(counters: Readonly<Record<string, number>>): number {
  const names = (['outbound', 'inbound'] as const).flatMap((direction) =>
    DROP_REASON_NAMES.flatMap((reason) => [`${direction}.dropped.${reason}`, `${direction}.lost.${reason}`]),
  )
  return names.reduce((sum, name) => sum + (counters[name] ?? 0), 0)
}
