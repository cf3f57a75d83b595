// Faults on the underlay, as data, and the nftables rules that make them happen. Loss and cuts sit where the switch
// forwards, duplication where a frame enters it; with a direct link they sit where the hosts receive. Pure.
import { FlanneletteError } from '../errors.ts'
import { replaceTable } from '../host/nft.ts'
import type { HostPlan } from './plan.ts'
import { UNDERLAY_INTERFACE } from './underlay.ts'

export type Fault =
  /** Each IP packet is lost with this probability. */
  | { readonly kind: 'loss'; readonly percent: number }
  /** Each IP packet arrives twice with this probability. */
  | { readonly kind: 'duplicate'; readonly percent: number }
  /** One host, or the path between two, passes nothing: no carrier is lost, packets just vanish. */
  | { readonly kind: 'cut'; readonly hosts: readonly string[] }
  /** The host's daemon was killed. */
  | { readonly kind: 'crash'; readonly host: string }

const KINDS: readonly string[] = ['loss', 'duplicate', 'cut', 'crash'] satisfies Fault['kind'][]

/** nft draws a whole number below a bound: shares are multiples of 0.001 %. */
const PARTS_PER_PERCENT = 1000

export interface FaultPlace {
  /** `null` with a direct link. */
  readonly switchNamespace: string | null
  readonly hosts: readonly Pick<HostPlan, 'name' | 'namespace' | 'underlayAddress' | 'underlayIpv6'>[]
}

/** Namespace → ruleset that puts exactly these faults in force and removes former ones. */
export function faultRulesets(place: FaultPlace, faults: readonly Fault[]): Map<string, string> {
  if (place.switchNamespace !== null) return new Map([[place.switchNamespace, switchRuleset(place, faults)]])
  return new Map(place.hosts.map(({ namespace }) => [namespace, directRuleset(place, faults)]))
}

function switchRuleset({ hosts }: FaultPlace, faults: readonly Fault[]): string {
  const drops: string[] = []
  const copies: string[] = []
  for (const fault of faults) {
    if (fault.kind === 'cut') drops.push(...cutRules(fault.hosts))
    if (fault.kind === 'loss') drops.push(...lossRules(hosts, fault.percent))
    if (fault.kind === 'duplicate') {
      // A copy leaves by the port of the host that it is addressed to.
      for (const { name, ...host } of hosts) {
        for (const match of addressMatches(host)) {
          copies.push(`${match} ${chance(fault.percent)} counter dup to "${name}"`)
        }
      }
    }
  }
  const ports = hosts.map(({ name }) => `"${name}"`).join(', ')
  const forward = chain('forwarding', 'type filter hook forward priority 0', drops)
  const ingress = chain('entering', `type filter hook ingress devices = { ${ports} } priority 0`, copies)
  return replaceTable('bridge', 'faults', forward) + replaceTable('netdev', 'faults', ingress)
}

function lossRules(hosts: FaultPlace['hosts'], percent: number): string[] {
  const protocols = hosts.some(({ underlayIpv6 }) => underlayIpv6 !== null) ? ['ip', 'ip6'] : ['ip']
  return protocols.map((protocol) => `meta protocol ${protocol} ${chance(percent)} counter drop`)
}

function addressMatches({ underlayAddress, underlayIpv6 }: Pick<HostPlan, 'underlayAddress' | 'underlayIpv6'>) {
  const ipv4 = underlayAddress === underlayIpv6 ? [] : [`ip daddr ${underlayAddress}`]
  return underlayIpv6 === null ? ipv4 : [...ipv4, `ip6 daddr ${underlayIpv6}`]
}

function cutRules([first, second]: readonly string[]): string[] {
  if (second === undefined) return [`iifname "${first}" drop`, `oifname "${first}" drop`]
  return [`iifname "${first}" oifname "${second}" drop`, `iifname "${second}" oifname "${first}" drop`]
}

