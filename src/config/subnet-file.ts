// subnet.env: how the CNI plugin and container engines learn this node's subnet and MTU. Written byte for byte as
// flannel writes it, read back leniently, and removed as soon as it says something that is no longer true.
import { readFileSync, rmSync, statSync } from 'node:fs'
import {
  formatAddress,
  formatPrefix,
  type Ipv4Prefix,
  type Ipv6Prefix,
  type Prefix,
  parseIpv6Prefix,
  parsePrefix,
  samePrefix,
} from '../../dataplane/index.ts'
import { holdsAlready, writeFileAtomically } from '../atomic-file.ts'
import { FlanneletteError } from '../errors.ts'

export const DEFAULT_SUBNET_FILE = '/run/flannel/subnet.env'

export interface SubnetFile {
  /** Both `null` where IPv4 is off. */
  readonly network: Ipv4Prefix | null
  readonly subnet: Ipv4Prefix | null
  /** The IPv6 half, `null` without one. */
  readonly ipv6: { readonly network: Ipv6Prefix; readonly subnet: Ipv6Prefix } | null
  readonly mtuBytes: number
  readonly ipMasq: boolean
}

/** The file's text. `FLANNEL_SUBNET` and `FLANNEL_IPV6_SUBNET` are first host addresses: the bridge's own. */
export function formatSubnetFile(file: SubnetFile): string {
  const { network, subnet, ipv6 } = file
  const ipv4Lines =
    network === null || subnet === null
      ? []
      : [
          `FLANNEL_NETWORK=${formatPrefix(network)}`,
          `FLANNEL_SUBNET=${formatAddress(subnet.address + 1)}/${subnet.length}`,
        ]
  const ipv6Lines =
    ipv6 === null
      ? []
      : [
          `FLANNEL_IPV6_NETWORK=${formatPrefix(ipv6.network)}`,
          `FLANNEL_IPV6_SUBNET=${formatAddress(ipv6.subnet.address + 1n)}/${ipv6.subnet.length}`,
        ]
  return [...ipv4Lines, ...ipv6Lines, `FLANNEL_MTU=${file.mtuBytes}`, `FLANNEL_IPMASQ=${file.ipMasq}`, ''].join('\n')
}

/**
 * Writes the file whole and durably, mode 0644 regardless of the umask, or the mode of the file that is there; its
 * directory is made when missing. One that says the same already is left as it is.
 * @throws FlanneletteError `usage` when that is impossible
 */
export function writeSubnetFile(path: string, file: SubnetFile): void {
  try {
    const text = formatSubnetFile(file)
    if (holdsAlready(path, text)) return
    const mode = (statSync(path, { throwIfNoEntry: false })?.mode ?? 0o644) & 0o777
    writeFileAtomically(path, text, { mode, durable: true })
  } catch (cause) {
    throw unwritable(path, '--subnet-file', (cause as Error).message, cause)
  }
}

/** The refusal of a file that some flag names. */
export function unwritable(path: string, flag: string, why: string, cause?: unknown): FlanneletteError {
  return new FlanneletteError('usage', `${path} cannot be written: ${why}`, {
    remedy: `choose another with ${flag}`,
    cause,
  })
}

/** What a subnet file remembers; `null` for what it does not say, or not clearly. */
export interface RememberedSubnet {
  readonly network: Ipv4Prefix | null
  readonly subnet: Ipv4Prefix | null
  readonly ipv6Network: Ipv6Prefix | null
  readonly ipv6Subnet: Ipv6Prefix | null
}

/** What is known of a node: what is left out is not known yet, and `null` is known not to be. */
export type KnownSubnets = Partial<RememberedSubnet>

/** Reads a file back; `null` when there is none. */
export function readSubnetFile(path: string): RememberedSubnet | null {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch {
    return null
  }
  return parseSubnetFile(text)
}

/** What the text of a subnet file says. */
export function parseSubnetFile(text: string): RememberedSubnet {
  const values = parseDotenv(text)
  return {
    network: onlyPrefix(values.get('FLANNEL_NETWORK'), parsePrefix),
    subnet: onlyPrefix(values.get('FLANNEL_SUBNET'), parsePrefix),
    ipv6Network: onlyPrefix(values.get('FLANNEL_IPV6_NETWORK'), parseIpv6Prefix),
    ipv6Subnet: onlyPrefix(values.get('FLANNEL_IPV6_SUBNET'), parseIpv6Prefix),
  }
}

/**
 * Removes the file when it contradicts what is known; a wrong file gives pods addresses of another node. Returns
 * whether a file was removed.
 */
export function removeStaleSubnetFile(path: string, known: KnownSubnets): boolean {
  const remembered = readSubnetFile(path)
  if (remembered === null) return false
  const names = ['network', 'subnet', 'ipv6Network', 'ipv6Subnet'] as const
  if (names.every((name) => agrees(remembered[name], known[name]))) return false
  removeSubnetFile(path)
  return true
}

/** Removes the file; not an error when there is none. */
export function removeSubnetFile(path: string): void {
  rmSync(path, { force: true })
}

function agrees(remembered: Prefix | null, known: Prefix | null | undefined): boolean {
  if (known === undefined) return true
  if (known === null || remembered === null) return known === remembered
  return samePrefix(remembered, known)
}

/**
 * Values may be lists; entries that are no prefixes are skipped; anything but exactly one left over counts as unsaid.
 */
function onlyPrefix<P extends Prefix>(value: string | undefined, parse: (text: string) => P | null): P | null {
  const prefixes = (value ?? '').split(',').flatMap((entry) => parse(entry.trim()) ?? [])
  return prefixes.length === 1 ? prefixes[0]! : null
}

const ASSIGNMENT = /^\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*[=:]\s*(.*)$/

/** Dotenv: comments, quotes, `export`, `$VAR` and `${VAR}`. A line that is none of it is skipped. */
export function parseDotenv(text: string): Map<string, string> {
  const values = new Map<string, string>()
  for (const line of text.split(/\r?\n/)) {
    const [, name, raw] = ASSIGNMENT.exec(line) ?? []
    if (name === undefined || raw === undefined) continue
    const [, single, double] = /^(?:'([^']*)'|"([^"]*)")/.exec(raw) ?? []
    const unquoted = single ?? double ?? raw.replace(/(^|\s)#.*$/, '').trim()
    const expand = (_: string, braced?: string, bare?: string) => values.get(braced ?? bare ?? '') ?? ''
    values.set(name, single ?? unquoted.replace(/\$(?:\{(\w+)\}|(\w+))/g, expand))
  }
  return values
}
