// Peers that are pending, for those who look at a node: how many, and for which reasons.
import { counted } from '../counted.ts'
import type { Pending } from '../host/pending.ts'
import { halvesInWords, type Lease } from '../lease/lease.ts'
import type { PeerStatus } from './peer-status.ts'

/** How many of these peers have a subnet that is pending, whichever half and by whichever tunnel. */
export function countPending(peers: readonly Lease[], pending: Pending): number {
  if (pending.size === 0) return 0
  return peers.filter((peer) => halvesInWords(peer).some((subnet) => pending.has(subnet))).length
}

/** `1 peer is pending`, `3 peers are pending` */
export function pendingInWords(count: number): string {
  return `${counted(count, 'peer')} ${count === 1 ? 'is' : 'are'} pending`
}

/** Subnets that are pending for one reason. */
export interface PendingGroup {
  readonly why: string
  readonly subnets: readonly { readonly subnet: string; readonly publicIp: string }[]
}

/** By reason, the first one first. */
export function pendingGroups(
  peers: readonly (Pick<PeerStatus, 'publicIp'> & Partial<Pick<PeerStatus, 'ways'>>)[],
): PendingGroup[] {
  const groups = new Map<string, { readonly subnet: string; readonly publicIp: string }[]>()
  for (const { publicIp, ways } of peers) {
    for (const { subnet, way, why } of ways ?? []) {
      if (way !== 'none') continue
      const group = groups.get(why) ?? []
      groups.set(why, group)
      group.push({ subnet, publicIp })
    }
  }
  return [...groups].map(([why, subnets]) => ({ why, subnets }))
}

/** Subnets of one group that are named, each in a sentence of its own; of more the number tells enough. */
const NAMED = 8

/** `10.244.2.0/24 (192.0.2.2) is pending: no neighbour` */
export function pendingSentences({ why, subnets }: PendingGroup): string[] {
  if (subnets.length > NAMED) return [`${subnets.length} subnets of peers are pending: ${why}`]
  return subnets.map(({ subnet, publicIp }) => `${subnet} (${publicIp}) is pending: ${why}`)
}
