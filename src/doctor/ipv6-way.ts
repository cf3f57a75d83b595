// The second way to a peer: where both nodes have a tunnel between IPv6 addresses of the hosts beside that over IPv4. It
// has an underlay, a device and sizes of its own; without it IPv6 of pods takes the tunnel of IPv4, by which it is no
// different.
import type { PeerView } from './node-view.ts'
import type { LadderPlace } from './rung.ts'
import { ipv6VtepAddress } from './target.ts'

export interface Ipv6Way {
  /** Where the peer's end of the tunnel is. */
  readonly publicIp: string
  readonly subnet: string
  readonly vtep: string
  /** This node's end: the place, with that tunnel's device and sizes. */
  readonly place: LadderPlace
}

/** `null` where one of both nodes has no such tunnel. */
export function ipv6WayTo(
  peer: Pick<PeerView, 'subnet' | 'ipv6Subnet' | 'publicIpv6'>,
  place: LadderPlace,
): Ipv6Way | null {
  const { publicIpv6 = null, ipv6Subnet } = peer
  const [end, vtep] = [ipv6EndOf(place), ipv6VtepAddress(peer)]
  if (end === null || vtep === null || publicIpv6 === null || ipv6Subnet === null) return null
  return { publicIp: publicIpv6, subnet: ipv6Subnet, vtep, place: end }
}

/** This node's end of that tunnel, `null` without one. */
export function ipv6EndOf(place: LadderPlace): LadderPlace | null {
  if (!place.ipv6 || place.ipv6Tunnel === null) return null
  const { device: overlayDevice, mtuBytes: overlayMtuBytes, overheadBytes } = place.ipv6Tunnel
  return { ...place, underlayFamily: 'IPv6', overlayDevice, overlayMtuBytes, overheadBytes }
}
