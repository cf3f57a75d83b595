// What a node publishes of its subnet for other programs of the host: subnet.env and, where asked for, the options of a
// Docker daemon that are made from it. They change in one step: options of another subnet are never there beside it,
// and subnet.env, which others wait for, comes last.
import { readFileSync, rmSync } from 'node:fs'
import { holdsAlready, writeFileAtomically, writingProblem } from '../atomic-file.ts'
import { dockerOptions } from '../config/docker-options.ts'
import {
  formatSubnetFile,
  type KnownSubnets,
  removeStaleSubnetFile,
  removeSubnetFile,
  type SubnetFile,
  unwritable,
  writeSubnetFile,
} from '../config/subnet-file.ts'

export interface PublishedFiles {
  readonly subnetFile: string
  /** Absent: nobody wants Docker options. */
  readonly dockerOptsFile?: string
}

/**
 * Tries whether both can be written, before a start has the store and others believe in it; leaves all as it is.
 * @throws FlanneletteError `usage`, as publishSubnet would when it is too late
 */
export function tryPublishing({ subnetFile, dockerOptsFile }: PublishedFiles): void {
  const wanted = [
    [subnetFile, '--subnet-file'],
    [dockerOptsFile, '--docker-opts-file'],
  ] as const
  for (const [path, flag] of wanted) {
    const problem = path === undefined ? null : writingProblem(path)
    if (path !== undefined && problem !== null) throw unwritable(path, flag, problem)
  }
}

/** Writes both. @throws FlanneletteError `usage` when one cannot be written; there are no options then */
export function publishSubnet(files: PublishedFiles, subnet: SubnetFile): void {
  const { network, subnet: own, ipv6 } = subnet
  const known = { network, subnet: own, ipv6Network: ipv6?.network ?? null, ipv6Subnet: ipv6?.subnet ?? null }
  const { subnetFile, dockerOptsFile } = files
  removeStaleSubnetFile(subnetFile, known)
  if (dockerOptsFile !== undefined) writeOptions(dockerOptsFile, optionsFor(formatSubnetFile(subnet)))
  try {
    writeSubnetFile(subnetFile, subnet)
  } catch (error) {
    if (dockerOptsFile !== undefined) rmSync(dockerOptsFile, { force: true })
    throw error
  }
}

/** Removes both; not an error when they are not there. */
export function withdrawSubnet({ subnetFile, dockerOptsFile }: PublishedFiles): void {
  if (dockerOptsFile !== undefined) rmSync(dockerOptsFile, { force: true })
  removeSubnetFile(subnetFile)
}

/** Removes what contradicts what is known, and options that are not those of subnet.env. Returns what was removed. */
export function withdrawStale({ subnetFile, dockerOptsFile }: PublishedFiles, known: KnownSubnets): string[] {
  const removed = removeStaleSubnetFile(subnetFile, known) ? [subnetFile] : []
  if (dockerOptsFile === undefined) return removed
  if (textOf(dockerOptsFile) === null || agree(dockerOptsFile, subnetFile)) return removed
  rmSync(dockerOptsFile, { force: true })
  return [...removed, dockerOptsFile]
}

/** subnet.env, and the options if they were made from it. */
export function publishedFiles({ subnetFile, dockerOptsFile }: PublishedFiles): string[] {
  return dockerOptsFile !== undefined && agree(dockerOptsFile, subnetFile) ? [dockerOptsFile, subnetFile] : [subnetFile]
}

function agree(dockerOptsFile: string, subnetFile: string): boolean {
  const env = textOf(subnetFile)
  const options = textOf(dockerOptsFile)
  return env !== null && options !== null && options === optionsOrNull(env)
}

/** As `flannelette docker-opts` without flags writes them. */
function optionsFor(subnetFile: string): string {
  return dockerOptions(subnetFile, {}, { individual: true, combined: true, key: 'DOCKER_OPTS', ipMasq: true })
}

/** Of a file that may have been written by anybody. */
function optionsOrNull(subnetFile: string): string | null {
  try {
    return optionsFor(subnetFile)
  } catch {
    return null
  }
}

function writeOptions(path: string, text: string): void {
  try {
    if (!holdsAlready(path, text)) writeFileAtomically(path, text, { mode: 0o644, durable: true })
  } catch (cause) {
    throw unwritable(path, '--docker-opts-file', (cause as Error).message, cause)
  }
}

function textOf(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
