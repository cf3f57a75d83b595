// Chains of others that drop whatever they do not accept themselves. An accepting rule ends its own base chain only
// (nft(8), VERDICT STATEMENTS): ours cannot speak for another one.
import { attempt, isInstalled } from '../command.ts'
import type { FirewallMode } from './firewall.ts'

/** What iptables-nft keeps its rules in; there ours stand in the very chain that has the policy. */
const OF_IPTABLES = /^table (ip|ip6) filter$/

/** Such chains in what `nft list chains` says: `chain FORWARD of table ip filter`. */
export function droppingChains(listing: string, mode: FirewallMode): string[] {
  const found: string[] = []
  let table = ''
  let chain = ''
  for (const line of listing.split('\n')) {
    table = /^(table \S+ \S+) \{/.exec(line)?.[1] ?? table
    chain = /^\s+(chain \S+) \{/.exec(line)?.[1] ?? chain
    if (!/hook forward .*policy drop/.test(line)) continue
    if (mode === 'nftables' || !OF_IPTABLES.test(table)) found.push(`${chain} of ${table}`)
  }
  return found
}

/** A warning about them, `null` where there are none or nobody can say. */
export async function forwardPolicyProblem(mode: FirewallMode): Promise<string | null> {
  if (!isInstalled('nft')) return null
  const { exitCode, stdout } = await attempt(['nft', 'list', 'chains'])
  const chains = exitCode === 0 ? droppingChains(stdout, mode) : []
  if (chains.length === 0) return null
  const names = chains.join(', ')
  return `forwarded packets of pods are dropped unless these accept them themselves: ${names} (policy drop); accept the pod network there`
}
