// Looks at a network config for a person: not the first mistake but all of them, each with its place; keys that nobody
// reads; and what the config comes to. The rules are those of the start (network-config.ts, tunnel-backend.ts): after
// each mistake they are asked again with that field left out.
import { formatIpv4, formatIpv6, formatPrefix } from '../../dataplane/index.ts'
import { foreignWords } from '../foreign-words.ts'
import { asConfigError, ConfigError } from './config-error.ts'
import { type JsonMember, type JsonNode, memberOf, parseJson, positionOf, type TextPosition } from './json-document.ts'
import { JsonFields } from './json-fields.ts'
import { overheadBytes } from './mtu.ts'
import { nearest } from './nearest-word.ts'
import { KNOWN_BACKENDS, type NetworkConfig, readNetworkConfig } from './network-config.ts'
import type { Ipv6SubnetRange, SubnetRange } from './subnet-range.ts'
import { type TunnelBackend, tunnelBackend } from './tunnel-backend.ts'

export interface ConfigFinding extends TextPosition {
  readonly severity: 'error' | 'warning'
  /** `SubnetLen`, `Backend.VNI`; empty when no field is to blame. */
  readonly field: string
  readonly message: string
  readonly remedy: string
}

export interface ConfigReport {
  /** In the order of the text. */
  readonly findings: readonly ConfigFinding[]
  /** What the config comes to, by name; `null` with an error. */
  readonly derived: Readonly<Record<string, string>> | null
}

type Kind = 'boolean' | 'string' | 'integer' | 'unsigned' | 'ipv4' | 'ipv4Prefix' | 'ipv6' | 'ipv6Prefix' | 'object'

const KEYS: Readonly<Record<string, Kind>> = {
  EnableIPv4: 'boolean',
  EnableIPv6: 'boolean',
  EnableNFTables: 'boolean',
  Network: 'ipv4Prefix',
  SubnetLen: 'unsigned',
  SubnetMin: 'ipv4',
  SubnetMax: 'ipv4',
  IPv6Network: 'ipv6Prefix',
  IPv6SubnetLen: 'unsigned',
  IPv6SubnetMin: 'ipv6',
  IPv6SubnetMax: 'ipv6',
  Backend: 'object',
}

const BACKEND_KEYS: Readonly<Record<string, Readonly<Record<string, Kind>>>> = {
  alloc: { Type: 'string' },
  extension: {
    Type: 'string',
    PreStartupCommand: 'string',
    PostStartupCommand: 'string',
    SubnetAddCommand: 'string',
    SubnetRemoveCommand: 'string',
    Shell: 'boolean',
  },
  'host-gw': { Type: 'string' },
  udp: { Type: 'string', Port: 'integer' },
  vxlan: {
    Type: 'string',
    VNI: 'integer',
    Port: 'integer',
    MTU: 'integer',
    GBP: 'boolean',
    Learning: 'boolean',
    DirectRouting: 'boolean',
    IPv6OverIPv4: 'boolean',
  },
}

/** What a rule needs of the fields beside it: they are left out with a field that is wrong. */
const NEEDED_BY: Readonly<Record<string, readonly string[]>> = {
  Network: ['SubnetLen', 'SubnetMin', 'SubnetMax'],
  SubnetLen: ['SubnetMin', 'SubnetMax'],
  IPv6Network: ['IPv6SubnetLen', 'IPv6SubnetMin', 'IPv6SubnetMax'],
  IPv6SubnetLen: ['IPv6SubnetMin', 'IPv6SubnetMax'],
}

interface StandIn {
  readonly gone: readonly string[]
  /** What is there in their place, as JSON. */
  readonly instead: string
}

/** What stands for a field that must be there, once its own mistake is known. */
const STAND_INS: Readonly<Record<string, string>> = {
  Network: '{"Network":"10.0.0.0/8"}',
  IPv6Network: '{"IPv6Network":"fd00::/8"}',
  Backend: '{"Backend":{"Type":"vxlan"}}',
  'Backend.Type': '{"Type":"vxlan"}',
}

/** What a document goes on with where a field of it is wrong. */
function standInFor(document: JsonNode, field: string): StandIn {
  return (
    switchStandIn(document, field) ?? {
      gone: [field, ...(NEEDED_BY[field] ?? [])],
      instead: STAND_INS[field] ?? '{}',
    }
  )
}

/**
 * Which families were meant where one of the switches is wrong is told by the rest: what only follows from the wrong one,
 * such as that a network of the other family is missing, is no mistake. `null` for any other field.
 */
function switchStandIn(document: JsonNode, field: string): StandIn | null {
  const value = (name: string) => {
    const node = memberOf(document, name)
    return node?.kind === 'boolean' ? node.value : undefined
  }
  const has = (name: string) => memberOf(document, name) !== undefined
  if (field === 'EnableIPv4') {
    return { gone: [field], instead: has('IPv6Network') && !has('Network') ? '{"EnableIPv4":false}' : '{}' }
  }
  if (field !== 'EnableIPv6') return null
  const isAlone = value('EnableIPv4') === false
  // It is the backend that does not go with it.
  if (value('EnableIPv6') === true && isAlone) return { gone: ['Backend'], instead: STAND_INS.Backend! }
  const isMeant = value('EnableIPv6') !== true && (isAlone || has('IPv6Network'))
  return { gone: [field], instead: isMeant ? '{"EnableIPv6":true}' : '{}' }
}

