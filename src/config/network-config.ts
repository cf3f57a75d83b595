// The network config (`net-conf.json`, or the store's `config` key): flannel's JSON by flannel's rules. Decoding,
// defaults and the checks of flannel's etcd mode; subnet-range.ts derives fields, tunnel-backend.ts reads `Backend`.
import { foreignWords } from '../foreign-words.ts'
import { asConfigError, invalid } from './config-error.ts'
import { type JsonNode, parseJson } from './json-document.ts'
import { JsonFields } from './json-fields.ts'
import { type Ipv6SubnetRange, ipv4Range, ipv6Range, type SubnetRange } from './subnet-range.ts'

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

export interface NetworkConfig {
  /** `null` with `EnableIPv4` false: there is an IPv6 half then. */
  readonly ipv4: SubnetRange | null
  /** `null` without `EnableIPv6`. */
  readonly ipv6: Ipv6SubnetRange | null
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
  return asConfigError(() => readNetworkConfig(text, parseJson(text)))
}

/** The same of a document that was parsed before. @throws JsonProblem too */
export function readNetworkConfig(text: string, document: JsonNode): NetworkConfig {
  const fields = new JsonFields(text, document, 'the network config')
  const enableIpv6 = fields.boolean('EnableIPv6', false)
  const enableIpv4 = fields.boolean('EnableIPv4', true)
  if (!enableIpv4 && !enableIpv6) refuseNoFamily(fields)
  const given = readIpv4Range(fields)
  const ipv4 = enableIpv4 ? ipv4Range(given) : null
  const ipv6 = readIpv6Range(fields)
  const backend = asConfigError(() => readBackend(text, fields.node('Backend')), 'Backend')
  const enableNftables = fields.boolean('EnableNFTables', false)
  return { ipv4, ipv6: enableIpv6 ? ipv6Range(ipv6) : null, enableNftables, ...backend }
}

/** Decoded whether it is used or not, as Go does: a mistake in it is a mistake. */
function readIpv4Range(fields: JsonFields) {
  return {
    network: fields.ipv4Prefix('Network'),
    length: fields.integer('SubnetLen', 0, { unsigned: true }),
    min: fields.ipv4('SubnetMin') ?? 0,
    max: fields.ipv4('SubnetMax') ?? 0,
  }
}

/** The same for IPv6. */
function readIpv6Range(fields: JsonFields) {
  return {
    network: fields.ipv6Prefix('IPv6Network'),
    length: fields.integer('IPv6SubnetLen', 0, { unsigned: true }),
    min: fields.ipv6('IPv6SubnetMin') ?? 0n,
    max: fields.ipv6('IPv6SubnetMax') ?? 0n,
  }
}

/** Which of both was meant is told by the networks that are there. */
function refuseNoFamily(fields: JsonFields): never {
  const [hasNetwork, hasIpv6Network] = ['Network', 'IPv6Network'].map((name) => fields.node(name) !== undefined)
  if (hasNetwork && !hasIpv6Network) {
    const remedy = 'leave EnableIPv4 out, or set EnableIPv6 to true and add an IPv6Network'
    throw invalid('EnableIPv4', 'is false and EnableIPv6 is not true: pods would have no addresses', remedy)
  }
  const network = hasIpv6Network ? '' : ' and add an IPv6Network'
  const remedy = `set EnableIPv6 to true${network}, or leave EnableIPv4 out${hasNetwork ? '' : ' and add a Network'}`
  throw invalid('EnableIPv6', 'must be true where EnableIPv4 is false', remedy)
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
    throw given === ''
      ? invalid('Backend', 'has no Type', remedy)
      : invalid('Backend.Type', `"${foreignWords(given)}" is unknown`, remedy)
  }
  return { backendType, backend, notices: [] } as const
}
