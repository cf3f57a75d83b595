// The overlay device of the userspace dataplane as the kernel sees it: addresses, MTU and one route for each family
// that leads the whole network into it. The TUN itself is made by dataplane/io; here it is found, judged, dressed and
// removed.
import {
  containsAddress,
  formatAddress,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  type Prefix,
  parseIpv4,
  parseIpv6,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { InNamespace } from './command.ts'
import { type AddressInfo, batch, type LinkInfo, type RouteInfo, readLink, showJson } from './ip.ts'
import { deleteRoute, describeRoute, findForeign, foreignInTheWay, isInUsualPlace, verbFor } from './route-place.ts'
import { DEVICE_ALIAS, isOurPeerRoute, ROUTE_PROTOCOL } from './route-protocol.ts'
import { kernelHasIpv6, writeSetting } from './sysctl.ts'

/** Packets that may wait in the device for the engine: a stall of some 10 ms must not cost a flood its packets. */
const TX_QUEUE_PACKETS = 4000

export interface OverlayLink {
  /** `flannel.<VNI>` */
  readonly name: string
  /** Unsigned 32-bit; set as /32, so that no broadcast or subnet route appears beside the pods' bridge. */
  readonly overlayAddress: number | null
  readonly mtuBytes: number
  /** The whole pod network: one route, less specific than the bridge's own subnet. `null`, as the address, without IPv4. */
  readonly network: Ipv4Prefix | null
  /** The same for IPv6: address as /128, and network; `null` when the device carries IPv4 only. */
  readonly ipv6: { readonly address: bigint; readonly network: Ipv6Prefix } | null
}

/** What stands under the name of the overlay device. */
export type OverlayDevice =
  | { readonly kind: 'absent' }
  | { readonly kind: 'ours'; readonly link: LinkInfo }
  | {
      readonly kind: 'foreign'
      /** `a vxlan device`, `a tun device without our alias`, … */
      readonly what: string
      /** Command that takes it away. */
      readonly removeCommand: string
    }

/** Looks at the device of that name. @throws FlanneletteError `host-command` */
export async function inspectOverlayDevice(name: string, where: InNamespace = {}): Promise<OverlayDevice> {
  return judgeOverlayDevice(name, await readLink(name, where))
}

/** Whether a process holds the TUN: without one it is up but has no carrier. */
export function isAttached(link: LinkInfo): boolean {
  return link.flags.includes('LOWER_UP')
}

/** Ours is a TUN (not a TAP) that carries our alias; everything else belongs to somebody. */
export function judgeOverlayDevice(name: string, link: LinkInfo | null): OverlayDevice {
  if (link === null) return { kind: 'absent' }
  const kind = link.linkinfo?.info_kind
  const mode = link.linkinfo?.info_data?.type
  if (kind === 'tun' && mode === 'tun' && link.ifalias === DEVICE_ALIAS) return { kind: 'ours', link }
  const type = kind === 'tun' ? String(mode ?? 'tun') : (kind ?? 'physical')
  const alias = kind === 'tun' && mode === 'tun' ? ` without the alias "${DEVICE_ALIAS}"` : ''
  return { kind: 'foreign', what: `a ${type} device${alias}`, removeCommand: `ip link delete dev ${name}` }
}

/**
 * Gives the device alias, MTU, queue, and for each family an address of its own and the network route, and takes away
 * older addresses and routes of ours; does nothing that is done already, so a persistent device keeps serving pods
 * meanwhile. The routes are in place before this returns: strict reverse-path filters on the host then accept what
 * comes out of the tunnel. A route of somebody else's in the place of ours stays, and all but ours is done.
 * @throws FlanneletteError `network-overlap`, `host-command`, `not-permitted`
 */
export async function configureOverlayLink(overlay: OverlayLink, where: InNamespace = {}): Promise<void> {
  if (overlay.ipv6 !== null) await allowIpv6(overlay.name, where)
  const hasIpv6 = kernelHasIpv6()
  const [link, routes, ipv6Routes] = await Promise.all([
    readLink(overlay.name, where),
    showJson<RouteInfo>('ip', ['-4', 'route', 'show'], where),
    hasIpv6 ? showJson<RouteInfo>('ip', ['-6', 'route', 'show'], where) : [],
  ])
  const all = [...routes, ...ipv6Routes]
  await batch('ip', planOverlayLink(overlay, link, all, hasIpv6), where)
  await quietRouterAdvertisements(overlay.name, where)
  await acceptOwnAnswers(overlay.name, where)
  refuseForeign(overlay, all)
}

/** @throws FlanneletteError `network-overlap` */
function refuseForeign({ name, network, ipv6 }: OverlayLink, routes: readonly RouteInfo[]): void {
  for (const prefix of [network, ipv6?.network ?? null]) {
    const foreign = prefix === null ? null : findForeign(routes, formatPrefix(prefix), name)
    if (foreign === null) continue
    throw new FlanneletteError('network-overlap', foreignInTheWay(describeRoute(foreign)), {
      remedy: `does anything need it? else: ip route delete ${foreign.dst}, and ours takes its place`,
    })
  }
}

/** Commands that bring `link` and `routes` (the main tables of both families) to what `overlay` asks for. */
export function planOverlayLink(
  overlay: OverlayLink,
  link: LinkInfo | null,
  routes: readonly RouteInfo[],
  hasIpv6 = true,
): string[] {
  const { name, ipv6 } = overlay
  const plan: string[] = []
  if (link?.ifalias !== DEVICE_ALIAS) plan.push(`link set dev ${name} alias ${DEVICE_ALIAS}`)
  if (link?.mtu !== overlay.mtuBytes || link.txqlen !== TX_QUEUE_PACKETS) {
    plan.push(`link set dev ${name} mtu ${overlay.mtuBytes} txqueuelen ${TX_QUEUE_PACKETS}`)
  }
  if (link?.flags.includes('UP') !== true) {
    // No link-local address, hence no router solicitation or multicast report from the kernel into the tunnel.
    if (hasIpv6) plan.push(`link set dev ${name} addrgenmode none`)
    plan.push(`link set dev ${name} up`)
  }
  const half = { name, link, routes }
  plan.push(...planFamily({ ...half, family: 'inet', address: overlay.overlayAddress, network: overlay.network }))
  plan.push(...planFamily({ ...half, family: 'inet6', address: ipv6?.address ?? null, network: ipv6?.network ?? null }))
  return plan
}

interface FamilyPlan {
  readonly name: string
  readonly link: LinkInfo | null
  readonly routes: readonly RouteInfo[]
  readonly family: AddressInfo['family']
  /** Both `null` when the device is not to carry the family. */
  readonly address: number | bigint | null
  readonly network: Prefix | null
}

/** Address and route of one family. */
function planFamily({ name, link, routes, family, address, network }: FamilyPlan): string[] {
  const wanted = address === null ? null : `${formatAddress(address)}/${hostLength(family)}`
  const destination = network === null ? null : formatPrefix(network)
  const ownRoutes = routes.filter((route) => isOurPeerRoute(route) && route.dev === name && familyOf(route) === family)
  const inside = network === null ? [] : addressesIn(link, network)
  const present = [...new Set([...inside, ...formerAddresses(link, ownRoutes)])]
  const plan: string[] = []
  if (wanted !== null && !present.includes(wanted)) plan.push(addAddress(wanted, name))
  if (address !== null && destination !== null) {
    // Replaced, never trusted: the kernel takes an IPv4 route away with its deleted source address, silently.
    const isThere = routes.some((route) => route.dst === destination && isInUsualPlace(route))
    const scope = family === 'inet' ? ' scope link' : ''
    const words = `${destination} dev ${name} proto ${ROUTE_PROTOCOL}${scope} src ${formatAddress(address)}`
    if (findForeign(routes, destination, name) === null) plan.push(`route ${verbFor(isThere)} ${words}`)
  }
  for (const route of ownRoutes) if (route.dst !== destination) plan.push(deleteRoute(route))
  // Last: with an address the kernel also takes the routes that name it as source.
  for (const old of present) if (old !== wanted) plan.push(`address delete ${old} dev ${name}`)
  return plan
}

/** Length of a prefix that is one address. */
function hostLength(family: AddressInfo['family']): number {
  return family === 'inet' ? 32 : 128
}

/** Command for an address with its length. Nobody else has it, so IPv6 need not ask around before it may be used. */
export function addAddress(address: string, device: string): string {
  return `address add ${address} dev ${device}${address.includes(':') ? ' nodad' : ''}`
}

function familyOf(route: RouteInfo): AddressInfo['family'] {
  return route.dst.includes(':') ? 'inet6' : 'inet'
}

/**
 * Addresses that our routes into the device name as their source: of a former network, when the config has changed
 * since.
 */
function formerAddresses(link: LinkInfo | null, ownRoutes: readonly RouteInfo[]): string[] {
  const sources = ownRoutes.map((route) => route.prefsrc)
  const carried = (link?.addr_info ?? []).filter((info) => sources.includes(info.local))
  return carried.map((info) => `${info.local}/${info.prefixlen}`)
}

/** Addresses (`10.244.1.0/32`) of a link that lie inside the network; others on the device are not ours to touch. */
export function addressesIn(link: LinkInfo | null, network: Prefix): string[] {
  const inside: string[] = []
  for (const info of link?.addr_info ?? []) {
    const address = info.family === 'inet' ? parseIpv4(info.local) : parseIpv6(info.local)
    if (address !== null && containsAddress(network, address)) inside.push(`${info.local}/${info.prefixlen}`)
  }
  return inside
}

/** Takes the device away, with its address and routes. Nothing happens when it is absent or not ours. */
export async function removeOverlayLink(name: string, where: InNamespace = {}): Promise<void> {
  const device = await inspectOverlayDevice(name, where)
  if (device.kind === 'ours') await batch('ip', [`link delete dev ${name}`], where)
}

/**
 * Lets the device have IPv6 addresses also where new devices have none (container engines switch that off). Best
 * effort: where /proc/sys is read-only the address command tells what is wrong.
 * @throws FlanneletteError `host-command` on a kernel without IPv6
 */
export async function allowIpv6(name: string, where: InNamespace = {}): Promise<void> {
  if (!kernelHasIpv6()) {
    throw new FlanneletteError('host-command', 'EnableIPv6 is true, but this kernel has no IPv6', {
      remedy: 'start the kernel without ipv6.disable=1, or set EnableIPv6 to false',
    })
  }
  await writeSetting(`net/ipv6/conf/${name}/disable_ipv6`, 0, where).catch(() => {})
}

/** As flannel does, best effort: kernels without IPv6 have no such setting. */
export async function quietRouterAdvertisements(name: string, where: InNamespace = {}): Promise<void> {
  await writeSetting(`net/ipv6/conf/${name}/accept_ra`, 0, where).catch(() => {})
}

/**
 * The engine's ICMP answers bear this node's own overlay address, and the kernel drops what comes out of a device with
 * one of its own addresses as source unless told otherwise (accept_local in ip-sysctl.rst). Best effort: where
 * /proc/sys is read-only only these answers are lost, and the kernel gives most of them itself before the engine has
 * to.
 */
async function acceptOwnAnswers(name: string, where: InNamespace): Promise<void> {
  await writeSetting(`net/ipv4/conf/${name}/accept_local`, 1, where).catch(() => {})
}
