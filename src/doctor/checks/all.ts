// Every check of `flannelette doctor`, in the order of its output.
import type { Facts } from '../facts.ts'
import { type Finding, GROUPS } from '../finding.ts'
import { type Check, findingsOf } from './check.ts'
import { DAEMON_CHECKS } from './daemon.ts'
import { HOST_CHECKS } from './host.ts'
import { LEASE_CHECKS } from './lease.ts'
import { POD_CHECKS } from './pods.ts'
import { SYSTEM_CHECKS } from './system.ts'
import { UNDERLAY_CHECKS } from './underlay.ts'

export const CHECKS: readonly Check[] = [
  ...SYSTEM_CHECKS,
  ...DAEMON_CHECKS,
  ...LEASE_CHECKS,
  ...UNDERLAY_CHECKS,
  ...HOST_CHECKS,
  ...POD_CHECKS,
]

/** All findings, group by group. */
export function examine(facts: Facts): Finding[] {
  const findings = CHECKS.flatMap((check) => findingsOf(check, facts))
  return GROUPS.flatMap((group) => findings.filter((finding) => finding.group === group))
}
