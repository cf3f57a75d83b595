// `--dataplane auto`: the kernel's VTEP where the kernel has one and the backend is one that it knows, else our own
// engine. Chosen when the node rehearses its start, since only then the backend is known; from then on this is the one
// that was taken.
import type { Feature, Offender, PeerTraffic, UnderlayAddress } from '../../dataplane/index.ts'
import type { Dataplane, LocalVtep, VtepOutline } from '../host/dataplane.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'

export interface AutoDataplaneOptions {
  readonly kernel: () => Dataplane
  readonly userspace: () => Dataplane
  /** Why the kernel can make no VXLAN device, `null` when it can. @throws FlanneletteError when that cannot be told */
  readonly obstacle: () => Promise<string | null>
  readonly log: Log
}

export class AutoDataplane implements Dataplane {
  readonly #options: AutoDataplaneOptions
  #taken: Dataplane | null = null
  #why = 'not chosen yet'

  constructor(options: AutoDataplaneOptions) {
    this.#options = options
  }

  /** The one that was taken; `null` before the choice. */
  get taken(): Dataplane | null {
    return this.#taken
  }

  get why(): string {
    return `auto: ${this.#why}`
  }

  get kind(): Dataplane['kind'] {
    return this.#taken?.kind ?? 'userspace'
  }

  get entropy(): string {
    return this.#taken?.entropy ?? 'none'
  }

  get driver(): Dataplane['driver'] {
    return this.#taken?.driver ?? 'offload'
  }

  async prepare(outline: VtepOutline): Promise<void> {
    const { kernel, userspace, log } = this.#options
    const obstacle = await this.#obstacle(outline)
    this.#why = obstacle ?? 'this kernel has vxlan devices'
    this.#taken = obstacle === null ? kernel() : userspace()
    log.info('dataplane-chosen', `${this.kind} dataplane, chosen by auto: ${this.#why}`, { dataplane: this.kind })
    await this.#taken.prepare(outline)
  }

  /** What keeps the kernel from being taken. */
  async #obstacle({ encapsulation }: VtepOutline): Promise<string | null> {
    if (encapsulation !== 'vxlan') return `the kernel has no tunnel for the ${encapsulation} backend`
    return this.#options.obstacle()
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

  features(): readonly Feature[] {
    return this.#taken?.features() ?? []
  }

  counters(): Readonly<Record<string, number>> {
    return this.#taken?.counters() ?? {}
  }

  traffic(): ReadonlyMap<UnderlayAddress, PeerTraffic> | null {
    return this.#taken?.traffic() ?? null
  }

  workerRestarts(): readonly number[] {
    return this.#taken?.workerRestarts() ?? []
  }

  offenders(): readonly Offender[] {
    return this.#taken?.offenders() ?? []
  }

  impairment(): string | null {
    return this.#taken?.impairment() ?? null
  }

  pendingPeers(): number {
    return this.#taken?.pendingPeers() ?? 0
  }

  pendingSubnets(): ReadonlySet<string> {
    return this.#taken?.pendingSubnets() ?? new Set()
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    await this.#taken?.stop(mode)
  }

  get #chosen(): Dataplane {
    if (this.#taken === null) throw new Error('the dataplane is not prepared')
    return this.#taken
  }
}
