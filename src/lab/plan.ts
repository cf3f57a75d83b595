// What a lab consists of, before any of it exists: names, addresses and roles as a pure function of the options.
// underlay.ts, pod-network.ts and daemon-process.ts build it.
import { formatIpv4, formatPrefix, type Ipv4Prefix, parseIpv4 } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'

/** How the links between hosts behave; underlay.ts says what each means for the devices. */
export type UnderlayKind = 'veth' | 'uso' | 'wire'
export const UNDERLAY_KINDS: readonly UnderlayKind[] = ['veth', 'uso', 'wire']

export type LabBackend = 'vxlan' | 'udp'
export const LAB_BACKENDS: readonly LabBackend[] = ['vxlan', 'udp']

export interface LabOptions {
  /** Letters and digits; several labs with different names may run at once. */
  readonly name: string
  /** 1-100 */
  readonly hosts: number
  /** Pods on each host, 0-50. */
  readonly pods: number
  /** Hosts (`host2`) whose packets the kernel's VTEP moves. */
  readonly kernel: readonly string[]
  readonly backend: LabBackend
  readonly underlay: UnderlayKind
  /** Two hosts joined by one link, without a switch between them. */
  readonly direct: boolean
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
  backend: 'vxlan',
  underlay: 'veth',
  direct: false,
  udpChecksum: true,
  daemonArguments: [],
}

export interface HostPlan {
  /** `host1`; also the name of its port on the switch. */
  readonly name: string
  readonly namespace: string
  readonly dataplane: 'userspace' | 'kernel'
  /** Address of its `eth0`. */
  readonly underlayAddress: string
  /** Subnet that its daemon is led to ask for, so that addresses tell where they belong. */
  readonly subnet: Ipv4Prefix
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
  readonly network: Ipv4Prefix
  /** `null` with `direct`. */
  readonly switchNamespace: string | null
  readonly hosts: readonly HostPlan[]
  readonly pods: readonly PodPlan[]
}

/** Every namespace of a lab starts with this and the lab's name. */
export const NAMESPACE_PREFIX = 'flannelette-'
export const UNDERLAY_PREFIX_LENGTH = 24
const UNDERLAY_BASE = parseIpv4('192.168.56.10') ?? 0
const NETWORK: Ipv4Prefix = { address: parseIpv4('10.244.0.0') ?? 0, length: 16 }
const NAME = /^[a-z][a-z0-9]{0,15}$/
const MAX_HOSTS = 100
const MAX_PODS = 50

/** @throws FlanneletteError `usage` naming the option that cannot be */
export function planLab(options: LabOptions): LabPlan {
  checkOptions(options)
  const hosts: HostPlan[] = []
  const pods: PodPlan[] = []
  for (let number = 1; number <= options.hosts; number++) {
    const name = `host${number}`
    hosts.push({
      name,
      namespace: namespaceOf(options.name, name),
      dataplane: options.kernel.includes(name) ? 'kernel' : 'userspace',
      underlayAddress: formatIpv4(UNDERLAY_BASE + number),
      subnet: { address: NETWORK.address + number * 256, length: 24 },
    })
    for (let pod = 1; pod <= options.pods; pod++) {
      const podName = `pod${number}.${pod}`
      pods.push({ name: podName, namespace: namespaceOf(options.name, podName), host: name, number: pod })
    }
  }
  const switchNamespace = options.direct ? null : namespaceOf(options.name, 'switch')
  return { name: options.name, network: NETWORK, switchNamespace, hosts, pods }
}

function checkOptions({ name, hosts, pods, kernel, direct, backend }: LabOptions): void {
  checkLabName(name)
  if (kernel.length > 0 && backend !== 'vxlan') {
    throw usage(
      `--kernel needs --backend vxlan: the kernel has no ${backend} tunnel of this kind`,
      'leave one of them out',
    )
  }
  checkCount('--hosts', hosts, 1, MAX_HOSTS)
  checkCount('--pods', pods, 0, MAX_PODS)
  for (const host of kernel) {
    const number = /^host([1-9]\d*)$/.exec(host)?.[1]
    if (number === undefined || Number(number) > hosts) {
      throw usage(`--kernel names "${host}", which this lab does not have`, `hosts are host1 to host${hosts}`)
    }
  }
  if (direct && hosts !== 2) throw usage('--direct joins exactly two hosts', 'use it with --hosts 2')
}

/** The name becomes part of paths and namespaces. @throws FlanneletteError `usage` */
export function checkLabName(name: string): void {
  if (NAME.test(name)) return
  throw usage(`the lab name "${name}" will not do`, 'use up to 16 lower-case letters and digits, a letter first')
}

/** @throws FlanneletteError `usage` unless it is a whole number in this range */
export function checkCount(option: string, value: number, least: number, most: number): void {
  if (Number.isInteger(value) && value >= least && value <= most) return
  throw usage(`${option} ${value} is out of range`, `use ${least} to ${most}`)
}

function usage(message: string, remedy: string): FlanneletteError {
  return new FlanneletteError('usage', message, { remedy })
}

export function namespaceOf(lab: string, member: string): string {
  return `${NAMESPACE_PREFIX}${lab}-${member}`
}

/** Whether a namespace belongs to the lab of that name (and not to one whose name merely starts alike). */
export function belongsToLab(namespace: string, lab: string): boolean {
  const prefix = namespaceOf(lab, '')
  return namespace.startsWith(prefix) && /^(switch|host\d+|pod\d+\.\d+)$/.test(namespace.slice(prefix.length))
}

/** `10.244.1.1` of `10.244.1.0/24`: the bridge. */
export function bridgeAddress(subnet: Ipv4Prefix): string {
  return formatIpv4(subnet.address + 1)
}

/** Pods follow the bridge: number 1 has `.2`. */
export function podAddress(subnet: Ipv4Prefix, number: number): string {
  return formatIpv4(subnet.address + 1 + number)
}

/** The network config that the lab's store holds. */
export function networkConfigJson(plan: LabPlan, backend: LabBackend): string {
  const settings = backend === 'vxlan' ? { Type: backend, VNI: 1 } : { Type: backend }
  return `${JSON.stringify({ Network: formatPrefix(plan.network), Backend: settings })}\n`
}
