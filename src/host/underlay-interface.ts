// Which interface and address this node uses on the underlay: by name, address, pattern, or route. The choice is a pure
// function of what `ip` shows, so that the rules can be tested without a host.
import { formatIpv4, parseIpv4 } from '../../dataplane/index.ts'
import type { UnderlayWishes } from '../config/options.ts'
import { FlanneletteError } from '../errors.ts'
import type { CommandOptions } from './command.ts'
import { type AddressInfo, type LinkInfo, type RouteInfo, showJson } from './ip.ts'
import { DEVICE_ALIAS } from './route-protocol.ts'

export interface UnderlayInterface {
  readonly name: string
  /** Interface index in this namespace. */
  readonly index: number
  /** Unsigned 32-bit IPv4 address of the interface; the socket binds to it. */
  readonly address: number
  readonly mtuBytes: number
  /** One phrase that says why this one, for the log. */
  readonly how: string
  /** What was asked for before and would not do, a sentence each. */
  readonly passedOver: readonly string[]
}

/** What the kernel knows, and the choice is made from. */
export interface UnderlayFacts {
  readonly links: readonly LinkInfo[]
  readonly defaultRoutes: readonly RouteInfo[]
  /** The route to `ifaceCanReach`; `null` when there is none, or none was asked for. */
  readonly routeToReach: RouteInfo | null
}

/**
 * Chooses the underlay interface: the first that will do of `--iface`, `--iface-regex`, `--iface-can-reach`; with none
 * of them by the public address, else by the default route.
 * @throws FlanneletteError `interface-unsuitable` listing the candidates, `host-command`
 */
export async function selectUnderlay(
  wishes: UnderlayWishes,
  where: Pick<CommandOptions, 'namespace'> = {},
): Promise<UnderlayInterface> {
  const [links, defaultRoutes, routeToReach] = await Promise.all([
    showJson<LinkInfo>('ip', ['address', 'show'], where),
    showJson<RouteInfo>('ip', ['-4', 'route', 'show', 'default'], where),
    readRouteTo(wishes.ifaceCanReach, where),
  ])
  return chooseUnderlay({ links, defaultRoutes, routeToReach }, wishes)
}

async function readRouteTo(address: number | undefined, where: Pick<CommandOptions, 'namespace'>) {
  if (address === undefined) return null
  try {
    return (await showJson<RouteInfo>('ip', ['-4', 'route', 'get', formatIpv4(address)], where))[0] ?? null
  } catch {
    return null // `ip` fails where there is no route
  }
}

type Candidate = Omit<UnderlayInterface, 'passedOver'>

/** The choice itself. @throws FlanneletteError `interface-unsuitable` */
export function chooseUnderlay(facts: UnderlayFacts, wishes: UnderlayWishes): UnderlayInterface {
  const { links, defaultRoutes, routeToReach } = facts
  const { ifaces, ifaceRegexes, ifaceCanReach, publicIp } = wishes
  const ways: (() => Candidate)[] = [
    ...ifaces.map((iface) => () => byWord(links, iface)),
    ...ifaceRegexes.map((pattern) => () => byPattern(links, pattern)),
    ...(ifaceCanReach === undefined ? [] : [() => byReach(links, routeToReach, ifaceCanReach)]),
  ]
  if (ways.length > 0) return firstOf(ways, links)
  if (publicIp !== undefined)
    return firstOf([() => byAddress(links, publicIp, `--public-ip ${formatIpv4(publicIp)}`)], links)
  return firstOf([() => byDefaultRoute(links, defaultRoutes)], links)
}

function firstOf(ways: readonly (() => Candidate)[], links: readonly LinkInfo[]): UnderlayInterface {
  const passedOver: string[] = []
  for (const way of ways) {
    try {
      return { ...way(), passedOver }
    } catch (error) {
      if (!(error instanceof FlanneletteError)) throw error
      passedOver.push(error.message)
    }
  }
  throw unsuitable(passedOver.join('; '), links)
}

function byDefaultRoute(links: readonly LinkInfo[], routes: readonly RouteInfo[]): Candidate {
  const device = lowestMetric(routes)?.dev
  if (device === undefined) throw unsuitable('there is no IPv4 default route to choose an interface by', links)
  return byName(links, device, 'default route')
}

function byWord(links: readonly LinkInfo[], word: string): Candidate {
  const address = parseIpv4(word)
  return address === null ? byName(links, word, `--iface ${word}`) : byAddress(links, address, `--iface ${word}`)
}

