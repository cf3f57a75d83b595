// Which interface and address this node uses on the underlay: by name, by address, or by the default route. The choice
// is a pure function of what `ip` shows, so that the rules can be tested without a host.
import { formatIpv4, parseIpv4 } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { CommandOptions } from './command.ts'
import { type AddressInfo, type LinkInfo, type RouteInfo, showJson } from './ip.ts'
import { DEVICE_ALIAS } from './route-protocol.ts'

export interface UnderlayOptions {
  /** Interface name, or an IPv4 address that one of the interfaces carries. */
  readonly iface?: string
  /** Unsigned 32-bit; finds the interface when `iface` is absent, and must then be one of its addresses. */
  readonly publicIp?: number
}

export interface UnderlayInterface {
  readonly name: string
  /** Interface index in this namespace. */
  readonly index: number
  /** Unsigned 32-bit IPv4 address of the interface; the socket binds to it. */
  readonly address: number
  readonly mtuBytes: number
  /** One phrase that says why this one, for the log. */
  readonly how: string
}

/**
 * Chooses the underlay interface. `--iface` wins, then the public address, then the default route.
 * @throws FlanneletteError `interface-unsuitable` listing the candidates, `host-command`
 */
export async function selectUnderlay(
  options: UnderlayOptions,
  where: Pick<CommandOptions, 'namespace'> = {},
): Promise<UnderlayInterface> {
  const [links, defaultRoutes] = await Promise.all([
    showJson<LinkInfo>('ip', ['address', 'show'], where),
    showJson<RouteInfo>('ip', ['-4', 'route', 'show', 'default'], where),
  ])
  return chooseUnderlay(links, defaultRoutes, options)
}

/** The choice itself. @throws FlanneletteError `interface-unsuitable` */
export function chooseUnderlay(
  links: readonly LinkInfo[],
  defaultRoutes: readonly RouteInfo[],
  options: UnderlayOptions,
): UnderlayInterface {
  const { iface, publicIp } = options
  if (iface !== undefined) {
    const address = parseIpv4(iface)
    return address === null ? byName(links, iface, `--iface ${iface}`) : byAddress(links, address, `--iface ${iface}`)
  }
  if (publicIp !== undefined) return byAddress(links, publicIp, `--public-ip ${formatIpv4(publicIp)}`)
  const device = lowestMetric(defaultRoutes)?.dev
  if (device === undefined) throw unsuitable('there is no IPv4 default route to choose an interface by', links)
  return byName(links, device, 'default route')
}

function byName(links: readonly LinkInfo[], name: string, how: string): UnderlayInterface {
  const link = links.find((candidate) => candidate.ifname === name)
  if (link === undefined) throw unsuitable(`there is no interface ${name} (${how})`, links)
  const address = bestAddress(link)
  if (address === null) throw unsuitable(`interface ${name} has no usable IPv4 address (${how})`, links)
  return describeChoice(link, address, how, links)
}

function byAddress(links: readonly LinkInfo[], address: number, how: string): UnderlayInterface {
  const text = formatIpv4(address)
  const link = links.find((candidate) =>
    (candidate.addr_info ?? []).some((info) => info.family === 'inet' && info.local === text),
  )
  if (link === undefined) throw unsuitable(`no interface has the address ${text} (${how})`, links)
  return describeChoice(link, address, how, links)
}

function describeChoice(link: LinkInfo, address: number, how: string, links: readonly LinkInfo[]): UnderlayInterface {
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
