// A dataplane that moves nothing and remembers what it was told.
import type { Offender } from '../../dataplane/engine/offenders.ts'
import type { UnderlayAddress } from '../../dataplane/forwarding/remote-vtep.ts'
import { works } from '../../dataplane/io/feature.ts'
import { formatPrefix } from '../../dataplane/wire/prefix.ts'
import type { Dataplane, EngineBooks, LocalVtep, VtepOutline } from '../../src/host/dataplane.ts'
import { NOTHING_PENDING, type Pending } from '../../src/host/pending.ts'
import type { Lease } from '../../src/lease/lease.ts'

export class FakeDataplane implements Dataplane {
  readonly kind: Dataplane['kind'] = 'userspace'
  readonly entropy = 'none'
  readonly driver = 'offload'
  local: LocalVtep | null = null
  /** Who is refused, by its books. */
  refused: readonly Offender[] = []
  /** Limits of ways, by its books. */
  readonly limits = new Map<UnderlayAddress, number>()
  readonly books: EngineBooks | undefined = {
    features: () => [works('udp-gso', 'as in a test')],
    traffic: () => new Map(),
    pathLimits: () => this.limits,
    workerRestarts: () => [0, 2],
    offenders: () => this.refused,
  }
  /** What `pendingSubnets` gives. */
  waiting = NOTHING_PENDING
  outline: VtepOutline | null = null
  trouble: string | null = null
  /** Every table that was handed over, with its cause. */
  readonly tables: { readonly peers: readonly Lease[]; readonly cause: string }[] = []
  readonly stops: ('keep' | 'remove')[] = []
  /** Errors to throw from the next calls, first one first. */
  readonly prepareFailures: Error[] = []
  readonly startFailures: Error[] = []
  readonly moveFailures: Error[] = []
  readonly mtuFailures: Error[] = []
  readonly replaceFailures: Error[] = []
  /** When set, a hand-over waits for it. */
  gate: Promise<void> | null = null

  async prepare(outline: VtepOutline): Promise<void> {
    const failure = this.prepareFailures.shift()
    if (failure !== undefined) throw failure
    this.outline = outline
  }

  async start(local: LocalVtep): Promise<void> {
    const failure = this.startFailures.shift()
    if (failure !== undefined) throw failure
    this.local = local
  }

  async moveUnderlay(local: LocalVtep): Promise<void> {
    const failure = this.moveFailures.shift()
    if (failure !== undefined) throw failure
    this.local = local
  }

  async changeMtu(local: LocalVtep): Promise<void> {
    const failure = this.mtuFailures.shift()
    if (failure !== undefined) throw failure
    this.local = local
  }

  async replacePeers(peers: readonly Lease[], cause: string): Promise<number> {
    await this.gate
    const failure = this.replaceFailures.shift()
    if (failure !== undefined) throw failure
    this.tables.push({ peers, cause })
    return this.tables.length
  }

  counters(): Readonly<Record<string, number>> {
    return { 'outbound.packets.read': 7 }
  }

  impairment(): string | null {
    return this.trouble
  }

  pendingSubnets(): Pending {
    return this.waiting
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.stops.push(mode)
  }

  /** Subnets of the table in force. */
  get subnets(): string[] {
    return (this.tables.at(-1)?.peers ?? []).map((lease) => formatPrefix(lease.subnet!))
  }
}
