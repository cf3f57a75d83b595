// From validated snapshots to the dataplane: which peers there are now, one hand-over at a time. Snapshots that arrive
// meanwhile are merged: only the latest counts. A hand-over that fails is tried again.
import type { Clock, Timer } from '../clock.ts'
import type { Dataplane } from '../host/dataplane.ts'
import type { Pending } from '../host/pending.ts'
import { lastResult } from '../last-result.ts'
import { describeConflict, diffLeases, findConflicts, type LeaseConflict, type LeaseDiff } from '../lease/diff.ts'
import { type Lease, nameOf } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { type LeftOutPeer, type PodNetworks, selectPeers, withinNetworks } from './forwarding-entries.ts'
import { countPending } from './pending-peers.ts'

const RETRY_MS = 5000
/** Lines of one kind that one set of leases may cause; the rest is counted: a store full of rubbish must not fill a disk. */
const SAID_AT_ONCE = 20
/** Subnets named in a cause before the rest is only counted. */
const NAMED_SUBNETS = 5

export interface PeerUpdatesOptions {
  readonly dataplane: Dataplane
  readonly clock: Clock
  readonly log: Log
}

export class PeerUpdates {
  readonly #options: PeerUpdatesOptions
  #peers: readonly Lease[] | null = null
  #leftOut: readonly LeftOutPeer[] = []
  #conflicts: readonly LeaseConflict[] = []
  readonly #countPending = lastResult(countPending)
  #generation = 0
  #wanted: { readonly peers: readonly Lease[]; readonly why: string } | null = null
  /** The last hand-over failed: what the dataplane forwards by is not known. */
  #doubtful = false
  #changedWallMs: number | null = null
  #running: Promise<void> | null = null
  #retry: Timer | null = null
  #closed = false

  constructor(options: PeerUpdatesOptions) {
    this.#options = options
  }

  /** Peers in force. */
  get peers(): readonly Lease[] {
    return this.#peers ?? []
  }

  /** Their subnets that packets are not sent to for now, and why. */
  get pending(): Pending {
    return this.#options.dataplane.pendingSubnets()
  }

  /** How many of the peers have such a subnet. */
  get pendingCount(): number {
    return this.#countPending(this.peers, this.pending)
  }

  get leftOut(): readonly LeftOutPeer[] {
    return this.#leftOut
  }

  get conflicts(): readonly LeaseConflict[] {
    return this.#conflicts
  }

  /** The dataplane has not taken the latest set: it is tried again. */
  get isBehind(): boolean {
    return this.#doubtful
  }

  /** Generation of the table in force, 0 before the first. */
  get generation(): number {
    return this.#generation
  }

  /** Wall-clock time since which the table is in force, `null` before the first. */
  get changedWallMs(): number | null {
    return this.#changedWallMs
  }

  /** Takes the whole set of leases, own one included. Resolves when the dataplane forwards by it (or a later one). */
  offer(leases: readonly Lease[], own: Lease, networks: PodNetworks, why: string): Promise<void> {
    const isLedWhole = this.#options.dataplane.kind === 'userspace'
    const { network, ipv6Network } = networks
    const selection = selectPeers(leases, own, { network, ipv6Network, isLedWhole })
    const conflicts = findConflicts(leases)
    // Without any there are none among fewer leases, as nearly always.
    this.#report(selection.leftOut, conflicts.length === 0 ? [] : findConflicts(withinNetworks(leases, networks)))
    this.#retry?.cancel() // of an older set
    this.#wanted = { peers: selection.peers, why }
    this.#running ??= this.#run()
    return this.#running
  }

  close(): void {
    this.#closed = true
    this.#retry?.cancel()
  }

  async #run(): Promise<void> {
    // Never ends before its caller has kept the promise: the mark of a run that is over would stay for ever.
    await Promise.resolve()
    while (this.#wanted !== null && !this.#closed) {
      const { peers, why } = this.#wanted
      this.#wanted = null
      const diff = diffLeases(this.#peers ?? [], peers, null)
      const same = this.#peers !== null && diff.added.length + diff.updated.length + diff.removed.length === 0
      // Equal but for revisions and expiries: nothing to forward otherwise, but the status should be fresh.
      if (same && !this.#doubtful) this.#peers = peers
      else await this.#apply(peers, describeCause(why, diff), why)
    }
    this.#running = null
  }

  async #apply(peers: readonly Lease[], cause: string, why: string): Promise<void> {
    const { dataplane, log, clock } = this.#options
    try {
      this.#generation = await dataplane.replacePeers(peers, cause)
      this.#peers = peers
      this.#changedWallMs = clock.wallMs()
      this.#doubtful = false
      const fields = { generation: this.#generation, peers: peers.length, cause }
      log.info('peers-replaced', `forwarding to ${peers.length} peers`, fields)
    } catch (error) {
      this.#doubtful = true
      log.error('peers-not-replaced', `the dataplane did not take the peers, trying again: ${(error as Error).message}`)
      if (this.#closed || this.#wanted !== null) return
      this.#retry = clock.after(RETRY_MS, () => {
        this.#wanted ??= { peers, why }
        this.#running ??= this.#run()
      })
    }
  }

  #report(leftOut: readonly LeftOutPeer[], conflicts: readonly LeaseConflict[]): void {
    const { log } = this.#options
    const known = new Set(this.#leftOut.map(leftOutKey))
    const newlyOut = leftOut.filter((peer) => !known.has(leftOutKey(peer)))
    this.#warnOfSome('peer-left-out', newlyOut, (event, peer) => {
      log.warn(event, `no forwarding to ${leftOutKey(peer)}`, { reason: peer.reason })
    })
    const before = new Set(this.#conflicts.map(describeConflict))
    const newConflicts = conflicts.map(describeConflict).filter((sentence) => !before.has(sentence))
    this.#warnOfSome('lease-conflict', newConflicts, (event, sentence) => {
      log.warn(event, `leases contradict each other: ${sentence}`)
    })
    this.#leftOut = leftOut
    this.#conflicts = conflicts
  }

  #warnOfSome<Found>(event: string, found: readonly Found[], warn: (event: string, one: Found) => void): void {
    for (const one of found.slice(0, SAID_AT_ONCE)) warn(event, one)
    const rest = found.length - SAID_AT_ONCE
    if (rest > 0) this.#options.log.warn(event, `and ${rest} more: flannelette status -o wide names them`)
  }
}

function leftOutKey(peer: LeftOutPeer): string {
  return `${peer.subnet}: ${peer.detail}`
}

/** `lease change: +10.244.2.0/24 ~10.244.3.0/24 -10.244.9.0/24` */
function describeCause(why: string, diff: LeaseDiff): string {
  const marked = [
    ...diff.added.map((lease) => `+${nameOf(lease)}`),
    ...diff.updated.map((lease) => `~${nameOf(lease)}`),
    ...diff.removed.map((lease) => `-${nameOf(lease)}`),
  ]
  const rest = marked.length > NAMED_SUBNETS ? ` and ${marked.length - NAMED_SUBNETS} more` : ''
  return [`${why}:`, ...marked.slice(0, NAMED_SUBNETS)].join(' ') + rest
}
