// What a lab consists of, before any of it exists: names, addresses and roles as a pure function of the options.
// underlay.ts, pod-network.ts and daemon-process.ts build it.
import {
  formatAddress,
  formatIpv4,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  type Prefix,
  parseIpv4,
  parseIpv6,
} from '../../dataplane/index.ts'
import type { DataplaneKind } from '../config/options.ts'
import { FlanneletteError } from '../errors.ts'

/** How the links between hosts behave; underlay.ts says what each means for the devices. */
export type UnderlayKind = 'veth' | 'uso' | 'wire'
export const UNDERLAY_KINDS: readonly UnderlayKind[] = ['veth', 'uso', 'wire']

export type LabBackend = 'vxlan' | 'udp' | 'host-gw'
export const LAB_BACKENDS: readonly LabBackend[] = ['vxlan', 'udp', 'host-gw']

/** Of which families the addresses of hosts and pods are, and so the tunnels between them. */
export type LabFamily = 'ipv4' | 'ipv6' | 'dual'
export const LAB_FAMILIES: readonly LabFamily[] = ['ipv4', 'ipv6', 'dual']

export interface LabOptions {
  /** Letters and digits; several labs with different names may run at once. */
  readonly name: string
  /** 1-100 */
  readonly hosts: number
  /** Pods on each host, 0-50. */
  readonly pods: number
  /** Hosts (`host2`) whose packets the kernel's VTEP moves. */
  readonly kernel: readonly string[]
  /** Hosts whose daemon chooses for itself. */
  readonly auto: readonly string[]
  readonly backend: LabBackend
  readonly underlay: UnderlayKind
  /** Two hosts joined by one link, without a switch between them. */
  readonly direct: boolean
  /** Hosts (`host3`) on a second link, with a router between it and the others'. */
  readonly routed: readonly string[]
  /** Hosts on one link reach each other's pods by routes, past the tunnels. */
  readonly directRouting: boolean
  readonly family: LabFamily
  /** With family `ipv4` pods have IPv6 addresses as well; their packets ride through the tunnels over IPv4. */
  readonly ipv6: boolean
  /** Firewall rules in nftables form. */
  readonly nftables: boolean
  /** Outer UDP checksums of kernel hosts. */
  readonly udpChecksum: boolean
  /** More words for each daemon's command line. */
  readonly daemonArguments: readonly string[]
}

export const LAB_DEFAULTS: LabOptions = {
  name: 'lab',
  hosts: 3,
  pods: 2,
  kernel: [],
  auto: [],
  backend: 'vxlan',
  underlay: 'veth',
  direct: false,
  routed: [],
  directRouting: false,
  family: 'ipv4',
  ipv6: false,
  nftables: false,
  udpChecksum: true,
  daemonArguments: [],
}

export interface HostPlan {
  /** `host1`; also the name of its port on the switch. */
  readonly name: string
  readonly namespace: string
  readonly dataplane: DataplaneKind
  /** Address of its `eth0`: the IPv6 one where there is no IPv4. */
  readonly underlayAddress: string
  /** Router to the other link, `null` where there is only one. */
  readonly router: string | null
  /** The IPv6 one of both, `null` in a lab over IPv4. */
  readonly underlayIpv6: string | null
  /** Subnet that its daemon is led to ask for, so that addresses tell where they belong. */
  readonly subnet: Ipv4Prefix | null
  /** The same for IPv6; of both `null` in a lab without. */
  readonly ipv6Subnet: Ipv6Prefix | null
}

export interface PodPlan {
  /** `pod1.2`: the second pod of host1; also the name of its port on the bridge. */
  readonly name: string
  readonly namespace: string
  readonly host: string
  /** 1 for the first pod of its host. */
  readonly number: number
}

export interface LabPlan {
  readonly name: string
  readonly network: Ipv4Prefix | null
  readonly ipv6Network: Ipv6Prefix | null
  /** `null` with `direct`. */
  readonly switchNamespace: string | null
  readonly hosts: readonly HostPlan[]
  readonly pods: readonly PodPlan[]
}

