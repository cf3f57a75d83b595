// What a node carries of each address family, and where of the host's routes and filters that is to be seen: checks that
// ask the same of both families ask through this.
import { type Prefix, parseIpv4, parseIpv6, parseIpv6Prefix, parsePrefix } from '../../dataplane/index.ts'
import type { Facts } from './facts.ts'
import type { FilterProgram } from './firewall-chains.ts'

/** The host's side of a family. */
export interface FamilySide {
  readonly family: 'IPv4' | 'IPv6'
  readonly routes: Facts['routes']
  readonly firewall: Facts['firewall']
  /** How people ask for the same. */
  readonly filterProgram: FilterProgram
  readonly showRoutes: 'ip route show' | 'ip -6 route show'
}

/** A network whose packets cross. */
export interface CarriedFamily extends FamilySide {
  readonly network: Prefix
  /** By which they leave this host; empty without a tunnel. */
  readonly device: string
  /** Between which addresses, of either family. */
  readonly underlayAddress: number | bigint
}

function ipv4Side({ routes, firewall }: Facts): FamilySide {
  return { family: 'IPv4', routes, firewall, filterProgram: 'iptables', showRoutes: 'ip route show' }
}

function ipv6Side({ ipv6Routes: routes, ipv6Firewall: firewall }: Facts): FamilySide {
  return { family: 'IPv6', routes, firewall, filterProgram: 'ip6tables', showRoutes: 'ip -6 route show' }
}

/** The families of the pods' networks; empty while no daemon has named any. */
export function carriedFamilies(facts: Facts): CarriedFamily[] {
  const node = facts.view.status?.node ?? null
  if (node === null) return []
  const carried = (side: FamilySide, network: Prefix | null, device: string, address: string): CarriedFamily[] => {
    const underlayAddress = parseIpv4(address) ?? parseIpv6(address)
    return network === null || underlayAddress === null ? [] : [{ ...side, network, device, underlayAddress }]
  }
  const { device, underlayAddress } = node.ipv6Device ?? node
  return [
    ...carried(ipv4Side(facts), parsePrefix(node.network), node.device, node.underlayAddress),
    ...carried(ipv6Side(facts), parseIpv6Prefix(node.ipv6Network ?? node.network), device, underlayAddress),
  ]
}

/** The families that tunnel packets themselves are of; IPv4, flannel's usual one, while no daemon has said. */
export function tunnelFamilies(facts: Facts): FamilySide[] {
  const node = facts.view.status?.node ?? null
  if (node === null) return [ipv4Side(facts)]
  const addresses = [node.underlayAddress, ...(node.ipv6Device ? [node.ipv6Device.underlayAddress] : [])]
  return addresses.map((address) => (address.includes(':') ? ipv6Side(facts) : ipv4Side(facts)))
}

/** What both families have said alike, as of a chain that both pass, once. */
export function saidOnce<T extends { readonly message: string }>(remarks: readonly T[]): T[] {
  return remarks.filter((one, index) => remarks.findIndex(({ message }) => message === one.message) === index)
}