/** More mistakes than there are fields cannot be found. */
const MOST_ROUNDS = 40
/** Keys of an object that are complained of one by one; how many more there are is said once. */
const MOST_ODD_KEYS = 20

/** Everything that is wrong with the text of a network config, and what it comes to; whatever the text, nothing is thrown. */
export function checkNetworkConfig(source: string): ConfigReport {
  let document: JsonNode
  try {
    document = asConfigError(() => parseJson(source))
    asConfigError(() => new JsonFields(source, document, 'the network config'))
  } catch (error) {
    return { findings: [errorFinding(source, null, error as ConfigError)], derived: null }
  }
  return new Check(source, document).run()
}

class Check {
  readonly #source: string
  readonly #original: JsonNode
  readonly #findings: ConfigFinding[] = []
  /** The document without what was found to be wrong. */
  #document: JsonNode

  constructor(source: string, document: JsonNode) {
    this.#source = source
    this.#original = document
    this.#document = document
  }

  run(): ConfigReport {
    this.#lookAtKeys(this.#original, KEYS, '')
    const backend = memberOf(this.#original, 'Backend')
    const kinds = backend?.kind === 'object' ? keysOf(backend) : null
    if (backend !== undefined && kinds !== null) this.#lookAtKeys(backend, kinds, 'Backend.')
    for (let round = 0; round < MOST_ROUNDS; round++) {
      const done = this.#judge()
      if (done === null) continue
      const isGood = this.#findings.every(({ severity }) => severity !== 'error')
      for (const notice of isGood ? done.notices : []) this.#warn(fieldIn(notice), notice)
      return { findings: this.#inOrder(), derived: isGood ? derivedOf(done) : null }
    }
    return { findings: this.#inOrder(), derived: null }
  }

  /** Types of known fields, and keys that nobody reads or that stand there twice. */
  #lookAtKeys(object: JsonNode, kinds: Readonly<Record<string, Kind>>, within: string): void {
    if (object.kind !== 'object') return
    const fields = new JsonFields(this.#source, object, within)
    const names = new Map(Object.keys(kinds).map((name) => [name.toLowerCase(), name]))
    const lastOf = new Map(object.members.map(({ key }, index) => [key.toLowerCase(), index]))
    let odd = 0
    for (const [index, member] of object.members.entries()) {
      const name = names.get(member.key.toLowerCase())
      const isRepeated = lastOf.get(member.key.toLowerCase()) !== index
      if (name !== undefined && !isRepeated) {
        this.#attempt(() => readAs(fields, name, kinds[name]!), within.replace('.', ''))
        continue
      }
      odd += 1
      if (odd > MOST_ODD_KEYS) continue
      const field = `${within}${name ?? member.key}`
      if (name === undefined) this.#warn(field, unknownKey(field, member.key, Object.keys(kinds)), member.at)
      else this.#warn(field, `${field} is given again further on, and that one counts`, member.at)
    }
    if (odd > MOST_ODD_KEYS)
      this.#warn(within.replace('.', ''), `${odd - MOST_ODD_KEYS} more keys that nobody reads`, object.at)
  }

  /** What all fields that are left come to; `null` when one more was found to be wrong. */
  #judge(): { config: NetworkConfig; backend: TunnelBackend; notices: readonly string[] } | null {
    return this.#attempt(() => {
      const config = readNetworkConfig(this.#source, this.#document)
      const backend = tunnelBackend(config)
      return { config, backend, notices: [...config.notices, ...backend.notices] }
    }, '')
  }

  #attempt<T>(work: () => T, within: string): T | null {
    try {
      return asConfigError(work, within)
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      this.#findings.push(errorFinding(this.#source, this.#original, error))
      this.#document = without(this.#document, error.field)
      return null
    }
  }

  #warn(field: string, message: string, at = nodeOf(this.#original, field)?.at ?? 0): void {
    this.#findings.push({ severity: 'warning', field, ...positionOf(this.#source, at), message, remedy: '' })
  }

  #inOrder(): ConfigFinding[] {
    return this.#findings.sort((a, b) => a.line - b.line || a.column - b.column)
  }
}

function isCalled({ key }: JsonMember, name: string): boolean {
  return key.toLowerCase() === name.toLowerCase()
}

/** `null` for a backend that this version does not run, and whose keys it does not know. */
function keysOf(backend: JsonNode): Readonly<Record<string, Kind>> | null {
  const type = memberOf(backend, 'Type')
  const name = type?.kind === 'string' ? type.text.toLowerCase() : ''
  const isOther = KNOWN_BACKENDS.some((known) => known === name) && BACKEND_KEYS[name] === undefined
  return isOther ? null : (BACKEND_KEYS[name] ?? BACKEND_KEYS.vxlan!)
}

