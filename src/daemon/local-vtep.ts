// This node's own end, as the dataplane is told of it: from the granted lease, and again after a move to another underlay
// address or with another MTU. Pure; the agent does what follows from it.
import { followMtu } from '../config/mtu.ts'
import type { LocalVtep } from '../host/dataplane.ts'
import type { UnderlayInterface } from '../host/underlay-interface.ts'
import { ipv6HalfOf, leadingHalf } from '../lease/lease.ts'
import { vtepMacForIpv6, vtepMacOf } from '../store/flannel-json.ts'
import type { JoinedNetwork } from './join-network.ts'

/** From the granted lease: MACs, overlay address, subnets. */
export function localVtep({ outline, lease }: JoinedNetwork): LocalVtep {
  const { ipv6Device, ...node } = outline
  const [mac, ipv6Mac] = [vtepMacOf(lease.attributes) ?? 0, vtepMacForIpv6(lease.attributes) ?? 0]
  return {
    ...node,
    mac: typeof node.underlayAddress === 'bigint' ? ipv6Mac : mac,
    overlayAddress: leadingHalf(lease).address,
    subnet: lease.subnet,
    ipv6Subnet: ipv6HalfOf(lease),
    ...(ipv6Device === undefined ? {} : { ipv6Device: { ...ipv6Device, mac: ipv6Mac } }),
  }
}

/** Whether that is where it stands already. */
export function standsAt(local: LocalVtep, { name, address, ipv6Address }: UnderlayInterface): boolean {
  const { underlayInterface, underlayAddress, ipv6Device } = local
  return underlayInterface === name && underlayAddress === address && ipv6Device?.underlayAddress === ipv6Address
}

/** On another interface, or with other addresses of it. */
export function movedTo(local: LocalVtep, { name, address, ipv6Address }: UnderlayInterface): LocalVtep {
  const { ipv6Device, ...node } = local
  const moved = { ...node, underlayInterface: name, underlayAddress: address }
  if (ipv6Device === undefined || ipv6Address === undefined) return moved
  return { ...moved, ipv6Device: { ...ipv6Device, underlayAddress: ipv6Address } }
}

/** What another MTU of the interface, in bytes, means for the node. */
export interface UnderlayMtu {
  /** `null` when the node keeps the MTU that it has. */
  readonly changed: LocalVtep | null
  /** What a person should read of it; `null` when all is as it was. */
  readonly sentence: string | null
}

/** What a device of IPv6's own is for the choice of its MTU. */
const ALONE = { hasIpv6: true, overIpv6: true } as const

/** Of two devices both must be able to follow: they go by one Backend.MTU. */
export function withUnderlayMtu(
  local: LocalVtep,
  underlayBytes: number,
  { backend, config }: Pick<JoinedNetwork, 'backend' | 'config'>,
): UnderlayMtu {
  const { encapsulation, mtuBytes: configured, underlay } = backend
  const { ipv6Device } = local
  const hasIpv6 = config.ipv6 !== null && ipv6Device === undefined
  const running = { mtuBytes: local.mtuBytes, hasIpv6, overIpv6: underlay === 'ipv6' }
  const { overlayBytes, sentence } = followMtu(encapsulation, underlayBytes, configured, running)
  if (sentence === null || overlayBytes === local.mtuBytes) return { changed: null, sentence }
  if (ipv6Device === undefined) return { changed: { ...local, mtuBytes: overlayBytes }, sentence }
  const ofIpv6 = followMtu(encapsulation, underlayBytes, configured, { ...ALONE, ...ipv6Device })
  if (ofIpv6.overlayBytes === ipv6Device.mtuBytes) return { changed: null, sentence: ofIpv6.sentence ?? sentence }
  const second = { ...ipv6Device, mtuBytes: ofIpv6.overlayBytes }
  return { changed: { ...local, mtuBytes: overlayBytes, ipv6Device: second }, sentence }
}