/** Every namespace of a lab starts with this and the lab's name. */
const NAMESPACE_PREFIX = 'flannelette-'
export const UNDERLAY_PREFIX_LENGTH = 24
/** The links of the hosts: all are on the first, but for those behind the router. */
const LINKS = [parseIpv4('192.168.56.0') ?? 0, parseIpv4('192.168.57.0') ?? 0] as const
/** Hosts follow it: host1 has `.11`. */
const FIRST_HOST = 10
/** Of the router on each link. */
const ROUTER = 1
export const UNDERLAY_IPV6_PREFIX_LENGTH = 64
const UNDERLAY_IPV6_BASE = parseIpv6('fd00:192:168:56::') ?? 0n
const NETWORK: Ipv4Prefix = { address: parseIpv4('10.244.0.0') ?? 0, length: 16 }
const IPV6_NETWORK: Ipv6Prefix = { address: parseIpv6('fd00:10:244::') ?? 0n, length: 48 }
const IPV6_SUBNET_LENGTH = 64
const NAME = /^[a-z][a-z0-9]{0,15}$/
const MAX_HOSTS = 100
const MAX_PODS = 50

/** @throws FlanneletteError `usage` naming the option that cannot be */
export function planLab(options: LabOptions): LabPlan {
  checkOptions(options)
  const [hasIpv4, overIpv6] = [options.family !== 'ipv6', options.family !== 'ipv4']
  const podsHaveIpv6 = overIpv6 || options.ipv6
  const hosts: HostPlan[] = []
  const pods: PodPlan[] = []
  for (let number = 1; number <= options.hosts; number++) {
    const name = `host${number}`
    const link = options.routed.includes(name) ? LINKS[1] : LINKS[0]
    hosts.push({
      name,
      namespace: namespaceOf(options.name, name),
      dataplane: dataplaneOf(name, options),
      underlayAddress: hasIpv4 ? formatIpv4(link + FIRST_HOST + number) : underlayIpv6Of(number),
      underlayIpv6: overIpv6 ? underlayIpv6Of(number) : null,
      router: options.routed.length === 0 ? null : formatIpv4(link + ROUTER),
      subnet: hasIpv4 ? { address: NETWORK.address + number * 256, length: 24 } : null,
      ipv6Subnet: podsHaveIpv6 ? ipv6SubnetOf(number) : null,
    })
    for (let pod = 1; pod <= options.pods; pod++) {
      const podName = `pod${number}.${pod}`
      pods.push({ name: podName, namespace: namespaceOf(options.name, podName), host: name, number: pod })
    }
  }
  const switchNamespace = options.direct ? null : namespaceOf(options.name, 'switch')
  const [network, ipv6Network] = [hasIpv4 ? NETWORK : null, podsHaveIpv6 ? IPV6_NETWORK : null]
  return { name: options.name, network, ipv6Network, switchNamespace, hosts, pods }
}

/** `fd00:192:168:56::11` of host1. */
function underlayIpv6Of(number: number): string {
  return formatAddress(UNDERLAY_IPV6_BASE + BigInt(0x10 + number))
}

function dataplaneOf(host: string, { kernel, auto }: LabOptions): DataplaneKind {
  if (auto.includes(host)) return 'auto'
  return kernel.includes(host) ? 'kernel' : 'userspace'
}

/** `fd00:10:244:1::/64` of host1. */
function ipv6SubnetOf(number: number): Ipv6Prefix {
  return {
    address: IPV6_NETWORK.address + (BigInt(number) << BigInt(128 - IPV6_SUBNET_LENGTH)),
    length: IPV6_SUBNET_LENGTH,
  }
}

function checkOptions(options: LabOptions): void {
  const { name, hosts, pods, kernel, auto, direct, routed, backend, family, ipv6, udpChecksum } = options
  checkLabName(name)
  if (kernel.length > 0 && backend !== 'vxlan') {
    throw usage(
      `--kernel needs --backend vxlan: the kernel has no ${backend} tunnel of this kind`,
      'leave one of them out',
    )
  }
  if (family !== 'ipv4' && backend === 'udp') {
    throw usage(`--family ${family} needs another backend: ${backend} carries IPv4 only`, 'leave one out')
  }
  if (family !== 'ipv4' && ipv6) {
    throw usage(`--family ${family} has tunnels over IPv6, and --ipv6 carries IPv6 over IPv4`, 'leave one out')
  }
  if (ipv6 && backend !== 'vxlan') throw usage('--ipv6 needs --backend vxlan, whose tunnels carry it', 'leave one out')
  checkCount('--hosts', hosts, 1, MAX_HOSTS)
  checkCount('--pods', pods, 0, MAX_PODS)
  checkHosts('--kernel', kernel, hosts)
  checkHosts('--auto', auto, hosts)
  checkHosts('--routed', routed, hosts)
  const both = kernel.find((host) => auto.includes(host))
  if (both !== undefined) throw usage(`--kernel and --auto both name ${both}`, 'name it in one of them')
  if (!udpChecksum && kernel.length + auto.length === 0) {
    throw usage('--udp-checksum off is for hosts of --kernel or --auto, and there is none', 'name one, or leave it out')
  }
  checkRoutes(options)
  if (direct && hosts !== 2) throw usage('--direct joins exactly two hosts', 'use it with --hosts 2')
}

