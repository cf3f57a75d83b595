// Base chains of the packet filter, read from `iptables -S`, `ip6tables -S` and `nft -j list ruleset`: whether what such a chain drops by
// default is let through by one of its rules, and whether a rule drops the tunnel's port. Rules are judged by what they
// name, not executed: whoever writes them otherwise gets a warning too many, never one too few.
import { containsPrefix, type Prefix, parseIpv6Prefix, parsePrefix } from '../../dataplane/index.ts'

/** Where packets of pods or of the tunnel are seen. */
const HOOKS = ['prerouting', 'input', 'forward', 'output', 'postrouting'] as const

export interface FirewallChain {
  /** As people find it again: `iptables FORWARD`, `nft inet filter forward`. */
  readonly name: string
  readonly hook: (typeof HOOKS)[number]
  readonly policy: 'accept' | 'drop'
  readonly rules: readonly FirewallRule[]
}

/** A rule with its jumps followed: the text holds those of the chain that it jumps to. */
export interface FirewallRule {
  readonly text: string
  readonly accepts: boolean
  readonly drops: boolean
  /** Matches nothing in particular. */
  readonly everything: boolean
}

/** One for each family; nftables has `ip` and `ip6` for what they keep there. */
export type FilterProgram = 'iptables' | 'ip6tables'

/** `iptables -S` (filter table), or the same of `ip6tables`. */
export function chainsOfIptables(listing: string, program: FilterProgram = 'iptables'): FirewallChain[] {
  const lines = listing.split('\n')
  const rulesOf = (chain: string): string[] => lines.filter((line) => line.startsWith(`-A ${chain} `))
  return (['FORWARD', 'INPUT', 'OUTPUT'] as const).flatMap((chain) => {
    const policy = new RegExp(`^-P ${chain} (\\w+)$`, 'm').exec(listing)?.[1]
    if (policy === undefined) return []
    const rules = rulesOf(chain).flatMap((line) => {
      const target = / -j (\S+)/.exec(line)?.[1] ?? ''
      const inside = rulesOf(target)
      return inside.length === 0 ? [iptablesRule(line, chain)] : inside.map((one) => iptablesRule(one, target))
    })
    const hook = ({ FORWARD: 'forward', INPUT: 'input', OUTPUT: 'output' } as const)[chain]
    return [{ name: `${program} ${chain}`, hook, policy: policy === 'DROP' ? 'drop' : 'accept', rules } as const]
  })
}

