// How fast one way to forward must be, as a share of another in the same run. One table: the long test and the report
// read it.
import type { UnderlayKind } from '../../src/lab/plan.ts'
import { AGAINST_THE_KERNEL, type Match } from './contestants.ts'

export type Load = 'tcp' | 'small-packets'

export interface Guard extends Match {
  readonly load: Load
  readonly underlay: UnderlayKind
  /** The challenger's median divided by the baseline's, at least. */
  readonly atLeast: number
}

export const GUARDS: readonly Guard[] = [
  { ...AGAINST_THE_KERNEL, load: 'tcp', underlay: 'wire', atLeast: 0.6 },
  { ...AGAINST_THE_KERNEL, load: 'tcp', underlay: 'uso', atLeast: 0.7 },
  { ...AGAINST_THE_KERNEL, load: 'tcp', underlay: 'veth', atLeast: 0.35 },
  { ...AGAINST_THE_KERNEL, load: 'small-packets', underlay: 'veth', atLeast: 1.5 },
  { baseline: 'plain', challenger: 'ours', load: 'tcp', underlay: 'veth', atLeast: 4 },
  { baseline: 'ours', challenger: 'two-workers', load: 'tcp', underlay: 'veth', atLeast: 0.8 },
]

export function guardOf(match: Match, load: Load, underlay: UnderlayKind): Guard | undefined {
  return GUARDS.find(
    (guard) =>
      guard.load === load &&
      guard.underlay === underlay &&
      guard.baseline === match.baseline &&
      guard.challenger === match.challenger,
  )
}