function checkRoutes({ direct, routed, directRouting, backend, family }: LabOptions): void {
  if (directRouting && backend !== 'vxlan') throw usage('--direct-routing needs --backend vxlan', 'leave one out')
  if (routed.length === 0) return
  if (direct) throw usage('--direct has no place for the router of --routed', 'leave one out')
  if (family !== 'ipv4') throw usage(`the router of --routed knows IPv4 only, not --family ${family}`, 'leave one out')
  if (backend !== 'host-gw') return
  throw usage('--routed makes hosts that are no neighbours, and routes of host-gw go by neighbours', 'leave one out')
}

function checkHosts(option: string, names: readonly string[], hosts: number): void {
  for (const [index, name] of names.entries()) {
    if (names.indexOf(name) < index) throw usage(`${option} names ${name} twice`, 'name each host once')
    const number = /^host([1-9]\d*)$/.exec(name)?.[1]
    if (number === undefined || Number(number) > hosts) {
      throw usage(`${option} names "${name}", which this lab does not have`, `hosts are host1 to host${hosts}`)
    }
  }
}

/** The name becomes part of paths and namespaces. @throws FlanneletteError `usage` */
export function checkLabName(name: string): void {
  if (NAME.test(name)) return
  throw usage(`the lab name "${name}" will not do`, 'use up to 16 lower-case letters and digits, a letter first')
}

/** @throws FlanneletteError `usage` unless it is a whole number in this range */
export function checkCount(option: string, value: number, least: number, most: number): void {
  if (Number.isInteger(value) && value >= least && value <= most) return
  const problem = Number.isInteger(value) ? 'is out of range' : 'is no whole number'
  throw usage(`${option} ${value} ${problem}`, `use ${least} to ${most}`)
}

function usage(message: string, remedy: string): FlanneletteError {
  return new FlanneletteError('usage', message, { remedy })
}

function namespaceOf(lab: string, member: string): string {
  return `${NAMESPACE_PREFIX}${lab}-${member}`
}

/** Whether a namespace belongs to the lab of that name (and not to one whose name merely starts alike). */
export function belongsToLab(namespace: string, lab: string): boolean {
  const prefix = namespaceOf(lab, '')
  return namespace.startsWith(prefix) && /^(switch|host\d+|pod\d+\.\d+)$/.test(namespace.slice(prefix.length))
}

/** `10.244.1.1` of `10.244.1.0/24`, `fd00:10:244:1::1` of `fd00:10:244:1::/64`: the bridge. */
export function bridgeAddress(subnet: Prefix): string {
  return addressIn(subnet, 1)
}

/** Pods follow the bridge: number 1 has `.2`. */
export function podAddress(subnet: Prefix, number: number): string {
  return addressIn(subnet, 1 + number)
}

function addressIn({ address }: Prefix, index: number): string {
  return formatAddress(typeof address === 'number' ? address + index : address + BigInt(index))
}

/** Each link of a lab with a router, as a prefix, and the router's address on it. */
export function routedLinks(): { readonly link: string; readonly router: string }[] {
  return LINKS.map((link) => ({
    link: formatPrefix({ address: link, length: UNDERLAY_PREFIX_LENGTH }),
    router: formatIpv4(link + ROUTER),
  }))
}

/** The network config that the lab's store holds. */
export function networkConfigJson(
  { network, ipv6Network }: LabPlan,
  { backend, nftables, family, directRouting }: Pick<LabOptions, 'backend' | 'nftables' | 'family' | 'directRouting'>,
): string {
  const vxlan = { Type: backend, VNI: 1, ...(directRouting ? { DirectRouting: true } : {}) }
  const settings = backend === 'vxlan' ? vxlan : { Type: backend }
  const ridesOverIpv4 = ipv6Network !== null && family === 'ipv4'
  const config = {
    ...(network === null ? { EnableIPv4: false } : { Network: formatPrefix(network) }),
    ...(ipv6Network === null ? {} : { EnableIPv6: true, IPv6Network: formatPrefix(ipv6Network) }),
    Backend: ridesOverIpv4 ? { ...settings, IPv6OverIPv4: true } : settings,
  }
  return `${JSON.stringify(nftables ? { ...config, EnableNFTables: true } : config)}\n`
}
