// Reading typed fields out of a JSON object by Go's rules. Each reader names the field and its place when it refuses.
import {
  type Ipv4Prefix,
  type Ipv6Prefix,
  parseIpv4,
  parseIpv6,
  parseIpv6Prefix,
  parsePrefix,
} from '../../dataplane/index.ts'
import { type JsonNode, JsonProblem, memberOf } from './json-document.ts'

/** The fields of one object. Absent fields give the default; `null` too, except where Go's decoder refuses it. */
export class JsonFields {
  readonly #source: string
  readonly #object: JsonNode

  /** @throws JsonProblem when the node is neither an object nor `null` (Go leaves a struct alone at `null`) */
  constructor(source: string, object: JsonNode, what: string) {
    if (object.kind !== 'object' && object.kind !== 'null') {
      throw new JsonProblem(`${what} must be an object`, source, object.at)
    }
    this.#source = source
    this.#object = object
  }

  node(name: string): JsonNode | undefined {
    return memberOf(this.#object, name)
  }

  boolean(name: string, absent: boolean): boolean {
    const node = this.#present(name)
    if (node === undefined) return absent
    if (node.kind !== 'boolean') throw this.refusal(name, 'must be true or false')
    return node.value
  }

  string(name: string, absent: string): string {
    const node = this.#present(name)
    if (node === undefined) return absent
    if (node.kind !== 'string') throw this.refusal(name, 'must be a string')
    return node.text
  }

  /** A whole number without fraction or exponent, as Go's strconv reads it. */
  integer(name: string, absent: number, options: { unsigned: boolean } = { unsigned: false }): number {
    const node = this.#present(name)
    if (node === undefined) return absent
    const value = node.kind === 'number' && /^-?\d+$/.test(node.text) ? Number(node.text) : Number.NaN
    if (!Number.isSafeInteger(value)) throw this.refusal(name, 'must be a whole number, without quotes')
    if (options.unsigned && (value < 0 || Object.is(value, -0))) throw this.refusal(name, 'must not be negative')
    return value
  }

  /** Unsigned 32-bit address, `null` when absent. A JSON `null` is refused. */
  ipv4(name: string): number | null {
    const node = this.node(name)
    if (node === undefined) return null
    const address = node.kind === 'string' ? parseIpv4(node.text) : null
    if (address === null) throw this.refusal(name, 'must be an IPv4 address such as "10.244.0.0"')
    return address
  }

  /** A prefix with its host bits cleared, `null` when absent. A JSON `null` is refused. */
  ipv4Prefix(name: string): Ipv4Prefix | null {
    const node = this.node(name)
    if (node === undefined) return null
    const prefix = node.kind === 'string' ? parsePrefix(node.text) : null
    if (prefix === null) throw this.refusal(name, 'must be an IPv4 prefix such as "10.244.0.0/16"')
    return prefix
  }

  /** Unsigned 128-bit address, `null` when absent or `null`. An IPv4 address is taken as the mapped one, as Go does. */
  ipv6(name: string): bigint | null {
    const node = this.#present(name)
    if (node === undefined) return null
    const address = node.kind === 'string' ? (parseIpv6(node.text) ?? mapped(node.text)) : null
    if (address === null) throw this.refusal(name, 'must be an IPv6 address such as "fd00:10:244::"')
    return address
  }

  /** A prefix with its host bits cleared, `null` when absent. A JSON `null` is refused. */
  ipv6Prefix(name: string): Ipv6Prefix | null {
    const node = this.node(name)
    if (node === undefined) return null
    const prefix = node.kind === 'string' ? parseIpv6Prefix(node.text) : null
    if (prefix === null) throw this.refusal(name, 'must be an IPv6 prefix such as "fd00:10:244::/48"')
    return prefix
  }

  refusal(name: string, why: string): JsonProblem {
    return new JsonProblem(`${name} ${why}`, this.#source, (this.node(name) ?? this.#object).at, name)
  }

  #present(name: string): JsonNode | undefined {
    const node = this.node(name)
    return node?.kind === 'null' ? undefined : node
  }
}

/** `::ffff:192.0.2.1` of `192.0.2.1`. */
function mapped(text: string): bigint | null {
  const address = parseIpv4(text)
  return address === null ? null : (0xffffn << 32n) | BigInt(address)
}
