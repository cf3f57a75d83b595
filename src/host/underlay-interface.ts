// Which interface and addresses this node uses on the underlay: by name, address, pattern, or route. The choice is a pure
// function of what `ip` shows, so that the rules can be tested without a host.
import { setTimeout as pause } from 'node:timers/promises'
import { formatAddress, parseIpv4, parseIpv6, type UnderlayAddress } from '../../dataplane/index.ts'
import type { UnderlayWishes } from '../config/options.ts'
import type { UnderlayFamilies } from '../config/tunnel-backend.ts'
import { FlanneletteError } from '../errors.ts'
import type { InNamespace } from './command.ts'
import { type AddressInfo, type LinkInfo, type RouteInfo, showJson } from './ip.ts'
import { DEVICE_ALIAS } from './route-protocol.ts'

export interface UnderlayInterface {
  readonly name: string
  /** Interface index in this namespace. */
  readonly index: number
  /** Address that the socket binds to: the IPv4 one, a bigint of IPv6 where there are only tunnels over that. */
  readonly address: UnderlayAddress
  /** With tunnels of both families the IPv6 address beside it. */
  readonly ipv6Address?: bigint
  readonly mtuBytes: number
  /** One phrase that says why this one, for the log. */
  readonly how: string
  /** What was asked for before and would not do, a sentence each. */
  readonly passedOver: readonly string[]
}

type Family = AddressInfo['family']

/** What the kernel knows, and the choice is made from. */
export interface UnderlayFacts {
  readonly links: readonly LinkInfo[]
  /** Of IPv4. */
  readonly defaultRoutes: readonly RouteInfo[]
  readonly ipv6DefaultRoutes?: readonly RouteInfo[]
  /** The route to `ifaceCanReach`; `null` when there is none, or none was asked for. */
  readonly routeToReach: RouteInfo | null
}

/** A new IPv6 address must not be used until the kernel has asked around (RFC 4862 section 5.4): so long it is waited for. */
const TENTATIVE_LIMIT_MS = 3000
const LOOK_MS = 200

/**
 * Chooses the underlay interface: the first that will do of `--iface`, `--iface-regex`, `--iface-can-reach`; with none
 * of them by the public address, else by the default route. For both families one interface must have both.
 * @throws FlanneletteError `interface-unsuitable` listing the candidates, `host-command`
 */
export async function selectUnderlay(
  wishes: UnderlayWishes,
  where: InNamespace = {},
  families: UnderlayFamilies = 'ipv4',
): Promise<UnderlayInterface> {
  const deadline = performance.now() + TENTATIVE_LIMIT_MS
  for (;;) {
    const facts = await readFacts(wishes, families, where)
    try {
      return chooseUnderlay(facts, wishes, families)
    } catch (error) {
      const mayCome = families !== 'ipv4' && facts.links.some(hasTentative)
      if (!mayCome || performance.now() > deadline) throw error
      await pause(LOOK_MS)
    }
  }
}

async function readFacts({ ifaceCanReach }: UnderlayWishes, families: UnderlayFamilies, where: InNamespace) {
  const defaults = (family: '-4' | '-6') => showJson<RouteInfo>('ip', [family, 'route', 'show', 'default'], where)
  const [links, defaultRoutes, ipv6DefaultRoutes, routeToReach] = await Promise.all([
    showJson<LinkInfo>('ip', ['address', 'show'], where),
    families === 'ipv6' ? [] : defaults('-4'),
    families === 'ipv4' ? [] : defaults('-6'),
    readRouteTo(ifaceCanReach, where),
  ])
  return { links, defaultRoutes, ipv6DefaultRoutes, routeToReach }
}

function hasTentative({ addr_info = [] }: LinkInfo): boolean {
  return addr_info.some(({ family, tentative, dadfailed }) => family === 'inet6' && tentative === true && !dadfailed)
}

async function readRouteTo(address: UnderlayAddress | undefined, where: InNamespace) {
  if (address === undefined) return null
  const family = typeof address === 'number' ? '-4' : '-6'
  try {
    return (await showJson<RouteInfo>('ip', [family, 'route', 'get', formatAddress(address)], where))[0] ?? null
  } catch {
    return null // `ip` fails where there is no route
  }
}

type Candidate = Omit<UnderlayInterface, 'passedOver'>

/** The choice itself. @throws FlanneletteError `interface-unsuitable` */
export function chooseUnderlay(
  facts: UnderlayFacts,
  wishes: UnderlayWishes,
  families: UnderlayFamilies = 'ipv4',
): UnderlayInterface {
  return new Choice(facts, wishes, families).made()
}

