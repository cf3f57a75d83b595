// Which peers a command has been run for, and which are still to come. Each peer goes its own way: its commands run one
// after the other, a failure is tried again with back-off, and no other peer waits for it. A peer that changed is removed
// and added again; a change that comes while a command runs is looked at when that has ended. Peers that a former run
// has added are added again, as nobody knows what has become of that; those that are no longer wanted are removed.
import type { Clock, Timer } from '../clock.ts'

export interface PeerWork<Peer> {
  /** Resolves with `null`, or with why it failed. */
  add(peer: Peer): Promise<string | null>
  remove(peer: Peer): Promise<string | null>
  /** Told of each failure, and of a success that came after some. */
  tell(event: PeerEvent): void
}

/** A peer whose add has not worked yet, and what its last command has come to. */
export interface PendingPeer<Peer> {
  readonly peer: Peer
  readonly what: PeerEvent['what']
  /** Of the last attempt, `null` when none has failed. */
  readonly failure: string | null
  /** In a row. */
  readonly failures: number
}

export interface PeerEvent {
  readonly peer: string
  readonly what: 'add' | 'remove'
  /** `null`: it worked at last. */
  readonly failure: string | null
  /** How often it has failed in a row. */
  readonly failures: number
  /** No further attempt is made. */
  readonly givenUp: boolean
}

/** Commands of one daemon at a time: ten thousand peers are no reason for ten thousand processes. */
const MOST_AT_ONCE = 16
const FIRST_RETRY_MS = 500
const LONGEST_RETRY_MS = 60_000
/** What cannot be removed after so many attempts is most likely gone. */
const MOST_REMOVALS = 4

interface Way<Peer> {
  wanted: Peer | null
  /** What an add was run for last, and no remove after it; with `isDone`: it worked. */
  present: Peer | null
  isDone: boolean
  /** The last command. */
  what: PeerEvent['what']
  failure: string | null
  failures: number
  isRunning: boolean
  /** The last command, until it has ended and after; `null` before the first. */
  command: Promise<unknown> | null
  retry: Timer | null
}

export class PeerCommands<Peer> {
  readonly #work: PeerWork<Peer>
  readonly #clock: Clock
  readonly #same: (a: Peer, b: Peer) => boolean
  readonly #ways = new Map<string, Way<Peer>>()
  readonly #waiting: (() => void)[] = []
  #running = 0
  #closed = false

  constructor(work: PeerWork<Peer>, clock: Clock, same: (a: Peer, b: Peer) => boolean) {
    this.#work = work
    this.#clock = clock
    this.#same = same
  }

  /** Peers that an earlier run has added, by name; before the first {@link want}. */
  recall(present: ReadonlyMap<string, Peer>): void {
    for (const [name, peer] of present) this.#ways.set(name, { ...emptyWay<Peer>(), present: peer })
  }

