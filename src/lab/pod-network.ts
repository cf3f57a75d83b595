// What a container engine would build from subnet.env: the bridge `cni0` with the first address of each subnet, and
// pods on it, each a namespace with one interface and default routes.

import type { Ipv4Prefix, Ipv6Prefix } from '../../dataplane/index.ts'
import { batch } from '../host/ip.ts'
import { writeSetting } from '../host/sysctl.ts'
import type { LabPod } from './lab-state.ts'
import { bridgeAddress, podAddress } from './plan.ts'

export interface PodNetwork {
  readonly hostNamespace: string
  readonly subnet: Ipv4Prefix | null
  readonly ipv6Subnet: Ipv6Prefix | null
  readonly mtuBytes: number
  readonly pods: readonly Pick<LabPod, 'name' | 'namespace' | 'number'>[]
}

/** Bridge of the host, interfaces of the pods, routes of both. @throws FlanneletteError `host-command` */
export async function buildPodNetwork(network: PodNetwork): Promise<void> {
  const where = { namespace: network.hostNamespace }
  await batch('ip', bridgeCommands(network), where)
  // As CNI's bridge plugin does for a gateway.
  if (network.ipv6Subnet !== null) await writeSetting('net/ipv6/conf/all/forwarding', 1, where)
  await Promise.all(
    network.pods.map((pod) => batch('ip', podCommands(network, pod.number), { namespace: pod.namespace })),
  )
}

function bridgeCommands({ subnet, ipv6Subnet, mtuBytes, pods }: PodNetwork): string[] {
  const ports = pods.flatMap(({ name, namespace }) => [
    `link add ${name} mtu ${mtuBytes} type veth peer name eth0 mtu ${mtuBytes} netns ${namespace}`,
    `link set dev ${name} addrgenmode none`,
    `link set dev ${name} master cni0 up`,
  ])
  return [
    `link add cni0 mtu ${mtuBytes} type bridge mcast_snooping 0`,
    'link set dev cni0 addrgenmode none',
    ...(subnet === null ? [] : [`address add ${bridgeAddress(subnet)}/${subnet.length} brd + dev cni0`]),
    ...(ipv6Subnet === null ? [] : ipv6BridgeCommands(ipv6Subnet)),
    'link set dev cni0 up',
    ...ports,
  ]
}

/** Without a link-local address of its own a router does not look for the neighbours that it forwards to. */
function ipv6BridgeCommands(subnet: Ipv6Prefix): string[] {
  return [ipv6Address(bridgeAddress(subnet), subnet, 'cni0'), 'address add fe80::1/64 dev cni0 nodad']
}

/** Nobody else has it: it need not be asked for before it may be used. */
function ipv6Address(address: string, { length }: Ipv6Prefix, device: string): string {
  return `address add ${address}/${length} dev ${device} nodad`
}

function podCommands({ subnet, ipv6Subnet }: PodNetwork, number: number): string[] {
  const ipv6 =
    ipv6Subnet === null
      ? []
      : [
          ipv6Address(podAddress(ipv6Subnet, number), ipv6Subnet, 'eth0'),
          `route add ::/0 via ${bridgeAddress(ipv6Subnet)} dev eth0`,
        ]
  return [
    'link set dev lo up',
    'link set dev eth0 addrgenmode none',
    ...(subnet === null ? [] : [`address add ${podAddress(subnet, number)}/${subnet.length} brd + dev eth0`]),
    'link set dev eth0 up',
    ...(subnet === null ? [] : [`route add default via ${bridgeAddress(subnet)}`]),
    ...ipv6,
  ]
}
