// One way to forward against another on one underlay: two labs of the same shape stand side by side and take turns.
import { Lab } from '../../src/lab/lab.ts'
import type { UnderlayKind } from '../../src/lab/plan.ts'
import { UNDERLAY_INTERFACE } from '../../src/lab/underlay.ts'
import { AGAINST_THE_KERNEL, type Contestant, labName, type Match, SHAPES } from './contestants.ts'
import { type LinkEnd, readLinkEnd } from './environment.ts'
import { guardOf, type Load } from './guards.ts'
import { measure } from './load.ts'
import { type Summary, summarize, takeTurns } from './rounds.ts'

export interface CompareOptions {
  /** Kernel and ours unless told otherwise. */
  readonly match?: Match
  readonly underlay: UnderlayKind
  readonly loads: readonly Load[]
  /** Rounds of each load; the figures that count need five. */
  readonly rounds: number
  /** Seconds of one measurement. */
  readonly seconds: number
  /** Hears of every measurement. */
  readonly progress?: (line: string) => void
}

export interface Comparison extends Match {
  readonly load: Load
  readonly underlay: UnderlayKind
  /** `Gbit/s` or `packets/s`; CPU is in seconds for each Gbit or for each packet. */
  readonly unit: string
  /** The baseline's figures. */
  readonly base: Summary
  /** The challenger's figures. */
  readonly challenge: Summary
  /** The challenger's median divided by the baseline's. */
  readonly ratio: number
  /** Least ratio that is accepted; `null` where none is demanded. */
  readonly guard: number | null
  /** Both ends of both underlays. */
  readonly links: readonly LinkEnd[]
}

const UNITS: Readonly<Record<Load, string>> = { tcp: 'Gbit/s', 'small-packets': 'packets/s' }

type Labs = Readonly<Record<keyof Match, Lab>>

/**
 * Two hosts, one pod each, one link. The kernel's device computes outer checksums, as recent flannel has it and as ours
 * does.
 */
export async function compare(options: CompareOptions): Promise<Comparison[]> {
  const { match = AGAINST_THE_KERNEL, underlay } = options
  try {
    const baseline = await bringUp(match.baseline, underlay)
    const challenger = await bringUp(match.challenger, underlay)
    const links = await Promise.all(
      [baseline, challenger].flatMap(({ hosts }) =>
        hosts.map((host) => readLinkEnd(host.namespace, UNDERLAY_INTERFACE)),
      ),
    )
    const comparisons: Comparison[] = []
    for (const load of options.loads) {
      comparisons.push({ ...(await contest(load, match, { baseline, challenger }, options)), links })
    }
    return comparisons
  } finally {
    await removeLabs(match)
  }
}

export async function removeLabs({ baseline, challenger }: Match = AGAINST_THE_KERNEL): Promise<void> {
  for (const contestant of [baseline, challenger]) await Lab.down(labName(contestant))
}

function bringUp(contestant: Contestant, underlay: UnderlayKind): Promise<Lab> {
  return Lab.up({ name: labName(contestant), hosts: 2, pods: 1, ...SHAPES[contestant], underlay, direct: true })
}

async function contest(
  load: Load,
  match: Match,
  labs: Labs,
  { underlay, rounds, seconds, progress = () => {} }: CompareOptions,
): Promise<Omit<Comparison, 'links'>> {
  const samples = await takeTurns(
    ['baseline', 'challenger'] as const,
    rounds,
    (side) => measure(load, labs[side].endpoint('pod1.1'), labs[side].endpoint('pod2.1'), seconds),
    (side, round, { value }) =>
      progress(`${underlay} ${load} round ${round + 1}: ${match[side]} ${value.toPrecision(4)}`),
  )
  const base = summarize(samples.get('baseline') ?? [])
  const challenge = summarize(samples.get('challenger') ?? [])
  const guard = guardOf(match, load, underlay)?.atLeast ?? null
  return { ...match, load, underlay, unit: UNITS[load], base, challenge, ratio: challenge.median / base.median, guard }
}
