// Kernel VXLAN against flannelette on one underlay: two labs of the same shape stand side by side and take turns.
import { Lab } from '../../src/lab/lab.ts'
import type { UnderlayKind } from '../../src/lab/plan.ts'
import { UNDERLAY_INTERFACE } from '../../src/lab/underlay.ts'
import { type LinkEnd, readLinkEnd } from './environment.ts'
import { guardOf, type Load } from './guards.ts'
import { measure } from './load.ts'
import { type Summary, summarize, takeTurns } from './rounds.ts'

export interface CompareOptions {
  readonly underlay: UnderlayKind
  readonly loads: readonly Load[]
  /** Rounds of each load; the figures that count need five. */
  readonly rounds: number
  /** Seconds of one measurement. */
  readonly seconds: number
  /** Hears of every measurement. */
  readonly progress?: (line: string) => void
}

export interface Comparison {
  readonly load: Load
  readonly underlay: UnderlayKind
  /** `Gbit/s` or `packets/s`; CPU is in seconds for each Gbit or for each packet. */
  readonly unit: string
  readonly kernel: Summary
  readonly ours: Summary
  /** Our median divided by the kernel's. */
  readonly ratio: number
  /** Least ratio that is accepted; `null` where none is demanded. */
  readonly guard: number | null
  /** Both ends of both underlays. */
  readonly links: readonly LinkEnd[]
}

type Contestant = 'kernel' | 'ours'
const CONTESTANTS: readonly Contestant[] = ['kernel', 'ours']

/** Names of the labs that a comparison brings up, for whoever has to clear up after a broken one. */
export const LAB_NAMES: Readonly<Record<Contestant, string>> = { kernel: 'benchkernel', ours: 'benchours' }
const UNITS: Readonly<Record<Load, string>> = { tcp: 'Gbit/s', 'small-packets': 'packets/s' }

/** Two hosts, one pod each, one link. The kernel's device computes outer checksums, as recent flannel has it and as ours does. */
export async function compare(options: CompareOptions): Promise<Comparison[]> {
  try {
    const labs = { kernel: await bringUp('kernel', options.underlay), ours: await bringUp('ours', options.underlay) }
    const links = await Promise.all(
      CONTESTANTS.flatMap((name) => labs[name].hosts.map((host) => readLinkEnd(host.namespace, UNDERLAY_INTERFACE))),
    )
    const comparisons: Comparison[] = []
    for (const load of options.loads) comparisons.push({ ...(await contest(load, labs, options)), links })
    return comparisons
  } finally {
    await removeLabs()
  }
}

export async function removeLabs(): Promise<void> {
  for (const name of CONTESTANTS) await Lab.down(LAB_NAMES[name])
}

function bringUp(contestant: Contestant, underlay: UnderlayKind): Promise<Lab> {
  const kernel = contestant === 'kernel' ? ['host1', 'host2'] : []
  return Lab.up({ name: LAB_NAMES[contestant], hosts: 2, pods: 1, kernel, underlay, direct: true })
}

async function contest(
  load: Load,
  labs: Readonly<Record<Contestant, Lab>>,
  { underlay, rounds, seconds, progress = () => {} }: CompareOptions,
): Promise<Omit<Comparison, 'links'>> {
  const samples = await takeTurns(
    CONTESTANTS,
    rounds,
    (name) => measure(load, labs[name].endpoint('pod1.1'), labs[name].endpoint('pod2.1'), seconds),
    (name, round, { value }) => progress(`${underlay} ${load} round ${round + 1}: ${name} ${value.toPrecision(4)}`),
  )
  const kernel = summarize(samples.get('kernel') ?? [])
  const ours = summarize(samples.get('ours') ?? [])
  const guard = guardOf(load, underlay)?.atLeast ?? null
  return { load, underlay, unit: UNITS[load], kernel, ours, ratio: ours.median / kernel.median, guard }
}
