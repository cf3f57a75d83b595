// A peer in the words of the status: its lease, what passed between it and this node, by which ways its subnets are
// reached, and which of them are pending.
import { monotonicClock, type PeerTraffic, parseIpv6, sumTraffic, type UnderlayAddress } from '../../dataplane/index.ts'
import type { Clock } from '../clock.ts'
import type { Dataplane, PeerWay } from '../host/dataplane.ts'
import type { Pending } from '../host/pending.ts'
import { halvesInWords, identityOf, type Lease } from '../lease/lease.ts'
import { type LeaseStatus, leaseStatus } from './lease-status.ts'
import type { PeerUpdates } from './peer-updates.ts'
import type { PeerState, PeerWatch } from './peer-watch.ts'

/** What passed between this node and a peer since the peer is known; times in ISO 8601, `null` for never. */
export interface TrafficStatus {
  readonly sentPackets: number
  readonly sentBytes: number
  readonly lastSent: string | null
  readonly receivedPackets: number
  readonly receivedBytes: number
  readonly lastReceived: string | null
}

export interface WayStatus {
  readonly subnet: string
  /** `none`: it is pending. */
  readonly way: PeerWay['way'] | 'none'
  readonly why: string
}

export interface PeerStatus extends LeaseStatus {
  /** `null`, as the traffic, where nobody counts per peer (the kernel). */
  readonly state: PeerState | null
  /** Largest packet of pods that reaches it whole, in bytes, where the way is known to take less than the MTU; else `null`. */
  readonly pathMtu: number | null
  readonly traffic: TrafficStatus | null
  /** Of each subnet how packets get there, and why; `null` where there is one way only, with no trouble. */
  readonly ways: readonly WayStatus[] | null
}

const monotonicMs = monotonicClock()
/**
 * From the dataplane's clock to the wall clock: the same until that one is set, so that a time does not look new each
 * time.
 */
let wallOffsetMs = Number.NaN
const CLOCK_STEP_MS = 1000

/** Of all peers in force, in their order. */
export function peerStatuses(
  { peers, pending }: Pick<PeerUpdates, 'peers' | 'pending'>,
  dataplane: Dataplane,
  clock: Clock,
  watch: PeerWatch,
): PeerStatus[] {
  const nowMs = monotonicMs()
  const traffic = dataplane.books?.traffic() ?? null
  const limits = dataplane.books?.pathLimits()
  const states = watch.look(traffic ?? new Map(), nowMs)
  const ways = dataplane.ways?.() ?? null
  const offsetMs = clock.wallMs() - nowMs
  if (!(Math.abs(offsetMs - wallOffsetMs) < CLOCK_STEP_MS)) wallOffsetMs = offsetMs
  const iso = (atMs: number) => (atMs === 0 ? null : new Date(atMs + wallOffsetMs).toISOString())
  const trafficInWords = (seen: PeerTraffic): TrafficStatus => {
    const { sentPackets, sentBytes, lastSentMs, receivedPackets, receivedBytes, lastReceivedMs } = seen
    const [lastSent, lastReceived] = [iso(lastSentMs), iso(lastReceivedMs)]
    return { sentPackets, sentBytes, lastSent, receivedPackets, receivedBytes, lastReceived }
  }
  return peers.map((lease) => {
    const { seen, state, pathMtu } = bothTunnels(lease, traffic, states, limits)
    // Field by field: a spread into a larger object takes V8 forty times as long.
    const {
      subnet,
      ipv6Subnet,
      publicIp,
      publicIpv6 = null,
      backendType,
      vtepMac,
      expiresAt,
      revision,
    } = leaseStatus(lease)
    const inTraffic = seen === undefined ? null : trafficInWords(seen)
    const words = { subnet, ipv6Subnet, publicIp, publicIpv6, backendType, vtepMac, expiresAt, revision }
    return Object.assign(words, { state, traffic: inTraffic, pathMtu, ways: waysTo(lease, ways, pending) })
  })
}

function waysTo(lease: Lease, ways: ReadonlyMap<string, PeerWay> | null, pending: Pending): PeerStatus['ways'] {
  if (ways === null && pending.size === 0) return null
  const known = halvesInWords(lease).flatMap((subnet): WayStatus[] => {
    const why = pending.get(subnet)
    if (why !== undefined) return [{ subnet, way: 'none', why }]
    const way = ways?.get(subnet)
    return way === undefined ? [] : [{ subnet, ...way }]
  })
  return ways === null && known.length === 0 ? null : known
}

/** The worst first: what one tunnel does not carry is worth a word although the other does. */
const STATES: readonly PeerState[] = ['no-answer', 'active', 'sending', 'idle']

/** What passed between this node and a peer by both of its addresses, where it has two. */
function bothTunnels(
  { attributes }: Lease,
  traffic: ReadonlyMap<UnderlayAddress, PeerTraffic> | null,
  states: ReadonlyMap<UnderlayAddress, PeerState>,
  limits: ReadonlyMap<UnderlayAddress, number> | undefined,
): { readonly seen: PeerTraffic | undefined } & Pick<PeerStatus, 'state' | 'pathMtu'> {
  const first = identityOf(attributes)
  const second = attributes.publicIpv6 === null ? null : parseIpv6(attributes.publicIpv6)
  const [seen, other] = [traffic?.get(first), second === null || second === first ? undefined : traffic?.get(second)]
  const own = states.get(first) ?? null
  const least = Math.min(limits?.get(first) ?? Infinity, limits?.get(second ?? first) ?? Infinity)
  const pathMtu = least === Infinity ? null : least
  if (second === null || other === undefined) return { seen, state: own, pathMtu }
  if (seen === undefined) return { seen: other, state: states.get(second) ?? null, pathMtu }
  const state = STATES.find((one) => one === own || one === states.get(second)) ?? null
  return { seen: sumTraffic(seen, other), state, pathMtu }
}