/** Addresses of an interface that are settled already; those that are not are found on it. */
interface Settled {
  readonly inet?: number
  readonly inet6?: bigint
}

class Choice {
  readonly #facts: UnderlayFacts
  readonly #wishes: UnderlayWishes
  readonly #families: UnderlayFamilies

  constructor(facts: UnderlayFacts, wishes: UnderlayWishes, families: UnderlayFamilies) {
    this.#facts = facts
    this.#wishes = wishes
    this.#families = families
  }

  made(): UnderlayInterface {
    const { ifaces, ifaceRegexes, ifaceCanReach } = this.#wishes
    const ways: (() => Candidate)[] = [
      ...ifaces.map((iface) => () => this.#byWord(iface)),
      ...ifaceRegexes.map((pattern) => () => this.#byPattern(pattern)),
      ...(ifaceCanReach === undefined ? [] : [() => this.#byReach(ifaceCanReach)]),
    ]
    return this.#firstOf(ways.length > 0 ? ways : [() => this.#byPublicAddress() ?? this.#byDefaultRoute()])
  }

  #firstOf(ways: readonly (() => Candidate)[]): UnderlayInterface {
    const passedOver: string[] = []
    for (const way of ways) {
      try {
        return { ...way(), passedOver }
      } catch (error) {
        if (!(error instanceof FlanneletteError)) throw error
        passedOver.push(error.message)
      }
    }
    throw this.#unsuitable(passedOver.join('; '))
  }

  /** Of which families an address is needed. */
  get #needed(): readonly Family[] {
    if (this.#families === 'dual') return ['inet', 'inet6']
    return this.#families === 'ipv4' ? ['inet'] : ['inet6']
  }

  /** `null` when none was given that the tunnels have a use for. */
  #byPublicAddress(): Candidate | null {
    const { publicIp, publicIpv6 } = this.#wishes
    const needs = (family: Family) => this.#needed.includes(family)
    if (publicIp !== undefined && needs('inet'))
      return this.#byAddress(publicIp, `--public-ip ${formatAddress(publicIp)}`)
    if (publicIpv6 === undefined || !needs('inet6')) return null
    return this.#byAddress(publicIpv6, `--public-ipv6 ${formatAddress(publicIpv6)}`)
  }

  #byDefaultRoute(): Candidate {
    const { defaultRoutes, ipv6DefaultRoutes = [] } = this.#facts
    const devices = this.#needed.map((family) => {
      const device = lowestMetric(family === 'inet' ? defaultRoutes : ipv6DefaultRoutes)?.dev
      if (device !== undefined) return device
      throw this.#unsuitable(`there is no ${nameOf(family)} default route to choose an interface by`)
    })
    const [device, other = device] = devices
    if (device === other) return this.#byName(device!, 'default route')
    throw this.#unsuitable(`the default routes lead by two interfaces, IPv4 by ${device} and IPv6 by ${other}`)
  }

  #byWord(word: string): Candidate {
    const address = parseIpv4(word) ?? parseIpv6(word)
    const how = `--iface ${word}`
    return address === null ? this.#byName(word, how) : this.#byAddress(address, how)
  }

  /** All addresses are tried before any name, in the kernel's order. */
  #byPattern(pattern: RegExp): Candidate {
    const how = `--iface-regex ${pattern.source}`
    const own = this.#facts.links.filter((link) => !isOverlayDevice(link))
    for (const link of own) {
      const matching = { ...link, addr_info: (link.addr_info ?? []).filter(({ local }) => pattern.test(local)) }
      if (this.#needed.every((family) => bestAddress(matching, family) !== null))
        return this.#describe(matching, how, {})
    }
    const named = own.find(({ ifname }) => pattern.test(ifname))
    if (named === undefined) throw this.#unsuitable(`no interface has an address or name that matches (${how})`)
    return this.#byName(named.ifname, how)
  }

  #byReach(target: UnderlayAddress): Candidate {
    const how = `--iface-can-reach ${formatAddress(target)}`
    const route = this.#facts.routeToReach
    const source = parseIpv4(route?.prefsrc ?? '') ?? parseIpv6(route?.prefsrc ?? '')
    if (route?.dev === undefined || source === null) throw this.#unsuitable(`there is no route (${how})`)
    const link = this.#facts.links.find(({ ifname }) => ifname === route.dev)
    if (link === undefined) throw this.#unsuitable(`there is no interface ${route.dev} (${how})`)
    return this.#describe(link, how, settledBy(source))
  }

  #byName(name: string, how: string): Candidate {
    const link = this.#facts.links.find((candidate) => candidate.ifname === name)
    if (link === undefined) throw this.#unsuitable(`there is no interface ${name} (${how})`)
    return this.#describe(link, how, {})
  }

  #byAddress(address: UnderlayAddress, how: string): Candidate {
    const link = this.#facts.links.find((candidate) => carries(candidate, address))
    if (link === undefined) throw this.#unsuitable(`no interface has the address ${formatAddress(address)} (${how})`)
    return this.#describe(link, how, settledBy(address))
  }

  /** Settled addresses are taken as they are; a public one that the interface has is taken before another of it. */
  #describe(link: LinkInfo, how: string, settled: Settled): Candidate {
    if (isOverlayDevice(link)) throw this.#unsuitable(`${link.ifname} is our own overlay device (${how})`)
    if (!(link.mtu > 0)) throw this.#unsuitable(`interface ${link.ifname} has no MTU (${how})`)
    const { publicIpv6 } = this.#wishes
    const addresses = this.#needed.map((family): UnderlayAddress => {
      const ownPublic = family === 'inet6' && publicIpv6 !== undefined && carries(link, publicIpv6) ? publicIpv6 : null
      const address = settled[family] ?? ownPublic ?? bestAddress(link, family)
      if (address !== null) return address
      throw this.#unsuitable(`interface ${link.ifname} has no usable ${nameOf(family)} address (${how})`)
    })
    const [address, beside] = addresses
    const place = { name: link.ifname, index: link.ifindex, address: address!, mtuBytes: link.mtu, how }
    return typeof beside === 'bigint' ? { ...place, ipv6Address: beside } : place
  }

  #unsuitable(message: string): FlanneletteError {
    const candidates = this.#facts.links.flatMap((link) => {
      const addresses = this.#needed.map((family) => bestAddress(link, family))
      if (isOverlayDevice(link) || addresses.includes(null)) return []
      return [`${link.ifname} (${addresses.map((address) => formatAddress(address!)).join(', ')})`]
    })
    const kinds = this.#needed.map(nameOf).join(' and an ')
    const remedy =
      candidates.length === 0
        ? `give an interface an ${kinds} address first`
        : `choose one with --iface: ${candidates.join(', ')}`
    return new FlanneletteError('interface-unsuitable', message, { remedy })
  }
}