  /** The whole set of peers from now on, by name. Returns at once; the commands run meanwhile. */
  want(peers: ReadonlyMap<string, Peer>): void {
    for (const [name, peer] of peers) {
      const way = this.#ways.get(name) ?? emptyWay<Peer>()
      this.#ways.set(name, way)
      if (way.wanted !== null && this.#same(way.wanted, peer)) continue
      this.#turn(name, way, peer)
    }
    for (const [name, way] of this.#ways) {
      if (!peers.has(name) && (way.wanted !== null || isLeftOver(way))) this.#turn(name, way, null)
    }
  }

  /** Peers whose add has not worked yet, by name. */
  get pending(): ReadonlyMap<string, PendingPeer<Peer>> {
    const pending = new Map<string, PendingPeer<Peer>>()
    for (const [name, { wanted, isDone, what, failure, failures }] of this.#ways) {
      if (wanted !== null && !isDone) pending.set(name, { peer: wanted, what, failure, failures })
    }
    return pending
  }

  /** Runs no further command. */
  close(): void {
    this.#closed = true
    for (const { retry } of this.#ways.values()) retry?.cancel()
  }

  /**
   * Removes all that is present, once each and behind a command that still runs for it, and runs nothing afterwards.
   * Resolves with what failed, by name.
   */
  async removeAll(): Promise<ReadonlyMap<string, string>> {
    this.close()
    const failures = new Map<string, string>()
    const remove = async ([name, way]: [string, Way<Peer>]) => {
      await way.command
      const { present } = way
      if (present === null) return
      const failure = await this.#inTurn(() => this.#work.remove(present))
      if (failure !== null) failures.set(name, failure)
    }
    await Promise.all([...this.#ways].map(remove))
    return failures
  }

  /** News of a peer: what failed before says nothing of it. */
  #turn(name: string, way: Way<Peer>, wanted: Peer | null): void {
    way.wanted = wanted
    way.failures = 0
    way.failure = null
    way.isDone = wanted !== null && way.present !== null && way.isDone && this.#same(wanted, way.present)
    way.retry?.cancel()
    way.retry = null
    void this.#go(name, way)
  }

  async #go(name: string, way: Way<Peer>): Promise<void> {
    if (way.isRunning) return
    way.isRunning = true
    try {
      while (!this.#closed && way.retry === null && (await this.#step(name, way)));
    } finally {
      way.isRunning = false
    }
    if (way.wanted === null && way.present === null) this.#ways.delete(name)
  }

  /** One command; false when there is nothing to do. */
  async #step(name: string, way: Way<Peer>): Promise<boolean> {
    const { wanted, present } = way
    if (present !== null && (wanted === null || !this.#same(wanted, present))) {
      way.what = 'remove'
      const failure = await this.#command(way, () => this.#work.remove(present))
      if (failure === undefined) return false
      const givenUp = failure !== null && way.failures + 1 >= MOST_REMOVALS
      this.#settle(name, way, { what: 'remove', failure, givenUp })
      if (failure === null || givenUp) {
        way.present = null
        way.isDone = false
        way.failures = 0
        way.failure = null
      }
      return true
    }
    if (wanted === null || way.isDone) return false
    way.what = 'add'
    const failure = await this.#command(way, () => {
      way.present = wanted
      return this.#work.add(wanted)
    })
    if (failure === undefined) return false
    // What has been taken back meanwhile is no success of what is wanted now.
    const isCurrent = way.wanted !== null && this.#same(way.wanted, wanted)
    way.isDone = failure === null && isCurrent
    if (isCurrent || failure === null) this.#settle(name, way, { what: 'add', failure, givenUp: false })
    return true
  }

  #settle(name: string, way: Way<Peer>, { what, failure, givenUp }: Omit<PeerEvent, 'peer' | 'failures'>): void {
    const before = way.failures
    way.failures = failure === null ? 0 : before + 1
    way.failure = failure
    if (failure === null && before === 0) return
    this.#work.tell({ peer: name, what, failure, failures: failure === null ? before : way.failures, givenUp })
    if (failure === null || givenUp || this.#closed) return
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** before, LONGEST_RETRY_MS)
    way.retry = this.#clock.after(delayMs, () => {
      way.retry = null
      void this.#go(name, way)
    })
  }

  /** As its work resolves; with `undefined` where the end came before its turn. */
  #command(way: Way<Peer>, work: () => Promise<string | null>): Promise<string | null | undefined> {
    const command = this.#inTurn(async () => (this.#closed ? undefined : await work()))
    way.command = command
    return command
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= MOST_AT_ONCE) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    else this.#running += 1
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#running -= 1
      else next()
    }
  }
}

/** Of an earlier run, and not looked at yet. */
function isLeftOver<Peer>({ wanted, present, isRunning, retry }: Way<Peer>): boolean {
  return wanted === null && present !== null && !isRunning && retry === null
}

function emptyWay<Peer>(): Way<Peer> {
  return {
    wanted: null,
    present: null,
    isDone: false,
    what: 'add',
    failure: null,
    failures: 0,
    isRunning: false,
    command: null,
    retry: null,
  }
}
