// Whether the kernel shows packets between pods of one bridge to iptables (br_netfilter, bridge(8)): without it rules
// for services do not see a pod that talks to a neighbour on its own node.
import { existsSync } from 'node:fs'
import type { Family } from './firewall/rules.ts'

const SETTINGS: Readonly<Record<Family, string>> = { ip: 'bridge-nf-call-iptables', ip6: 'bridge-nf-call-ip6tables' }

/** What is wrong, in a sentence, and what helps; `null` when nothing is. Does not apply to nftables mode. */
export function bridgeNetfilterProblem(
  families: readonly Family[],
  directory = '/proc/sys/net/bridge',
): { readonly message: string; readonly remedy: string } | null {
  const missing = families.map((family) => `${directory}/${SETTINGS[family]}`).filter((path) => !existsSync(path))
  if (missing.length === 0) return null
  return {
    message: `the module br_netfilter is not loaded (there is no ${missing.join(', no ')}): iptables rules do not see packets between pods of one node`,
    remedy:
      'load it now and at every boot: modprobe br_netfilter; echo br_netfilter > /etc/modules-load.d/br_netfilter.conf',
  }
}