/** On a direct link there is one path only: cutting either host cuts it. @throws FlanneletteError `usage` */
function directRuleset({ hosts }: FaultPlace, faults: readonly Fault[]): string {
  const drops: string[] = []
  for (const fault of faults) {
    if (fault.kind === 'cut') drops.push('drop')
    if (fault.kind === 'loss') drops.push(...lossRules(hosts, fault.percent))
    if (fault.kind === 'duplicate') {
      throw new FlanneletteError('usage', 'a direct link cannot duplicate packets', {
        remedy: 'bring the lab up without --direct',
      })
    }
  }
  const hook = `type filter hook ingress device "${UNDERLAY_INTERFACE}" priority 0`
  return replaceTable('netdev', 'faults', chain('entering', hook, drops))
}

function chain(name: string, hook: string, rules: readonly string[]): string {
  if (rules.length === 0) return ''
  return [` chain ${name} {`, `  ${hook};`, ...rules.map((rule) => `  ${rule}`), ' }'].join('\n')
}

/** Compared by `<=`: nft refuses a bound that the generator cannot reach, as 100 % would have with `<`. */
function chance(percent: number): string {
  const parts = Math.max(1, Math.round(percent * PARTS_PER_PERCENT))
  return `numgen random mod ${100 * PARTS_PER_PERCENT} <= ${parts - 1}`
}

/** `0.5` or `0.5%` of a command line. @throws FlanneletteError `usage` */
export function parsePercent(text: string): number {
  const percent = Number(/^(\d+(?:\.\d+)?)%?$/.exec(text)?.[1])
  if (percent > 0 && percent * PARTS_PER_PERCENT < 1) {
    throw new FlanneletteError('usage', `${text} is a smaller share than nft can draw`, {
      remedy: `use ${1 / PARTS_PER_PERCENT} % or more`,
    })
  }
  if (percent > 0 && percent <= 100) return percent
  throw new FlanneletteError('usage', `"${text}" is no share of packets`, {
    remedy: 'use a percentage such as 1 or 0.5',
  })
}

/** Adds a fault; loss and duplication have one strength each, so a second one replaces the first. */
export function addFault(faults: readonly Fault[], fault: Fault): Fault[] {
  const single = fault.kind === 'loss' || fault.kind === 'duplicate'
  const others = faults.filter((known) =>
    single ? known.kind !== fault.kind : JSON.stringify(known) !== JSON.stringify(fault),
  )
  return [...others, fault]
}

/** @throws FlanneletteError `usage` for a path from a host to itself */
export function checkFault(fault: Fault): void {
  if (fault.kind !== 'cut' || new Set(fault.hosts).size === fault.hosts.length) return
  const host = fault.hosts.join(' and ')
  throw new FlanneletteError('usage', `there is no path between ${host} to cut`, {
    remedy: 'name two different hosts, or one alone to cut it off',
  })
}

/** @throws FlanneletteError `usage` unless `what` is a kind of fault or one of the hosts */
export function checkHealing(what: string, hosts: readonly { readonly name: string }[]): void {
  const known = [...KINDS, ...hosts.map((host) => host.name)]
  if (known.includes(what)) return
  throw new FlanneletteError('usage', `"${what}" is nothing to heal`, {
    remedy: `name one of ${known.join(', ')}, or nothing to heal everything`,
  })
}

/** What is left after healing `what`: a kind, a host's name, or everything when absent. */
export function withoutFaults(faults: readonly Fault[], what?: string): Fault[] {
  if (what === undefined) return []
  return faults.filter((fault) => fault.kind !== what && !hostsOf(fault).includes(what))
}

/** Whether a daemon of that host that does not run is to be started by healing `what`. */
export function healsDaemonOf(host: string, what?: string): boolean {
  return what === undefined || what === 'crash' || what === host
}

/** Hosts that a fault names; none for one of the whole underlay. */
export function hostsOf(fault: Fault): readonly string[] {
  if (fault.kind === 'cut') return fault.hosts
  return fault.kind === 'crash' ? [fault.host] : []
}

/** `1 % loss`, `host1 cut off`, … */
export function describeFault(fault: Fault): string {
  if (fault.kind === 'loss') return `${fault.percent} % loss`
  if (fault.kind === 'duplicate') return `${fault.percent} % duplication`
  if (fault.kind === 'crash') return `${fault.host}: daemon killed`
  const [first, second] = fault.hosts
  return second === undefined ? `${first} cut off` : `no path between ${first} and ${second}`
}
