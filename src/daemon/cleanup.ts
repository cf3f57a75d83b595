// Taking flannelette off a host: everything that carries its tag or name, and nothing else. First all of it is found
// and becomes a list of steps, which a person may read before anything happens; then the steps are taken.
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { formatAddress, samePrefix } from '../../dataplane/index.ts'
import { readSubnetFile } from '../config/subnet-file.ts'
import { FlanneletteError } from '../errors.ts'
import { isNetworkAdmin } from '../host/capability.ts'
import type { CommandOptions } from '../host/command.ts'
import type { FirewallCommand } from '../host/firewall/firewall.ts'
import type { AddressInfo } from '../host/ip.ts'
import { findLeftBehind, takeAway } from '../host/left-behind.ts'
import { leadingHalf } from '../lease/lease.ts'
import { silentLog } from '../log.ts'
import { isDirectory, removeEmptyDirectory } from '../make-directory.ts'
import { holdFileLock } from '../store/file-lock.ts'
import { publishedFiles } from './published-subnet.ts'
import { IDENTITY_DIRECTORY, readIdentities } from './running-daemons.ts'
import { sweepRuntime } from './runtime-sweep.ts'
import { abandonedSeats, closeSeats, inUseBy, readSeats, SEAT_DIRECTORY } from './seats.ts'
import { StateDirectory } from './state-directory.ts'
import { TOLD_PEERS_FILE } from './told-peers.ts'

export interface CleanupOptions {
  readonly subnetFile: string
  /** Docker options that were made from it; absent: none are looked for. */
  readonly dockerOptsFile?: string
  readonly stateDirectory: string
  /** Whether the node is to forget MAC, lease and last peers as well. */
  readonly state: boolean
  readonly identityDirectory?: string
  readonly seatDirectory?: string
  readonly namespace?: string
}

export type CleanupStep =
  | ({ readonly kind: 'command' } & FirewallCommand)
  | { readonly kind: 'file'; readonly path: string }
  /** Only when it is empty by then. */
  | { readonly kind: 'directory'; readonly path: string }

export interface CleanupPlan {
  readonly steps: readonly CleanupStep[]
  /** What stays although it looks like ours, and why: sentences. */
  readonly kept: readonly string[]
}

/** Files of a state directory that mean nothing without a daemon. */
const RUNTIME_FILES = ['status.json', 'api.sock', 'lock']
const MEMORY_FILES = ['mac', 'mac-v6', 'lease.json', 'leases.json', TOLD_PEERS_FILE]

/**
 * Finds what is ours. Changes nothing.
 * @throws FlanneletteError `device-busy` while the daemon of this state directory runs, or one that nothing is known of, `host-command`, `not-permitted`
 */
export async function planCleanup(options: CleanupOptions): Promise<CleanupPlan> {
  if (!isNetworkAdmin()) {
    const message = 'rules and devices of this host are not shown to you: CAP_NET_ADMIN is missing'
    throw new FlanneletteError('not-permitted', message, { remedy: 'run it as root, also with --dry-run' })
  }
  if (existsSync(lockOf(options))) {
    const release = await holdFileLock(lockOf(options), 0)
    if (release === null) throw running(pidIn(options.stateDirectory))
    release()
  }
  return leftNow(options)
}

/** What is left behind at this moment. @throws FlanneletteError as planCleanup, but for the daemon of this directory */
async function leftNow(options: CleanupOptions): Promise<CleanupPlan> {
  const { stateDirectory, subnetFile } = options
  const { identityDirectory, seatDirectory } = runtimeOf(options)
  const { abandoned, neighbours, inUse } = await refuseUnknown(options)
  const found = await findLeftBehind(whereOf(options), inUse)
  const kept = neighbours.map(({ pid, stateDirectory: of }) => `what the daemon of ${of} (pid ${pid}) uses stays`)
  const files: string[] = []
  if (neighbours.some((other) => other.subnetFile === resolve(subnetFile))) {
    kept.push(`${subnetFile} stays with it`)
  } else if (existsSync(subnetFile)) {
    if (isOurSubnetFile(options, found.addresses)) files.push(...publishedFiles(options))
    else kept.push(`${subnetFile} stays: it names a subnet that this node has no memory of`)
  }
  files.push(...abandoned, ...(await abandonedSeats(seatDirectory)))
  const names = [...(options.state ? MEMORY_FILES : []), ...RUNTIME_FILES]
  files.push(...names.map((name) => `${stateDirectory}/${name}`).filter((path) => existsSync(path)))
  const emptied = (path: string) => readdirSync(path).every((name) => files.includes(`${path}/${name}`))
  const directories = [identityDirectory, seatDirectory, stateDirectory].filter(
    (path) => isDirectory(path) && emptied(path),
  )
  return {
    steps: [
      ...found.commands.map((command) => ({ kind: 'command' as const, ...command })),
      ...files.map((path) => ({ kind: 'file' as const, path })),
      ...directories.map((path) => ({ kind: 'directory' as const, path })),
    ],
    kept,
  }
}

/**
 * Takes those of the steps that would be planned now as well: what a daemon that was started meanwhile uses is not left
 * behind any more. While they are taken nobody is given a seat. One that fails keeps none of the others from being taken.
 * Resolves with those that were not taken.
 * @throws FlanneletteError `device-busy` when a daemon was started meanwhile on this state directory, or one that nothing
 * is known of; else that of the first step that failed
 */
