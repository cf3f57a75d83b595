// The shape of a check: a pure function from facts to remarks, under a name that is also its anchor in the docs.
import type { Facts } from '../facts.ts'
import { docsOf, type Finding, type Group, type Remark } from '../finding.ts'

export interface Check {
  /** Kebab-case; `docs/troubleshooting.md#doctor-<id>`. */
  readonly id: string
  readonly group: Group
  /** At least one remark when there is anything to say; none when the question does not arise here. */
  judge(facts: Facts): readonly Remark[]
}

/** The remarks of a check as findings. */
export function findingsOf(check: Check, facts: Facts): Finding[] {
  const { id, group } = check
  return check.judge(facts).map((remark) => ({ check: id, group, ...remark, docs: docsOf(id) }))
}
