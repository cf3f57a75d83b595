// The network between the hosts: a switch (a bridge in a namespace of its own) with one link per host, or one direct
// link, and the offloads that make the links behave like a virtual machine's, a modern card's or a plain wire.
import { setTimeout as pause } from 'node:timers/promises'
import { FlanneletteError } from '../errors.ts'
import { type Features, setFeatures } from '../host/ethtool.ts'
import { batch, type RouteInfo, showJson } from '../host/ip.ts'
import { writeSetting } from '../host/sysctl.ts'
import {
  type HostPlan,
  type LabPlan,
  routedLinks,
  UNDERLAY_IPV6_PREFIX_LENGTH,
  UNDERLAY_PREFIX_LENGTH,
  type UnderlayKind,
} from './plan.ts'

/** Name of the underlay interface inside every host. */
export const UNDERLAY_INTERFACE = 'eth0'

const NO_TUNNEL_OFFLOAD: Features = {
  tso: false,
  'tx-udp_tnl-segmentation': false,
  'tx-udp_tnl-csum-segmentation': false,
  gro: true,
}

/**
 * Features for the ends of a link; empty: as the kernel made them (super-packets pass untouched). `wire`: every packet
 * has MTU size and a software checksum. `uso`: UDP segmentation is left to the link, tunnels get no help from it.
 */
const LINK_FEATURES: Readonly<Record<UnderlayKind, Features>> = {
  veth: {},
  wire: { tx: false, 'tx-udp-segmentation': false, ...NO_TUNNEL_OFFLOAD },
  uso: { tx: true, 'tx-udp-segmentation': true, ...NO_TUNNEL_OFFLOAD },
}

/**
 * Links hosts as the plan says, with offloads of that kind, and waits for their IPv6 addresses.
 * @throws FlanneletteError `host-command`
 */
export async function buildUnderlay(plan: LabPlan, kind: UnderlayKind): Promise<void> {
  await batch('ip', linkCommands(plan), { namespace: plan.switchNamespace ?? plan.hosts[0]?.namespace })
  if (hasRouter(plan) && plan.switchNamespace !== null) await setUpRouter(plan.switchNamespace)
  await Promise.all([
    ...plan.hosts.map((host) => setUpHost(host, kind)),
    ...(plan.switchNamespace === null ? [] : plan.hosts.map((host) => setUpPort(plan.switchNamespace, host, kind))),
  ])
  await Promise.all(plan.hosts.map(awaitIpv6))
}

/** It tells nobody of a shorter way: hosts send as their routes say. */
async function setUpRouter(namespace: string): Promise<void> {
  await writeSetting('net/ipv4/ip_forward', 1, { namespace })
  for (const name of ['all', ...SWITCHES]) await writeSetting(`net/ipv4/conf/${name}/send_redirects`, 0, { namespace })
}

/** Commands in the switch's namespace, or in the first host's when there is no switch. */
export function linkCommands(plan: LabPlan): string[] {
  if (plan.switchNamespace === null) {
    const peer = plan.hosts[1]?.namespace
    return [`link add ${UNDERLAY_INTERFACE} type veth peer name ${UNDERLAY_INTERFACE} netns ${peer}`]
  }
  const links = hasRouter(plan) ? routedLinks() : [null]
  const ports = plan.hosts.flatMap((host) => [
    `link add ${host.name} type veth peer name ${UNDERLAY_INTERFACE} netns ${host.namespace}`,
    `link set dev ${host.name} addrgenmode none`,
    `link set dev ${host.name} master ${SWITCHES[linkOf(host)]} up`,
  ])
  return [...links.flatMap((link, index) => switchCommands(SWITCHES[index] ?? '', link?.router ?? null)), ...ports]
}

/** One for each link; both are in one namespace, which is the router between them. */
const SWITCHES: readonly string[] = ['switch', 'switch2']

function switchCommands(name: string, router: string | null): string[] {
  return [
    `link add ${name} type bridge mcast_snooping 0`,
    `link set dev ${name} addrgenmode none`,
    ...(router === null ? [] : [`address add ${router}/${UNDERLAY_PREFIX_LENGTH} dev ${name}`]),
    `link set dev ${name} up`,
  ]
}

function hasRouter({ hosts }: LabPlan): boolean {
  return hosts.some(({ router }) => router !== null)
}

/** Number of the link that a host is on. */
function linkOf({ router }: HostPlan): number {
  return router === null ? 0 : routedLinks().findIndex((link) => link.router === router)
}

/** The way to hosts on the other link. */
function routeCommands({ router }: HostPlan): string[] {
  if (router === null) return []
  return routedLinks()
    .filter((link) => link.router !== router)
    .map(({ link }) => `route add ${link} via ${router} dev ${UNDERLAY_INTERFACE}`)
}

async function setUpHost(host: HostPlan, kind: UnderlayKind): Promise<void> {
  const where = { namespace: host.namespace }
  await batch(
    'ip',
    [
      'link set dev lo up',
      `link set dev ${UNDERLAY_INTERFACE} addrgenmode none`,
      ...addressCommands(host),
      `link set dev ${UNDERLAY_INTERFACE} up`,
      ...routeCommands(host),
    ],
    where,
  )
  await setFeatures(UNDERLAY_INTERFACE, LINK_FEATURES[kind], where)
  await writeSetting('net/ipv4/ip_forward', 1, where)
}

function addressCommands({ subnet, underlayAddress, underlayIpv6 }: HostPlan): string[] {
  const ipv4 = `address add ${underlayAddress}/${UNDERLAY_PREFIX_LENGTH} brd + dev ${UNDERLAY_INTERFACE}`
  const ipv6 = `address add ${underlayIpv6}/${UNDERLAY_IPV6_PREFIX_LENGTH} dev ${UNDERLAY_INTERFACE} nodad`
  // Without one of these a router does not look for the neighbours that it forwards to.
  const linkLocal = `address add fe80::${underlayIpv6?.split('::')[1]}/64 dev ${UNDERLAY_INTERFACE} nodad`
  return [...(subnet === null ? [] : [ipv4]), ...(underlayIpv6 === null ? [] : [ipv6, linkLocal])]
}

/** Longest time until the kernel lets a new IPv6 address be used, which takes a carrier; milliseconds. */
const IPV6_LIMIT_MS = 5000
const IPV6_POLL_MS = 10

/** Before that no socket may have it. @throws FlanneletteError `lab-state` */
async function awaitIpv6({ name, namespace, underlayIpv6 }: HostPlan): Promise<void> {
  if (underlayIpv6 === null) return
  const deadline = performance.now() + IPV6_LIMIT_MS
  const question = ['-6', 'route', 'show', 'table', 'local', underlayIpv6]
  while ((await showJson<RouteInfo>('ip', question, { namespace })).length === 0) {
    if (performance.now() > deadline) {
      throw new FlanneletteError('lab-state', `${name} cannot use its address ${underlayIpv6}`)
    }
    await pause(IPV6_POLL_MS)
  }
}

async function setUpPort(namespace: string | null, host: HostPlan, kind: UnderlayKind): Promise<void> {
  const features = LINK_FEATURES[kind]
  if (namespace === null || Object.keys(features).length === 0) return
  // A switch forwards packets as they come: it must not merge them.
  await setFeatures(host.name, { ...features, gro: false }, { namespace })
}
