// How fast ours must be, as a share of the kernel's VXLAN in the same run. One table: the long test and the report read it.
import type { UnderlayKind } from '../../src/lab/plan.ts'

export type Load = 'tcp' | 'small-packets'

export interface Guard {
  readonly load: Load
  readonly underlay: UnderlayKind
  /** Our median divided by the kernel's, at least. */
  readonly atLeast: number
}

export const GUARDS: readonly Guard[] = [
  { load: 'tcp', underlay: 'wire', atLeast: 0.6 },
  { load: 'tcp', underlay: 'uso', atLeast: 0.7 },
  { load: 'tcp', underlay: 'veth', atLeast: 0.35 },
  { load: 'small-packets', underlay: 'veth', atLeast: 1.5 },
]

export function guardOf(load: Load, underlay: UnderlayKind): Guard | undefined {
  return GUARDS.find((guard) => guard.load === load && guard.underlay === underlay)
}
