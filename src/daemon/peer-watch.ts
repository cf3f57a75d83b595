// How it stands between this node and each peer, from what the dataplane counted: whether packets come and go, and
// above all whether we send and nothing comes back, which no single counter shows. Looked at about once a second.
import type { PeerTraffic } from '../../dataplane/index.ts'

/**
 * `active`: something came lately. `sending`: something was sent lately, and an answer may yet come. `no-answer`: we go
 * on sending and nothing comes back. `idle`: nothing either way lately.
 */
export type PeerState = 'active' | 'sending' | 'no-answer' | 'idle'

/** What is lately, milliseconds. */
const LATELY_MS = 30_000
/** How long packets must have gone unanswered before that is worth a word, milliseconds, and how many. */
export const UNANSWERED_MS = 10_000
export const UNANSWERED_PACKETS = 5

interface Memory {
  receivedPackets: number
  /** Packets sent when something came last: what was sent since is unanswered. */
  answeredPackets: number
  /** Since when something is unanswered, `null` when nothing is. */
  waitingSinceMs: number | null
}

export class PeerWatch {
  readonly #peers = new Map<number, Memory>()

  /** Takes in what was counted up to `nowMs` (the dataplane's clock) and judges each peer, by its underlay address. */
  look(traffic: ReadonlyMap<number, PeerTraffic>, nowMs: number): Map<number, PeerState> {
    for (const address of this.#peers.keys()) if (!traffic.has(address)) this.#peers.delete(address)
    return new Map([...traffic].map(([address, seen]) => [address, this.#judge(address, seen, nowMs)]))
  }

  #judge(address: number, seen: PeerTraffic, nowMs: number): PeerState {
    const memory = this.#peers.get(address) ?? { receivedPackets: 0, answeredPackets: 0, waitingSinceMs: null }
    this.#peers.set(address, memory)
    // Fewer than before: counted anew since the peer was away.
    if (seen.receivedPackets !== memory.receivedPackets || seen.sentPackets < memory.answeredPackets) {
      memory.receivedPackets = seen.receivedPackets
      memory.answeredPackets = seen.sentPackets
      memory.waitingSinceMs = null
    }
    const unanswered = seen.sentPackets - memory.answeredPackets
    if (unanswered > 0) memory.waitingSinceMs ??= nowMs
    const isLately = (atMs: number) => atMs > 0 && nowMs - atMs < LATELY_MS
    const waitedMs = memory.waitingSinceMs === null ? 0 : nowMs - memory.waitingSinceMs
    if (unanswered >= UNANSWERED_PACKETS && waitedMs >= UNANSWERED_MS && isLately(seen.lastSentMs)) return 'no-answer'
    if (isLately(seen.lastReceivedMs)) return 'active'
    return isLately(seen.lastSentMs) ? 'sending' : 'idle'
  }
}