/** All addresses are tried before any name, in the kernel's order. */
function byPattern(links: readonly LinkInfo[], pattern: RegExp): Candidate {
  const how = `--iface-regex ${pattern.source}`
  const own = links.filter((link) => !isOverlayDevice(link))
  for (const link of own) {
    const matching = (link.addr_info ?? []).filter(({ local }) => pattern.test(local))
    const address = bestAddress({ ...link, addr_info: matching })
    if (address !== null) return describeChoice(link, address, how, links)
  }
  const named = own.find(({ ifname }) => pattern.test(ifname))
  if (named === undefined) throw unsuitable(`no interface has an address or name that matches (${how})`, links)
  return byName(links, named.ifname, how)
}

function byReach(links: readonly LinkInfo[], route: RouteInfo | null, target: number): Candidate {
  const how = `--iface-can-reach ${formatIpv4(target)}`
  const source = parseIpv4(route?.prefsrc ?? '')
  if (route?.dev === undefined || source === null) throw unsuitable(`there is no route (${how})`, links)
  const link = links.find(({ ifname }) => ifname === route.dev)
  if (link === undefined) throw unsuitable(`there is no interface ${route.dev} (${how})`, links)
  return describeChoice(link, source, how, links)
}

function byName(links: readonly LinkInfo[], name: string, how: string): Candidate {
  const link = links.find((candidate) => candidate.ifname === name)
  if (link === undefined) throw unsuitable(`there is no interface ${name} (${how})`, links)
  const address = bestAddress(link)
  if (address === null) throw unsuitable(`interface ${name} has no usable IPv4 address (${how})`, links)
  return describeChoice(link, address, how, links)
}

function byAddress(links: readonly LinkInfo[], address: number, how: string): Candidate {
  const text = formatIpv4(address)
  const link = links.find((candidate) =>
    (candidate.addr_info ?? []).some((info) => info.family === 'inet' && info.local === text),
  )
  if (link === undefined) throw unsuitable(`no interface has the address ${text} (${how})`, links)
  return describeChoice(link, address, how, links)
}

function describeChoice(link: LinkInfo, address: number, how: string, links: readonly LinkInfo[]): Candidate {
  if (isOverlayDevice(link)) throw unsuitable(`${link.ifname} is our own overlay device (${how})`, links)
  if (!(link.mtu > 0)) throw unsuitable(`interface ${link.ifname} has no MTU (${how})`, links)
  return { name: link.ifname, index: link.ifindex, address, mtuBytes: link.mtu, how }
}

/** What we made to carry pods cannot carry what comes out of itself. */
function isOverlayDevice(link: LinkInfo): boolean {
  return link.ifalias === DEVICE_ALIAS
}

/**
 * The address flannel would take: global before link scope, then permanent before leased, then lasting before
 * temporary; deprecated ones and other scopes (loopback) never. Kernel order decides between equals.
 */
export function bestAddress(link: LinkInfo): number | null {
  let best: { rank: number; info: AddressInfo } | null = null
  for (const info of link.addr_info ?? []) {
    if (info.family !== 'inet' || info.deprecated === true) continue
    if (info.scope !== 'global' && info.scope !== 'link') continue
    const rank = (info.scope === 'link' ? 4 : 0) + (info.dynamic === true ? 2 : 0) + (info.temporary === true ? 1 : 0)
    if (best === null || rank < best.rank) best = { rank, info }
  }
  return best === null ? null : parseIpv4(best.info.local)
}

function lowestMetric(routes: readonly RouteInfo[]): RouteInfo | undefined {
  let best: RouteInfo | undefined
  for (const route of routes) {
    if (route.dev === undefined) continue
    if (best === undefined || (route.metric ?? 0) < (best.metric ?? 0)) best = route
  }
  return best
}

function unsuitable(message: string, links: readonly LinkInfo[]): FlanneletteError {
  const candidates = links.flatMap((link) => {
    const address = isOverlayDevice(link) ? null : bestAddress(link)
    return address === null ? [] : [`${link.ifname} (${formatIpv4(address)})`]
  })
  const remedy =
    candidates.length === 0
      ? 'give an interface an IPv4 address first'
      : `choose one with --iface: ${candidates.join(', ')}`
  return new FlanneletteError('interface-unsuitable', message, { remedy })
}
