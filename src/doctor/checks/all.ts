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

/** What asks about a tunnel: its device, its port, its kernel, who sends into it. */
const OF_A_TUNNEL = [
  ...['tun-device', 'vxlan-module', 'udp-segments', 'udp-merging', 'offloads', 'silence', 'offenders', 'drops'],
  ...['overlay-device', 'kernel-vtep', 'network-route', 'rp-filter', 'managed-device', 'mtu', 'port-owner'],
  'firewall-port',
]

/** All findings, group by group. A node whose backend has no device is not asked for one. */
export function examine(facts: Facts): Finding[] {
  const hasTunnel = facts.view.status?.node?.device !== ''
  const checks = CHECKS.filter(({ id }) => hasTunnel || !OF_A_TUNNEL.includes(id))
  const findings = checks.flatMap((check) => findingsOf(check, facts))
  return GROUPS.flatMap((group) => findings.filter((finding) => finding.group === group))
}