function readAs(fields: JsonFields, name: string, kind: Kind): unknown {
  if (kind === 'boolean') return fields.boolean(name, false)
  if (kind === 'string') return fields.string(name, '')
  if (kind === 'integer' || kind === 'unsigned') return fields.integer(name, 0, { unsigned: kind === 'unsigned' })
  return kind === 'object' ? null : fields[kind](name)
}

function unknownKey(field: string, key: string, known: readonly string[]): string {
  const close = nearest(key, known)
  return `${foreignWords(field)} is a key that nobody reads${close === null ? '' : `: ${close} is meant?`}`
}

function errorFinding(source: string, document: JsonNode | null, error: ConfigError): ConfigFinding {
  const { field, sentence, remedy } = error
  const at = document === null ? undefined : nodeOf(document, field)?.at
  const position = error.position ?? positionOf(source, at ?? document?.at ?? 0)
  const name = field.split('.').at(-1)!
  const message = field !== name && sentence.startsWith(name) ? field + sentence.slice(name.length) : sentence
  return { severity: 'error', field, ...position, message, remedy: error.position === null ? remedy : '' }
}

/** The value of `SubnetLen` or `Backend.VNI`; the object around it where it is missing. */
function nodeOf(document: JsonNode, field: string): JsonNode | undefined {
  const [outer = '', inner] = field.split('.')
  const node = memberOf(document, outer)
  return inner === undefined || node === undefined ? node : (memberOf(node, inner) ?? node)
}

function without(document: JsonNode, field: string): JsonNode {
  const [outer = '', inner] = field.split('.')
  if (document.kind !== 'object') return document
  const { gone, instead } = standInFor(document, field)
  const standIn = membersOf(parseJson(instead))
  if (inner === undefined) {
    const left = document.members.filter((member) => !gone.some((name) => isCalled(member, name)))
    return { ...document, members: [...left, ...standIn] }
  }
  const members = document.members.map((member) => {
    if (!isCalled(member, outer) || member.value.kind !== 'object') return member
    const left = member.value.members.filter((one) => !isCalled(one, inner))
    return { ...member, value: { ...member.value, members: [...left, ...standIn] } }
  })
  return { ...document, members }
}

function membersOf(node: JsonNode): readonly JsonMember[] {
  return node.kind === 'object' ? node.members : []
}

/** The field that a notice begins with. */
function fieldIn(notice: string): string {
  return /^Backend\.\w+/.exec(notice)?.[0] ?? ''
}

function derivedOf({ config, backend }: { config: NetworkConfig; backend: TunnelBackend }): Record<string, string> {
  const { ipv4, ipv6 } = config
  const overIpv6 = backend.underlay === 'ipv6'
  return {
    ...(ipv4 === null
      ? {}
      : {
          Network: formatPrefix(ipv4.network),
          SubnetLen: String(ipv4.subnetLength),
          SubnetMin: formatIpv4(ipv4.subnetMin),
          SubnetMax: formatIpv4(ipv4.subnetMax),
        }),
    ...(ipv6 === null
      ? {}
      : {
          IPv6Network: formatPrefix(ipv6.network),
          IPv6SubnetLen: String(ipv6.subnetLength),
          IPv6SubnetMin: formatIpv6(ipv6.subnetMin),
          IPv6SubnetMax: formatIpv6(ipv6.subnetMax),
        }),
    capacity: capacityOf(config),
    rules: config.enableNftables ? 'nftables' : 'iptables',
    backend: config.backendType,
    ...(backend.encapsulation === 'vxlan' ? { VNI: String(backend.vni) } : {}),
    ...(backend.port === 0 ? {} : { port: `UDP ${backend.port}` }),
    device: backend.deviceName === '' ? 'none' : backend.deviceName,
    MTU: mtuOf(backend, overIpv6),
    ...(backend.ipv6DeviceName === null ? {} : { IPv6: `${backend.ipv6DeviceName}, MTU ${mtuOf(backend, true)}` }),
  }
}

function mtuOf({ encapsulation, mtuBytes }: TunnelBackend, overIpv6: boolean): string {
  if (encapsulation === 'none') return "the interface's"
  const overhead = overheadBytes(encapsulation, overIpv6)
  return mtuBytes === null ? `the interface's − ${overhead}` : `${mtuBytes} − ${overhead} = ${mtuBytes - overhead}`
}

/** A bridge has an address in each subnet; the first and the last one are nobody's. */
function capacityOf({ ipv4, ipv6 }: NetworkConfig): string {
  const subnets = [ipv4 === null ? [] : subnetsIn(ipv4, 32), ipv6 === null ? [] : subnetsIn(ipv6, 128)].flat()
  const [least = 0n] = subnets.sort((a, b) => (a < b ? -1 : 1))
  const nodes = `${least} ${least === 1n ? 'node' : 'nodes'}`
  return ipv4 === null ? nodes : `${nodes}, ${2 ** (32 - ipv4.subnetLength) - 3} pods each`
}

function subnetsIn({ subnetMin, subnetMax, subnetLength }: SubnetRange | Ipv6SubnetRange, bits: number): bigint {
  return (BigInt(subnetMax) - BigInt(subnetMin)) / (1n << BigInt(bits - subnetLength)) + 1n
}
