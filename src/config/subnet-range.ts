// Which subnets a network config gives out, by flannel's rules for both families: defaults, derived fields, and checks
// in flannel's order. Inside, the addresses of either family are bigints, so that there is one set of rules.
import {
  formatIpv4,
  formatIpv6,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  NON_UNICAST_IPV6_PREFIXES,
  NON_UNICAST_PREFIXES,
  overlaps,
  type Prefix,
} from '../../dataplane/index.ts'
import { invalid } from './config-error.ts'

/** What subnets there are to choose from. Addresses are unsigned 32-bit numbers. */
export interface SubnetRange {
  readonly network: Ipv4Prefix
  /** Prefix length of a node's subnet, 2 to 30. */
  readonly subnetLength: number
  /** Address of the first subnet that may be given out. */
  readonly subnetMin: number
  /** Address of the last subnet that may be given out. */
  readonly subnetMax: number
}

/** The same for IPv6: addresses are unsigned 128-bit numbers, the length is 2 to 126. */
export interface Ipv6SubnetRange {
  readonly network: Ipv6Prefix
  readonly subnetLength: number
  readonly subnetMin: bigint
  readonly subnetMax: bigint
}

/** What a config says; 0 stands for an absent field, as in flannel. */
export interface GivenRange<Network extends Prefix> {
  readonly network: Network | null
  readonly length: number
  readonly min: Network['address']
  readonly max: Network['address']
}

/** What is particular to a family. */
interface Family {
  /** How the names of its fields begin: `IPv6SubnetLen`. */
  readonly prefix: string
  readonly bits: number
  /** Length of a subnet in a network that has room for four of them. */
  readonly usualLength: number
  readonly example: string
  readonly useless: readonly Prefix[]
  format(address: bigint): string
}

const IPV4: Family = {
  prefix: '',
  bits: 32,
  usualLength: 24,
  example: '10.244.0.0/16',
  useless: NON_UNICAST_PREFIXES,
  format: (address) => formatIpv4(Number(address)),
}

const IPV6: Family = {
  prefix: 'IPv6',
  bits: 128,
  usualLength: 64,
  example: 'fd00:10:244::/48',
  useless: NON_UNICAST_IPV6_PREFIXES,
  format: formatIpv6,
}

/** @throws FlanneletteError `config-invalid` naming the field; the first failure in flannel's order wins */
export function ipv4Range({ network, length, min, max }: GivenRange<Ipv4Prefix>): SubnetRange {
  const present = requireNetwork(IPV4, network)
  const range = derive(IPV4, present, length, BigInt(min), BigInt(max))
  const [subnetMin, subnetMax] = [Number(range.min), Number(range.max)]
  return { network: present, subnetLength: range.length, subnetMin, subnetMax }
}

/** @throws FlanneletteError `config-invalid` naming the field; the first failure in flannel's order wins */
export function ipv6Range({ network, length, min, max }: GivenRange<Ipv6Prefix>): Ipv6SubnetRange {
  const present = requireNetwork(IPV6, network)
  const range = derive(IPV6, present, length, min, max)
  return { network: present, subnetLength: range.length, subnetMin: range.min, subnetMax: range.max }
}

function requireNetwork<Network extends Prefix>(family: Family, network: Network | null): Network {
  const name = `${family.prefix}Network`
  if (network === null || (network.length === 0 && BigInt(network.address) === 0n)) {
    throw invalid(name, 'is missing', `add for example "${name}": "${family.example}"`)
  }
  const special = family.useless.find((prefix) => overlaps(prefix, network))
  if (special === undefined) return network
  throw invalid(
    name,
    `${formatPrefix(network)} overlaps ${formatPrefix(special)}, which no pod can have an address of`,
    `take a private network, for example ${family.example}`,
  )
}

function derive(family: Family, network: Prefix, givenLength: number, givenMin: bigint, givenMax: bigint) {
  const { format } = family
  const name = (field: string) => `${family.prefix}${field}`
  const sizeOfLength = (bits: number) => 1n << BigInt(family.bits - bits)
  const first = BigInt(network.address)
  const end = first + sizeOfLength(network.length)
  const length = checkedLength(family, network, givenLength)
  const size = sizeOfLength(length)
  for (const [field, value] of [
    [name('SubnetMin'), givenMin],
    [name('SubnetMax'), givenMax],
  ] as const) {
    if (value !== 0n && (value < first || value >= end)) {
      throw invalid(field, `${format(value)} lies outside ${name('Network')} ${formatPrefix(network)}`)
    }
  }
  // The first subnet is left out on purpose: its address is the network's own.
  const min = givenMin === 0n ? first + size : givenMin
  const max = givenMax === 0n ? end - size : givenMax
  for (const [field, value] of [
    [name('SubnetMin'), min],
    [name('SubnetMax'), max],
  ] as const) {
    if (value % size !== 0n) throw invalid(field, `${format(value)} is not the first address of a /${length}`)
  }
  if (min > max) throw invalid(name('SubnetMin'), `${format(min)} lies behind ${name('SubnetMax')} ${format(max)}`)
  return { length, min, max }
}

/** A subnet leaves at least two bits for pods, and a network at least two for subnets. */
function checkedLength({ prefix, bits, usualLength }: Family, network: Prefix, given: number): number {
  const text = formatPrefix(network)
  if (given > bits - 2)
    throw invalid(`${prefix}SubnetLen`, `${given} is larger than ${bits - 2}: a subnet needs room for pods`)
  if (given !== 0) {
    if (given >= network.length + 2) return given
    throw invalid(`${prefix}SubnetLen`, `${given} leaves fewer than four subnets in ${prefix}Network ${text}`)
  }
  if (network.length > bits - 4) {
    throw invalid(`${prefix}Network`, `${text} is too small for four subnets`, `take a /${bits - 4} or larger`)
  }
  return network.length <= usualLength - 2 ? usualLength : network.length + 2
}
