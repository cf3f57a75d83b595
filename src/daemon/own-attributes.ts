// What a node says of itself in its lease: the addresses that peers send to, and for vxlan a MAC for each device.
import { formatIpv6, type UnderlayAddress } from '../../dataplane/index.ts'
import type { NetworkConfig } from '../config/network-config.ts'
import type { TunnelBackend } from '../config/tunnel-backend.ts'
import type { UnderlayInterface } from '../host/underlay-interface.ts'
import { identityOf, type Lease, type LeaseAttributes, type PublicAddresses } from '../lease/lease.ts'
import { vtepMacForIpv6, vtepMacOf, vxlanData } from '../store/flannel-json.ts'
import type { AgentOptions } from './agent-options.ts'

type FixedAddresses = Pick<AgentOptions, 'publicIp' | 'publicIpv6'>

/** Those of the interface, or the ones that a person has given. */
export function publicAddresses(fixed: FixedAddresses, underlay: UnderlayInterface): PublicAddresses {
  const { address, ipv6Address } = underlay
  const ipv6 = typeof address === 'bigint' ? address : ipv6Address
  return {
    publicIp: typeof address === 'bigint' ? 0 : (fixed.publicIp ?? address),
    publicIpv6: ipv6 === undefined ? null : formatIpv6(fixed.publicIpv6 ?? ipv6),
  }
}

/** Those that are the interface's own and were given by a person. */
export function fixedAddresses({ publicIp, publicIpv6 }: FixedAddresses, underlay: UnderlayInterface) {
  const own = [underlay.address, underlay.ipv6Address]
  return [publicIp, publicIpv6].filter((address): address is UnderlayAddress => {
    return address !== undefined && own.includes(address)
  })
}

export interface AttributeSources {
  readonly options: Pick<AgentOptions, 'state' | 'random'>
  /** The lease of the last run. */
  readonly kept: Lease | null
  readonly config: Pick<NetworkConfig, 'ipv4' | 'ipv6'>
  readonly backend: TunnelBackend
  readonly addresses: PublicAddresses
  /** What the dataplane has to say to peers, where it is no tunnel with MACs. */
  readonly leaseData?: unknown
}

/**
 * For vxlan with MACs: from the state directory, else those of the lease we take over, else new ones. What is remembered
 * of another public address is not used: the lease of that time may live for a day yet, or it is the lease of the host
 * that this one is a copy of, and a kernel that knows one MAC from two leases sends to one of both only.
 */
export function attributesFor(
  { options, kept, config, backend, addresses, leaseData }: AttributeSources,
  existing: Lease | null,
): LeaseAttributes {
  const common = { ...addresses, backendType: backend.leaseType }
  if (backend.encapsulation !== 'vxlan') return { ...common, ...inHalves(leaseData, config) }
  const { state, random } = options
  const isThatNode = kept === null || identityOf(kept.attributes) === identityOf(addresses)
  const known = existing?.attributes ?? null
  const choose = (remembered: number | null, inherited: number | null) =>
    (isThatNode ? remembered : null) ?? inherited ?? randomMac(random)
  const data = () => vxlanData(backend.vni, choose(state.readMac(), known && vtepMacOf(known)))
  const ipv6Data = () => vxlanData(backend.vni, choose(state.readMac('ipv6'), known && ownIpv6Mac(known)))
  if (backend.underlay === 'ipv6') return { ...common, backendV6Data: ipv6Data() }
  const backendData = data()
  if (backend.underlay === 'dual') return { ...common, backendData, backendV6Data: ipv6Data() }
  // One device for both families: the MAC of the IPv6 half is the same.
  return config.ipv6 === null ? { ...common, backendData } : { ...common, backendData, backendV6Data: backendData }
}

/** The same for each family that there is. */
function inHalves(data: unknown, { ipv4, ipv6 }: Pick<NetworkConfig, 'ipv4' | 'ipv6'>) {
  if (data === undefined) return {}
  return { ...(ipv4 === null ? {} : { backendData: data }), ...(ipv6 === null ? {} : { backendV6Data: data }) }
}

/** Of a lease whose IPv6 went by the IPv4 device there is none. */
function ownIpv6Mac(attributes: LeaseAttributes): number | null {
  const mac = vtepMacForIpv6(attributes)
  return mac === vtepMacOf(attributes) ? null : mac
}

/** The MACs of the devices of a node, that over IPv4 first. */
export function vtepMacs(attributes: LeaseAttributes): number[] {
  return [...new Set([vtepMacOf(attributes), vtepMacForIpv6(attributes)])].filter((mac) => mac !== null)
}

/** A random locally administered unicast MAC, IEEE 802. */
export function randomMac(random: () => number): number {
  const octets = Array.from({ length: 6 }, () => Math.floor(random() * 256))
  octets[0] = (octets[0]! & 0xfe) | 0x02
  return octets.reduce((mac, octet) => mac * 256 + octet, 0)
}