export async function runCleanup(options: CleanupOptions, { steps }: CleanupPlan): Promise<readonly CleanupStep[]> {
  const { identityDirectory, seatDirectory } = runtimeOf(options)
  const release = isDirectory(options.stateDirectory) ? await holdFileLock(lockOf(options), 0) : () => {}
  if (release === null) throw running(pidIn(options.stateDirectory))
  const failures: unknown[] = []
  // Locks that were abandoned may have been taken again, and our own is in the way of its directory: both come last.
  const isLast = (step: CleanupStep) => step.kind === 'directory' || isRuntimeFile(step, options)
  const left: CleanupStep[] = []
  const runtime = dirname(seatDirectory)
  const isFresh = !isDirectory(runtime)
  // Where nothing can be written nobody takes a seat either.
  const reopen = await closeSeats(seatDirectory).catch(() => null)
  try {
    const now = new Set((await leftNow(options)).steps.map(stepText))
    const isTaken = (step: CleanupStep) => now.has(stepText(step))
    const first = steps.filter((step) => !isLast(step))
    left.push(...first.filter((step) => !isTaken(step)))
    failures.push(...(await takeAll(first.filter(isTaken), options)))
    rmSync(lockOf(options), { force: true })
  } finally {
    reopen?.()
    release()
    await sweepRuntime(identityDirectory, seatDirectory).catch((error: unknown) => failures.push(error))
    if (isFresh) removeEmptyDirectory(runtime)
  }
  const directories = steps.filter(({ kind }) => kind === 'directory')
  failures.push(...(await takeAll(directories, options)))
  if (failures.length > 0) throw failures[0]
  return [...left, ...steps.filter((step) => isLast(step) && 'path' in step && existsSync(step.path))]
}

/** Locks that daemons hold as long as they live: they go under that very lock, or not at all. */
function isRuntimeFile(step: CleanupStep, options: CleanupOptions): boolean {
  return step.kind === 'file' && Object.values(runtimeOf(options)).includes(dirname(step.path))
}

/** Resolves with what failed. */
async function takeAll(steps: readonly CleanupStep[], options: CleanupOptions): Promise<unknown[]> {
  const failures: unknown[] = []
  for (const step of steps) await take(step, whereOf(options)).catch((error: unknown) => failures.push(error))
  return failures
}

/** A step as a line for a shell. */
export function stepText(step: CleanupStep): string {
  if (step.kind === 'file') return `rm -f ${quoted(step.path)}`
  if (step.kind === 'directory') return `rmdir --ignore-fail-on-non-empty ${quoted(step.path)}`
  const words = step.argv.map(quoted).join(' ')
  return step.input === undefined ? words : `${words} <<'END'\n${step.input}END`
}

async function take(step: CleanupStep, where: Pick<CommandOptions, 'namespace'>): Promise<void> {
  if (step.kind === 'file') return rmSync(step.path, { force: true })
  if (step.kind === 'directory') return void removeEmptyDirectory(step.path)
  return takeAway(step, where)
}

async function refuseUnknown(options: CleanupOptions) {
  const { pids, abandoned } = await readIdentities(options.identityDirectory)
  const neighbours = await readSeats(options.seatDirectory)
  const inUse = inUseBy(neighbours)
  const known = new Set(neighbours.map((other) => other.pid))
  const pid = pids.find((one) => !known.has(one))
  // One that nothing is known of may use whatever looks like ours.
  if (pid !== undefined) throw running(pid)
  if (inUse === null) throw running(neighbours.find(({ place }) => place === null)?.pid ?? null)
  return { abandoned, neighbours, inUse }
}

function running(pid: number | null): FlanneletteError {
  const who = pid === null ? 'a daemon' : `a daemon (pid ${pid})`
  return new FlanneletteError('device-busy', `${who} runs on this host`, {
    remedy: `stop it first${pid === null ? '' : `: kill ${pid}`}`,
  })
}

function pidIn(stateDirectory: string): number | null {
  try {
    const { pid } = JSON.parse(readFileSync(`${stateDirectory}/status.json`, 'utf8')) as { readonly pid?: unknown }
    return typeof pid === 'number' ? pid : null
  } catch {
    return null
  }
}

/** By the kept lease, or by the address that one of our devices has: the first of the subnet. */
function isOurSubnetFile(options: CleanupOptions, addresses: readonly AddressInfo[]): boolean {
  const file = readSubnetFile(options.subnetFile)
  const subnet = file?.subnet ?? file?.ipv6Subnet ?? null
  if (subnet === null) return false
  const kept = new StateDirectory(options.stateDirectory, silentLog).readLease()
  if (kept !== null && samePrefix(leadingHalf(kept.lease), subnet)) return true
  return addresses.some(({ local }) => local === formatAddress(subnet.address))
}

function runtimeOf({ identityDirectory = IDENTITY_DIRECTORY, seatDirectory = SEAT_DIRECTORY }: CleanupOptions) {
  return { identityDirectory, seatDirectory }
}

function lockOf({ stateDirectory }: CleanupOptions): string {
  return `${stateDirectory}/lock`
}

function whereOf({ namespace }: CleanupOptions): Pick<CommandOptions, 'namespace'> {
  return namespace === undefined ? {} : { namespace }
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
