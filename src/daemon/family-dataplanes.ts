// The dataplane of a node as the agent sees it. Where IPv6 has a tunnel of its own there are two dataplanes behind it,
// one for each family, with device, sockets and workers of their own; here they are one: begun together or not at all,
// counted together. Else there is one, and this hands on.
import type { OuterDf, RecordedStep } from '../../dataplane/index.ts'
import type { Dataplane, EngineBooks, LocalVtep, PeerWay, VtepOutline } from '../host/dataplane.ts'
import { NOTHING_PENDING, type Pending } from '../host/pending.ts'
import { lastResult } from '../last-result.ts'
import type { Lease } from '../lease/lease.ts'
import type { Traceable } from './api-server.ts'
import { ChosenDataplane } from './chosen-dataplane.ts'
import { mergeBooks } from './merged-books.ts'

/** A dataplane whose steps may be watched. */
type Part = Dataplane & Partial<Traceable>

export class FamilyDataplanes implements Dataplane, Traceable {
  readonly #make: () => Part
  readonly #first: Part
  /** That of IPv6, where it has one of its own. */
  #second: Part | null = null
  /** What each works by now: it is asked to follow only what concerns it. */
  readonly #inForce = new Map<Part, LocalVtep>()
  readonly #bothPending = lastResult((first: Pending, second: Pending): Pending => {
    return second.size === 0 ? first : new Map([...first, ...second])
  })

  /** `make` gives one dataplane, not started yet. */
  constructor(make: () => Part) {
    this.#make = make
    this.#first = make()
  }

  get kind(): Dataplane['kind'] {
    return this.#first.kind
  }

  /** How the kind was chosen, the same for both. */
  get why(): string | undefined {
    return this.#first.why
  }

  get driver(): Dataplane['driver'] {
    return this.#first.driver
  }

  get entropy(): string {
    return [...new Set(this.#parts.map(({ entropy }) => entropy))].join(', over IPv6 ')
  }

  get outerDf(): OuterDf {
    return this.#first.outerDf ?? 'clear'
  }

  get books(): EngineBooks | undefined {
    return mergeBooks(this.#parts.flatMap(({ books }) => books ?? []))
  }

  async prepare(outline: VtepOutline): Promise<void> {
    const { ipv6Device } = outline
    await this.#first.prepare(ipv4Side(outline))
    if (ipv6Device === undefined) return
    this.#second = this.#make()
    try {
      await this.#second.prepare(withoutSecond({ ...outline, ...ipv6Device, network: null }))
    } catch (error) {
      await this.#first.stop('keep')
      throw error
    }
  }

  async start(local: LocalVtep): Promise<void> {
    const sides = this.#sidesOf(local)
    for (const [part, side] of sides) {
      try {
        await part.start(side)
        this.#inForce.set(part, side)
      } catch (error) {
        // The one that has begun is taken back, so that nothing is half there.
        await Promise.allSettled(sides.map(([other]) => other.stop(this.#inForce.has(other) ? 'remove' : 'keep')))
        throw error
      }
    }
  }

  moveUnderlay(local: LocalVtep): Promise<void> {
    const isElsewhere = (now: LocalVtep, before: LocalVtep) =>
      now.underlayAddress !== before.underlayAddress || now.underlayInterface !== before.underlayInterface
    return this.#follow(local, isElsewhere, (part, side) => part.moveUnderlay(side))
  }

  changeMtu(local: LocalVtep): Promise<void> {
    const isOfOtherSize = (now: LocalVtep, before: LocalVtep) => now.mtuBytes !== before.mtuBytes
    return this.#follow(local, isOfOtherSize, (part, side) => part.changeMtu(side))
  }

  /** Each that is concerned, whatever becomes of the other; what failed is done by the next call. */
  async #follow(
    local: LocalVtep,
    isConcerned: (now: LocalVtep, before: LocalVtep) => boolean,
    act: (part: Part, side: LocalVtep) => Promise<void>,
  ): Promise<void> {
    const work = this.#sidesOf(local).map(async ([part, side]) => {
      const before = this.#inForce.get(part)
      if (before !== undefined && !isConcerned(side, before)) return
      await act(part, side)
      this.#inForce.set(part, side)
    })
    await allOf(work)
  }

  async replacePeers(peers: readonly Lease[], cause: string): Promise<number> {
    return Math.max(...(await allOf(this.#parts.map((part) => part.replacePeers(peers, cause)))))
  }

  counters(): Readonly<Record<string, number>> {
    const sums: Record<string, number> = {}
    for (const part of this.#parts) {
      for (const [name, value] of Object.entries(part.counters())) sums[name] = (sums[name] ?? 0) + value
    }
    return sums
  }

  impairment(): string | null {
    const ofSecond = this.#second?.impairment() ?? null
    return this.#first.impairment() ?? (ofSecond === null ? null : `IPv6: ${ofSecond}`)
  }

  pendingSubnets(): Pending {
    return this.#bothPending(this.#first.pendingSubnets(), this.#second?.pendingSubnets() ?? NOTHING_PENDING)
  }

  /** Each subnet belongs to one of both. */
  ways(): ReadonlyMap<string, PeerWay> | null {
    const known = this.#parts.map((part) => part.ways?.() ?? null)
    return known.every((ways) => ways === null) ? null : new Map(known.flatMap((ways) => [...(ways ?? [])]))
  }

  get isTraceable(): boolean {
    return engineOf(this.#first).trace !== undefined
  }

  get isStarted(): boolean {
    return engineOf(this.#first).isStarted === true
  }

  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    for (const part of this.#parts) engineOf(part).trace?.(steps, onSteps)
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    await allOf(this.#parts.map((part) => part.stop(mode)))
  }

  get #parts(): readonly Part[] {
    return this.#second === null ? [this.#first] : [this.#first, this.#second]
  }

  #sidesOf(local: LocalVtep): readonly (readonly [Part, LocalVtep])[] {
    const { ipv6Device, ipv6Subnet } = local
    const first = [this.#first, ipv4Side(local)] as const
    if (this.#second === null || ipv6Device === undefined || ipv6Subnet === null) return [first]
    const alone = { ...local, ...ipv6Device, network: null, subnet: null, overlayAddress: ipv6Subnet.address }
    return [first, [this.#second, withoutSecond(alone)]]
  }
}

/** What moves the packets of a part: of one that has chosen, or is around another, that. */
function engineOf(part: Part): Part {
  return part instanceof ChosenDataplane ? engineOf(part.inner) : part
}

/** Of a node with two devices the first one carries IPv4 only. */
function ipv4Side<Node extends VtepOutline>(node: Node): Node {
  if (node.ipv6Device === undefined) return node
  return withoutSecond({ ...node, ipv6Network: null, ipv6Subnet: null })
}

function withoutSecond<Node extends VtepOutline>(node: Node): Node {
  const { ipv6Device: _, ...rest } = node
  return rest as Node
}

/** Waits for all, then fails with the first failure: nothing is still under way when the caller goes on. */
async function allOf<T>(work: readonly Promise<T>[]): Promise<T[]> {
  const done = await Promise.allSettled(work)
  return done.map((one) => {
    if (one.status === 'rejected') throw one.reason
    return one.value
  })
}
