// What a container engine would build from subnet.env: the bridge `cni0` with the subnet's first address, and pods on
// it, each a namespace with one interface and a default route.

import type { Ipv4Prefix } from '../../dataplane/index.ts'
import { batch } from '../host/ip.ts'
import type { LabPod } from './lab-state.ts'
import { bridgeAddress, podAddress } from './plan.ts'

export interface PodNetwork {
  readonly hostNamespace: string
  readonly subnet: Ipv4Prefix
  readonly mtuBytes: number
  readonly pods: readonly Pick<LabPod, 'name' | 'namespace' | 'number'>[]
}

export async function buildPodNetwork(network: PodNetwork): Promise<void> {
  await batch('ip', bridgeCommands(network), { namespace: network.hostNamespace })
  await Promise.all(
    network.pods.map((pod) => batch('ip', podCommands(network, pod.number), { namespace: pod.namespace })),
  )
}

function bridgeCommands({ subnet, mtuBytes, pods }: PodNetwork): string[] {
  const ports = pods.flatMap(({ name, namespace }) => [
    `link add ${name} mtu ${mtuBytes} type veth peer name eth0 mtu ${mtuBytes} netns ${namespace}`,
    `link set dev ${name} addrgenmode none`,
    `link set dev ${name} master cni0 up`,
  ])
  return [
    `link add cni0 mtu ${mtuBytes} type bridge mcast_snooping 0`,
    'link set dev cni0 addrgenmode none',
    `address add ${bridgeAddress(subnet)}/${subnet.length} brd + dev cni0`,
    'link set dev cni0 up',
    ...ports,
  ]
}

function podCommands({ subnet }: PodNetwork, number: number): string[] {
  return [
    'link set dev lo up',
    'link set dev eth0 addrgenmode none',
    `address add ${podAddress(subnet, number)}/${subnet.length} brd + dev eth0`,
    'link set dev eth0 up',
    `route add default via ${bridgeAddress(subnet)}`,
  ]
}
