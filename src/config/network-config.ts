// The network config (`net-conf.json`, or the store's `config` key): flannel's JSON by flannel's rules. Decoding,
// defaults, derived fields and the checks of flannel's etcd mode; what an own backend needs is in vxlan-backend.ts.
import {
  containsAddress,
  formatIpv4,
  formatPrefix,
  type Ipv4Prefix,
  maskOf,
  NON_UNICAST_PREFIXES,
  overlaps,
  sizeOf,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { type JsonNode, JsonProblem, parseJson } from './json-document.ts'
import { JsonFields } from './json-fields.ts'

/** Every backend that flannel knows; spelling as in `Backend.Type`, which is matched whatever its case. */
export const KNOWN_BACKENDS = [
  'vxlan',
  'host-gw',
  'udp',
  'wireguard',
  'ipip',
  'ipsec',
  'extension',
  'alloc',
  'tencent-vpc',
] as const
export type BackendType = (typeof KNOWN_BACKENDS)[number]

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

export interface NetworkConfig extends SubnetRange {
  readonly enableIpv6: boolean
  readonly enableNftables: boolean
  readonly backendType: BackendType
  /** The raw `Backend` object for the backend's own decoder; `null` when absent. */
  readonly backend: JsonFields | null
  /** Defaults and oddities that a person should read once. */
  readonly notices: readonly string[]
}

/**
 * Decodes and checks a network config. @throws FlanneletteError `config-invalid` naming the field, with line and column
 * where the text itself is at fault
 */
export function parseNetworkConfig(text: string): NetworkConfig {
  return asConfigError(() => {
    const fields = new JsonFields(text, parseJson(text), 'the network config')
    const enableIpv6 = fields.boolean('EnableIPv6', false)
    requireIpv4(fields.boolean('EnableIPv4', true), enableIpv6)
    const network = fields.ipv4Prefix('Network')
    const subnetLength = fields.integer('SubnetLen', 0, { unsigned: true })
    const range = deriveRange(network, subnetLength, fields.ipv4('SubnetMin') ?? 0, fields.ipv4('SubnetMax') ?? 0)
    const backend = readBackend(text, fields.node('Backend'))
    return { ...range, enableIpv6, enableNftables: fields.boolean('EnableNFTables', false), ...backend }
  })
}

/** Runs a decoder; what it says of the JSON becomes an error for people. */
export function asConfigError<T>(decode: () => T): T {
  try {
    return decode()
  } catch (error) {
    if (error instanceof JsonProblem) throw invalid(error.message)
    throw error
  }
}

/** A `config-invalid` error about the network config. */
export function invalid(why: string, remedy = 'correct the network config and start again'): FlanneletteError {
  return new FlanneletteError('config-invalid', `network config: ${why}`, { remedy })
}

function requireIpv4(enableIpv4: boolean, enableIpv6: boolean): void {
  if (enableIpv6) {
    throw invalid('EnableIPv6 is true, but this version carries IPv4 only', 'set EnableIPv6 to false')
  }
  if (!enableIpv4) throw invalid('EnableIPv4 and EnableIPv6 are both false', 'leave EnableIPv4 out, or set it to true')
}

/** Flannel's checks in flannel's order, the first failure wins. 0 stands for an absent field, as in flannel. */
function deriveRange(network: Ipv4Prefix | null, givenLength: number, givenMin: number, givenMax: number): SubnetRange {
  if (network === null || (network.address === 0 && network.length === 0)) {
    throw invalid('Network is missing', 'add for example "Network": "10.244.0.0/16"')
  }
  const special = NON_UNICAST_PREFIXES.find((prefix) => overlaps(prefix, network))
  if (special !== undefined) {
    throw invalid(
      `Network ${formatPrefix(network)} overlaps ${formatPrefix(special)}, which no pod can have an address of`,
      'take a private network, for example 10.244.0.0/16',
    )
  }
  const subnetLength = checkedLength(network, givenLength)
  const size = sizeOf(subnetLength)
  for (const [name, value] of [
    ['SubnetMin', givenMin],
    ['SubnetMax', givenMax],
  ] as const) {
    if (value !== 0 && !containsAddress(network, value)) {
      throw invalid(`${name} ${formatIpv4(value)} lies outside Network ${formatPrefix(network)}`)
    }
  }
  // The first subnet is left out on purpose: its address is the network's own.
  const subnetMin = givenMin === 0 ? network.address + size : givenMin
  const subnetMax = givenMax === 0 ? network.address + sizeOf(network.length) - size : givenMax
  for (const [name, value] of [
    ['SubnetMin', subnetMin],
    ['SubnetMax', subnetMax],
  ] as const) {
    if ((value & maskOf(subnetLength)) >>> 0 !== value) {
      throw invalid(`${name} ${formatIpv4(value)} is not the first address of a /${subnetLength}`)
    }
  }
  if (subnetMin > subnetMax) {
    throw invalid(`SubnetMin ${formatIpv4(subnetMin)} lies behind SubnetMax ${formatIpv4(subnetMax)}`)
  }
  return { network, subnetLength, subnetMin, subnetMax }
}

function checkedLength(network: Ipv4Prefix, given: number): number {
  if (given > 30) throw invalid(`SubnetLen ${given} is larger than 30: a subnet needs room for pods`)
  if (given !== 0) {
    if (given < network.length + 2) {
      throw invalid(`SubnetLen ${given} leaves fewer than four subnets in Network ${formatPrefix(network)}`)
    }
    return given
  }
  if (network.length > 28) {
    throw invalid(`Network ${formatPrefix(network)} is too small for four subnets`, 'take a /28 or larger')
  }
  return network.length <= 22 ? 24 : network.length + 2
}

function readBackend(source: string, node: JsonNode | undefined) {
  if (node === undefined) {
    const notice = 'the network config has no Backend: taking "udp", flannel\'s default'
    return { backendType: 'udp', backend: null, notices: [notice] } as const
  }
  const backend = new JsonFields(source, node, 'Backend')
  const given = backend.string('Type', '')
  const backendType = KNOWN_BACKENDS.find((known) => known === given.toLowerCase())
  if (backendType === undefined) {
    const remedy = `known types: ${KNOWN_BACKENDS.join(', ')}`
    throw invalid(given === '' ? 'Backend has no Type' : `Backend.Type "${given}" is unknown`, remedy)
  }
  return { backendType, backend, notices: [] } as const
}
