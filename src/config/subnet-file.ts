// subnet.env: how the CNI plugin and container engines learn this node's subnet and MTU. Written byte for byte as
// flannel writes it, read back leniently, and removed as soon as it says something that is no longer true.
import { readFileSync, rmSync } from 'node:fs'
import { formatIpv4, formatPrefix, type Ipv4Prefix, parsePrefix, samePrefix } from '../../dataplane/index.ts'
import { writeFileAtomically } from '../atomic-file.ts'
import { FlanneletteError } from '../errors.ts'

export const DEFAULT_SUBNET_FILE = '/run/flannel/subnet.env'

export interface SubnetFile {
  readonly network: Ipv4Prefix
  readonly subnet: Ipv4Prefix
  readonly mtuBytes: number
  readonly ipMasq: boolean
}

/** The file's text. `FLANNEL_SUBNET` is the subnet's first host address: the bridge's own. */
export function formatSubnetFile(file: SubnetFile): string {
  return [
    `FLANNEL_NETWORK=${formatPrefix(file.network)}`,
    `FLANNEL_SUBNET=${formatIpv4(file.subnet.address + 1)}/${file.subnet.length}`,
    `FLANNEL_MTU=${file.mtuBytes}`,
    `FLANNEL_IPMASQ=${file.ipMasq}`,
    '',
  ].join('\n')
}

/**
 * Writes the file whole and durably, mode 0644 regardless of the umask; its directory is made when missing.
 * @throws FlanneletteError `usage` when that is impossible
 */
export function writeSubnetFile(path: string, file: SubnetFile): void {
  try {
    writeFileAtomically(path, formatSubnetFile(file), { mode: 0o644, durable: true })
  } catch (cause) {
    throw new FlanneletteError('usage', `${path} cannot be written: ${(cause as Error).message}`, {
      remedy: 'choose another with --subnet-file',
      cause,
    })
  }
}

/** What a subnet file remembers; `null` for what it does not say, or not clearly. */
export interface RememberedSubnet {
  readonly network: Ipv4Prefix | null
  readonly subnet: Ipv4Prefix | null
}

/** Reads a file back; `null` when there is none. */
export function readSubnetFile(path: string): RememberedSubnet | null {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch {
    return null
  }
  const values = parseDotenv(text)
  return { network: onlyPrefix(values.get('FLANNEL_NETWORK')), subnet: onlyPrefix(values.get('FLANNEL_SUBNET')) }
}

/**
 * Removes the file when it contradicts what is known; a wrong file gives pods addresses of another node. `null` stands
 * for "not known yet" and contradicts nothing. Returns whether a file was removed.
 */
export function removeStaleSubnetFile(path: string, known: RememberedSubnet): boolean {
  const remembered = readSubnetFile(path)
  if (remembered === null) return false
  if (agrees(remembered.network, known.network) && agrees(remembered.subnet, known.subnet)) return false
  removeSubnetFile(path)
  return true
}

/** Removes the file; not an error when there is none. */
export function removeSubnetFile(path: string): void {
  rmSync(path, { force: true })
}

function agrees(remembered: Ipv4Prefix | null, known: Ipv4Prefix | null): boolean {
  return known === null || (remembered !== null && samePrefix(remembered, known))
}

/** Values may be lists; entries that are no prefixes are skipped; anything but exactly one left over counts as unsaid. */
function onlyPrefix(value: string | undefined): Ipv4Prefix | null {
  const prefixes = (value ?? '').split(',').flatMap((entry) => parsePrefix(entry.trim()) ?? [])
  return prefixes.length === 1 ? prefixes[0]! : null
}

const ASSIGNMENT = /^\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*[=:]\s*(.*)$/

/** Dotenv: comments, quotes, `export`, `$VAR` and `${VAR}`. A line that is none of it is skipped. */
function parseDotenv(text: string): Map<string, string> {
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
