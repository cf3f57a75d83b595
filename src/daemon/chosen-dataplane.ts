// The dataplane of a daemon whose network config is still to be read: which one it is follows from the backend, which
// `prepare` is the first to hear of. Until then, and for every tunnel, it is the one that the command line asked for.

import type { Dataplane, LocalVtep, PeerWay, VtepOutline } from '../host/dataplane.ts'
import type { Lease } from '../lease/lease.ts'

export class ChosenDataplane implements Dataplane {
  readonly #other: (outline: VtepOutline) => Dataplane | null
  #chosen: Dataplane

  /** `other`: what takes the place of the usual one for this backend, `null` where nothing does. */
  constructor(usual: Dataplane, other: (outline: VtepOutline) => Dataplane | null) {
    this.#chosen = usual
    this.#other = other
  }

  prepare(outline: VtepOutline): Promise<void> {
    this.#chosen = this.#other(outline) ?? this.#chosen
    return this.#chosen.prepare(outline)
  }

  get kind(): Dataplane['kind'] {
    return this.#chosen.kind
  }

  get why(): string | undefined {
    return this.#chosen.why
  }

  get entropy(): string {
    return this.#chosen.entropy
  }

  get driver(): Dataplane['driver'] {
    return this.#chosen.driver
  }

  leaseData(): unknown {
    return this.#chosen.leaseData?.()
  }

  start(local: LocalVtep): Promise<void> {
    return this.#chosen.start(local)
  }

  moveUnderlay(local: LocalVtep): Promise<void> {
    return this.#chosen.moveUnderlay(local)
  }

  changeMtu(local: LocalVtep): Promise<void> {
    return this.#chosen.changeMtu(local)
  }

  replacePeers(peers: readonly Lease[], cause: string): Promise<number> {
    return this.#chosen.replacePeers(peers, cause)
  }

  features(): ReturnType<Dataplane['features']> {
    return this.#chosen.features()
  }

  counters(): ReturnType<Dataplane['counters']> {
    return this.#chosen.counters()
  }

  traffic(): ReturnType<Dataplane['traffic']> {
    return this.#chosen.traffic()
  }

  workerRestarts(): readonly number[] {
    return this.#chosen.workerRestarts()
  }

  offenders(): ReturnType<Dataplane['offenders']> {
    return this.#chosen.offenders()
  }

  impairment(): string | null {
    return this.#chosen.impairment()
  }

  pendingPeers(): number {
    return this.#chosen.pendingPeers()
  }

  pendingSubnets(): ReadonlySet<string> {
    return this.#chosen.pendingSubnets()
  }

  ways(): ReadonlyMap<string, PeerWay> | null {
    return this.#chosen.ways?.() ?? null
  }

  stop(mode: 'keep' | 'remove'): Promise<void> {
    return this.#chosen.stop(mode)
  }
}
