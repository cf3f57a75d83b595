// A host must not have an address that pods may have: its peers would send what is for it into the tunnel that leads to
// it. Asked at start, before a move to another underlay address, and of a config that comes into the store meanwhile.
import { containsAddress, formatAddress, formatPrefix, type UnderlayAddress } from '../../dataplane/index.ts'
import { parseNetworkConfig } from '../config/network-config.ts'
import { type TunnelBackend, tunnelBackend } from '../config/tunnel-backend.ts'
import { FlanneletteError } from '../errors.ts'
import type { UnderlayInterface } from '../host/underlay-interface.ts'
import type { AgentOptions } from './agent-options.ts'
import type { PodNetworks } from './forwarding-entries.ts'

/** By what addresses peers know a host: those of the interface, and those that a person has given. */
export interface OwnPlace extends Pick<AgentOptions, 'publicIp' | 'publicIpv6'> {
  readonly underlay: Pick<UnderlayInterface, 'address' | 'ipv6Address'>
}

/**
 * Where packets to pods are led into a tunnel, or to peers as gateways. What `alloc` and `extension` do with the pod network
 * is the operator's business. @throws FlanneletteError `network-overlap`
 */
export function refusePodAddresses(networks: PodNetworks, { plain, underlay: families }: TunnelBackend, own: OwnPlace) {
  if (plain !== undefined && plain.type !== 'host-gw') return
  const { underlay, publicIp, publicIpv6 } = own
  for (const address of [underlay.address, underlay.ipv6Address]) refuse(networks, address, null)
  if (families !== 'ipv6') refuse(networks, publicIp, '--public-ip')
  if (families !== 'ipv4') refuse(networks, publicIpv6, '--public-ipv6')
}

function refuse({ network, ipv6Network }: PodNetworks, address: UnderlayAddress | undefined, flag: string | null) {
  if (address === undefined) return
  const [pods, key] = typeof address === 'number' ? [network, 'Network'] : [ipv6Network, 'IPv6Network']
  if (pods === null || !containsAddress(pods, address)) return
  const [text, own] = [formatPrefix(pods), formatAddress(address)]
  if (flag === null) {
    throw new FlanneletteError('network-overlap', `the pod network ${text} covers this host's own address ${own}`, {
      remedy: `choose another ${key} that this host does not use yet, or another interface with --iface`,
    })
  }
  const why = 'peers would send the tunnel into itself'
  throw new FlanneletteError('network-overlap', `${flag} ${own} lies inside the pod network ${text}: ${why}`, {
    remedy: `give an address that peers reach without the tunnel, or leave ${flag} out`,
  })
}

/** Why this node would not start with such a config, in one sentence; empty when nothing is known against it. */
export function whyNotStart(rawConfig: string, own: OwnPlace): string {
  try {
    const config = parseNetworkConfig(rawConfig)
    const networks = { network: config.ipv4?.network ?? null, ipv6Network: config.ipv6?.network ?? null }
    refusePodAddresses(networks, tunnelBackend(config), own)
    return ''
  } catch (error) {
    if (error instanceof FlanneletteError) return error.oneLine
    throw error
  }
}