function iptablesRule(line: string, chain: string): FirewallRule {
  const text = line.replace(/ -m comment --comment ("[^"]*"|\S+)/, '')
  const [accepts, drops] = [/ -j ACCEPT\b/.test(text), / -j (DROP|REJECT)\b/.test(text)]
  return { text, accepts, drops, everything: text === `-A ${chain} -j ACCEPT` }
}

interface NftItem {
  readonly chain?: {
    readonly family: string
    readonly table: string
    readonly name: string
    readonly hook?: string
    readonly policy?: string
  }
  readonly rule?: {
    readonly family: string
    readonly table: string
    readonly chain: string
    readonly expr: readonly Record<string, unknown>[]
  }
}

/** Chains that `iptables` keeps in nftables: they are read with iptables itself. */
const OF_IPTABLES = /^(ip|ip6) (filter|nat|mangle|raw|security)$/

/**
 * `nft -j list ruleset`: the chains that packets of the program's family pass. `programRead`: whether the program was asked
 * for its own. @throws SyntaxError
 */
export function chainsOfNft(json: string, program: FilterProgram, programRead: boolean): FirewallChain[] {
  const family = program === 'iptables' ? 'ip' : 'ip6'
  const { nftables = [] } = JSON.parse(json) as { nftables?: readonly NftItem[] }
  const rules = nftables.flatMap(({ rule }) => (rule === undefined ? [] : [rule]))
  const chains: FirewallChain[] = []
  for (const { chain } of nftables) {
    const hook = HOOKS.find((one) => one === chain?.hook)
    if (chain === undefined || hook === undefined) continue
    if (chain.family !== family && chain.family !== 'inet') continue
    if (programRead && OF_IPTABLES.test(`${chain.family} ${chain.table}`)) continue
    const same = rules.filter((rule) => rule.family === chain.family && rule.table === chain.table)
    const own = same.filter((rule) => rule.chain === chain.name)
    const followed = own.flatMap((rule) => {
      const jump = rule.expr.find((part) => 'jump' in part || 'goto' in part) as Record<string, { target?: string }>
      const target = (jump?.jump ?? jump?.goto)?.target
      return target === undefined ? [rule] : same.filter((other) => other.chain === target)
    })
    chains.push({
      name: `nft ${chain.family} ${chain.table} ${chain.name}`,
      hook,
      policy: chain.policy === 'drop' ? 'drop' : 'accept',
      rules: followed.map(({ expr }) => ({
        text: JSON.stringify(expr),
        accepts: expr.some((part) => 'accept' in part),
        drops: expr.some((part) => 'drop' in part || 'reject' in part),
        everything: expr.every((part) => 'accept' in part || 'counter' in part),
      })),
    })
  }
  return chains
}

/** Whether the chain lets forwarded packets of the network pass: by its policy, or by a rule that names it. */
export function forwards(chain: FirewallChain, network: Prefix, devices: readonly string[]): boolean {
  if (chain.policy === 'accept') return true
  return chain.rules.some(
    ({ accepts, everything, text }) =>
      accepts && (everything || namesNetwork(text, network) || devices.some((device) => namesWord(text, device))),
  )
}

/** Whether the chain lets datagrams to this port in. */
export function admitsPort(chain: FirewallChain, port: number): boolean {
  if (chain.policy === 'accept') return true
  return chain.rules.some(({ accepts, everything, text }) => accepts && (everything || namesWord(text, String(port))))
}

/**
 * Whether a rule drops what comes or goes by this port, or from one of these addresses: the first rule that names the port
 * decides, and one that spares some sources is believed to spare the peers.
 */
export function dropsPort({ rules }: FirewallChain, port: number, peers: readonly string[]): boolean {
  const deciding = rules.find(
    ({ accepts, drops, text }) => (accepts || drops) && (namesWord(text, String(port)) || namesPeer(text, peers)),
  )
  if (deciding === undefined || !deciding.drops) return false
  return namesPeer(deciding.text, peers) || !NAMES_SOURCE.test(deciding.text)
}

const NAMES_SOURCE = / (-s|--source|--match-set) |"saddr"|"set"/
const NEGATES = / ! |"!="/
const OTHER_TRAFFIC = / -p (tcp|icmp|ipv6-icmp)|"(tcp|icmp|icmpv6|ipv6-icmp)"|[^c]state /

/** Names one of them, does not spare it, and does not speak of something else than datagrams. */
function namesPeer(text: string, peers: readonly string[]): boolean {
  return !NEGATES.test(text) && !OTHER_TRAFFIC.test(text) && peers.some((peer) => namesWord(text, peer))
}

function namesNetwork(text: string, network: Prefix): boolean {
  const inText = [...text.matchAll(/(\d+\.\d+\.\d+\.\d+|[\da-f]*:[\da-f:.]*)(?:\/(\d+)|","len":(\d+))?/gi)]
  return inText.some(([, address, slash, length]) => {
    const written = slash ?? length
    const prefix = parsePrefix(`${address}/${written ?? 32}`) ?? parseIpv6Prefix(`${address}/${written ?? 128}`)
    return prefix !== null && containsPrefix(prefix, network)
  })
}

function namesWord(text: string, word: string): boolean {
  // An IPv6 address goes on behind a colon; in front of a port there is one in JSON.
  const inside = word.includes(':') ? '[\\w.:]' : '[\\w.]'
  return new RegExp(`(?<!${inside})${word.replace(/[.+]/g, '\\$&')}(?!${inside})`).test(text)
}
