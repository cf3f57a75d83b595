// The dataplane of a daemon whose network config is still to be read: which one it is follows from the backend, which
// `prepare` is the first to hear of. Until then, and where nothing else is called for, it is the usual one.
import type { OuterDf } from '../../dataplane/index.ts'
import type { Dataplane, EngineBooks, LocalVtep, PeerWay, VtepOutline } from '../host/dataplane.ts'
import type { Pending } from '../host/pending.ts'
import type { Lease } from '../lease/lease.ts'

/** What takes the place of the usual one for this backend, `null` where nothing does. */
export type OtherDataplane = (outline: VtepOutline) => Dataplane | null | Promise<Dataplane | null>

export class ChosenDataplane implements Dataplane {
  readonly #other: OtherDataplane
  #chosen: Dataplane

  constructor(usual: Dataplane, other: OtherDataplane) {
    this.#chosen = usual
    this.#other = other
  }

  /** What it has come to. */
  get inner(): Dataplane {
    return this.#chosen
  }

  async prepare(outline: VtepOutline): Promise<void> {
    this.#chosen = (await this.#other(outline)) ?? this.#chosen
    await this.#chosen.prepare(outline)
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

  get books(): EngineBooks | undefined {
    return this.#chosen.books
  }

  counters(): ReturnType<Dataplane['counters']> {
    return this.#chosen.counters()
  }

  get outerDf(): OuterDf {
    return this.#chosen.outerDf ?? 'clear'
  }

  impairment(): string | null {
    return this.#chosen.impairment()
  }

  pendingSubnets(): Pending {
    return this.#chosen.pendingSubnets()
  }

  ways(): ReadonlyMap<string, PeerWay> | null {
    return this.#chosen.ways?.() ?? null
  }

  stop(mode: 'keep' | 'remove'): Promise<void> {
    return this.#chosen.stop(mode)
  }
}