function nameOf(family: Family): string {
  return family === 'inet' ? 'IPv4' : 'IPv6'
}

function settledBy(address: UnderlayAddress): Settled {
  return typeof address === 'number' ? { inet: address } : { inet6: address }
}

/** Whether the interface has the address, and may use it. */
export function carries({ addr_info = [] }: LinkInfo, address: UnderlayAddress): boolean {
  const text = formatAddress(address)
  return addr_info.some((info) => info.local === text && isUsable(info))
}

/** What we made to carry pods cannot carry what comes out of itself. */
function isOverlayDevice(link: LinkInfo): boolean {
  return link.ifalias === DEVICE_ALIAS
}

function isUsable({ tentative, dadfailed }: AddressInfo): boolean {
  return tentative !== true && dadfailed !== true
}

/**
 * The address flannel would take: global before link scope, then permanent before leased, then lasting before
 * temporary; deprecated ones and other scopes (loopback) never. Kernel order decides between equals. Of IPv6 no
 * link-local one: a peer could not send to it.
 */
export function bestAddress(link: LinkInfo): number | null
export function bestAddress(link: LinkInfo, family: Family): UnderlayAddress | null
export function bestAddress(link: LinkInfo, family: Family = 'inet'): UnderlayAddress | null {
  let best: { rank: number; info: AddressInfo } | null = null
  for (const info of link.addr_info ?? []) {
    if (info.family !== family || info.deprecated === true || !isUsable(info)) continue
    if (info.scope !== 'global' && (info.scope !== 'link' || family === 'inet6')) continue
    const rank = (info.scope === 'link' ? 4 : 0) + (info.dynamic === true ? 2 : 0) + (info.temporary === true ? 1 : 0)
    if (best === null || rank < best.rank) best = { rank, info }
  }
  if (best === null) return null
  return family === 'inet' ? parseIpv4(best.info.local) : parseIpv6(best.info.local)
}

function lowestMetric(routes: readonly RouteInfo[]): RouteInfo | undefined {
  let best: RouteInfo | undefined
  for (const route of routes) {
    if (route.dev === undefined) continue
    if (best === undefined || (route.metric ?? 0) < (best.metric ?? 0)) best = route
  }
  return best
}
