// Which firewall rules a node wants, as data: flannel's masquerade and forward rules, in flannel's order. Nothing here
// knows how they are written; iptables.ts and nftables.ts say them in their programs' words.
import { formatPrefix, type Prefix, parseIpv6Prefix, parsePrefix } from '../../../dataplane/index.ts'

/** Mark that service proxies set on packets which they masquerade themselves (kube-proxy's default). */
export const MASQUERADE_MARK = '0x4000'

export type Family = 'ip' | 'ip6'
export const FAMILIES: readonly Family[] = ['ip', 'ip6']

/** The network of all pods and this node's part of it, of one family. */
export interface FamilyNetworks {
  readonly family: Family
  readonly network: Prefix
  readonly subnet: Prefix
}

/** A prefix that an address is in, or (`not`) is not in. */
export interface AddressMatch {
  readonly not: boolean
  readonly prefix: string
}

export interface Rule {
  /** Only packets with {@link MASQUERADE_MARK}. */
  readonly marked?: true
  readonly source?: AddressMatch
  readonly destination?: AddressMatch
  readonly verdict: 'return' | 'accept' | 'masquerade'
}

export type RuleSetName = 'masquerade' | 'forward'

/** The rules of one purpose and family, in order. */
export interface RuleSet {
  readonly name: RuleSetName
  readonly family: Family
  readonly rules: readonly Rule[]
}

const MULTICAST: Readonly<Record<Family, Prefix | null>> = {
  ip: parsePrefix('224.0.0.0/4'),
  ip6: parseIpv6Prefix('ff00::/8'),
}

/**
 * Pods keep their addresses among themselves and in multicast, whoever comes from outside keeps his towards this node's
 * pods, and everything else between pods and the rest of the world goes by an address of the node. To `excluded` (those of
 * the family) pods keep their addresses as well: a rule of ours, in front of the one that masquerades pods.
 */
export function masqueradeRules(
  { family, network, subnet }: FamilyNetworks,
  excluded: readonly Prefix[] = [],
): RuleSet {
  const multicast = MULTICAST[family]
  const rules: Rule[] = [
    { marked: true, verdict: 'return' },
    { source: within(subnet), destination: within(network), verdict: 'return' },
    { source: within(network), destination: within(subnet), verdict: 'return' },
    { source: outside(network), destination: within(subnet), verdict: 'return' },
    ...excluded
      .filter(({ address }) => (typeof address === 'number' ? 'ip' : 'ip6') === family)
      .map((prefix) => ({ source: within(network), destination: within(prefix), verdict: 'return' }) as const),
    {
      source: within(network),
      ...(multicast === null ? {} : { destination: outside(multicast) }),
      verdict: 'masquerade',
    },
    { source: outside(network), destination: within(network), verdict: 'masquerade' },
  ]
  return { name: 'masquerade', family, rules }
}

/** Pod packets cross the host also where its policy for forwarded ones is to drop (as container engines set it). */
export function forwardRules({ family, network }: FamilyNetworks): RuleSet {
  const rules: Rule[] = [
    { source: within(network), verdict: 'accept' },
    { destination: within(network), verdict: 'accept' },
  ]
  return { name: 'forward', family, rules }
}

function within(prefix: Prefix): AddressMatch {
  return { not: false, prefix: formatPrefix(prefix) }
}

function outside(prefix: Prefix): AddressMatch {
  return { not: true, prefix: formatPrefix(prefix) }
}
