// Who may be compared with whom: ways to forward, each as the lab that runs it.
import type { LabOptions } from '../../src/lab/plan.ts'

export type Contestant = 'kernel' | 'ours' | 'plain' | 'two-workers'

type Shape = Pick<LabOptions, 'kernel' | 'daemonArguments'>

/** What makes a lab of two hosts the contestant's. `ours` is what a daemon does when it is told nothing. */
export const SHAPES: Readonly<Record<Contestant, Shape>> = {
  kernel: { kernel: ['host1', 'host2'], daemonArguments: [] },
  ours: { kernel: [], daemonArguments: [] },
  plain: { kernel: [], daemonArguments: ['--driver', 'plain'] },
  'two-workers': { kernel: [], daemonArguments: ['--workers', '2'] },
}

export const CONTESTANTS = Object.keys(SHAPES) as readonly Contestant[]

/** Two that take turns: the figure that counts is the challenger's as a share of the baseline's. */
export interface Match {
  readonly baseline: Contestant
  readonly challenger: Contestant
}

/** What the project is measured by. */
export const AGAINST_THE_KERNEL: Match = { baseline: 'kernel', challenger: 'ours' }

/** The lab that a contestant's hosts stand in, for whoever has to clear up after a broken run. */
export function labName(contestant: Contestant): string {
  return `bench${contestant.replace('-', '')}`
}
