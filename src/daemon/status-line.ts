// A node in one line, for `systemctl status`.
import { counted } from '../counted.ts'
import { droppedPackets } from './drop-counts.ts'
import type { DaemonStatus } from './status-file.ts'

/** A store that is away, named once: `NAME cannot be reached (…)`. */
export function awayInWords({ name, why }: DaemonStatus['store']): string {
  if (why === '') return `${name} is away`
  const said = `store ${name} `
  return why.startsWith(said) ? `${name} ${why.slice(said.length)}` : `${name} is away: ${why}`
}

/** How a daemon ended, by its last status; `null` where that says nothing of an end: it was killed, or does not answer. */
export type DaemonEnd = 'stopped' | 'not-started' | 'lost'

export function endOf({ state, lease }: Pick<DaemonStatus, 'state' | 'lease'>): DaemonEnd | null {
  if (state === 'lost') return 'lost'
  if (state !== 'stopping') return null
  return lease === null ? 'not-started' : 'stopped'
}

const ENDS: Readonly<Record<DaemonEnd, string>> = {
  stopped: 'was stopped',
  'not-started': 'ended before it had a lease',
  lost: 'lost its lease and ended',
}

/** `was stopped`, as the end of a sentence about the daemon; `otherwise` where its status says nothing of an end. */
export function endInWords(status: Pick<DaemonStatus, 'state' | 'lease'>, otherwise: string): string {
  const end = endOf(status)
  return end === null ? otherwise : ENDS[end]
}

/** `ready: 10.244.1.0/24, 12 peers (1 does not answer), 40 packets dropped` */
export function statusLine(status: DaemonStatus): string {
  const { state, lease, peers, store } = status
  if (lease === null) return `${state}: no lease yet from ${store.name}${store.why === '' ? '' : ` (${store.why})`}`
  const silent = peers.filter((peer) => peer.state === 'no-answer').length
  const doubts = [
    ...(status.pendingPeers > 0 ? [`${status.pendingPeers} pending`] : []),
    ...(silent > 0 ? [`${silent} without an answer`] : []),
  ]
  const known = `${counted(peers.length, 'peer')}${doubts.length > 0 ? ` (${doubts.join(', ')})` : ''}`
  const away = store.reachable ? '' : `, store ${store.name} is away`
  const dropped = droppedPackets(status)
  const drops = dropped === null ? 'drops not counted' : `${dropped} packets dropped`
  return `${state}: ${lease.subnet}, ${known}, ${drops}${away}`
}
