// `ip` and `bridge` of iproute2: JSON answers, and batches of commands in one process. Nothing here decides anything.
import { attempt, commandFailure, firstLine, type InNamespace, run } from './command.ts'
import { kernelHasIpv6 } from './sysctl.ts'

export type IpTool = 'ip' | 'bridge'

/** One address of `ip -json address show`. */
export interface AddressInfo {
  readonly family: 'inet' | 'inet6'
  readonly local: string
  readonly prefixlen: number
  /** `global`, `link`, `host`, … */
  readonly scope: string
  readonly dynamic?: boolean
  readonly temporary?: boolean
  readonly deprecated?: boolean
  /** Of IPv6: not yet known to be nobody else's, or known to be somebody's. */
  readonly tentative?: boolean
  readonly dadfailed?: boolean
}

/** What we read of `ip -json -details link|address show`. */
export interface LinkInfo {
  readonly ifindex: number
  readonly ifname: string
  readonly flags: readonly string[]
  readonly mtu: number
  readonly txqlen?: number
  /** MAC as text; absent for devices without one (TUN). */
  readonly address?: string
  readonly ifalias?: string
  /** Name of the lower device, if it is in the same namespace. */
  readonly link?: string
  readonly linkinfo?: { readonly info_kind?: string; readonly info_data?: Readonly<Record<string, unknown>> }
  readonly addr_info?: readonly AddressInfo[]
}

/** What we read of `ip -json route show`. `protocol` is a name of rt_protos or the number as text. */
export interface RouteInfo {
  /** `blackhole`, …; absent for an ordinary route. */
  readonly type?: string
  readonly dst: string
  readonly gateway?: string
  readonly dev?: string
  readonly protocol?: string
  readonly prefsrc?: string
  readonly metric?: number
  readonly flags?: readonly string[]
}

export interface NeighborInfo {
  readonly dst: string
  readonly lladdr?: string
  readonly state?: readonly string[]
  /** As a route's; kernels have it since 5.0. */
  readonly protocol?: string
}

export interface FdbInfo {
  readonly mac: string
  readonly dst?: string
  readonly state?: string
  readonly flags?: readonly string[]
}

/**
 * `ip -json …` (or `bridge -json …`), parsed. An empty answer is an empty list.
 * @throws FlanneletteError `host-command`, `not-permitted`
 */
export async function showJson<T>(tool: IpTool, args: readonly string[], where: InNamespace = {}): Promise<T[]> {
  const argv = toolCommand(tool, ['-json', '-details', ...args], where)
  const text = await run(argv)
  return text.trim() === '' ? [] : (JSON.parse(text) as T[])
}

/** Flags of the families that the kernel has: `ip` shows one at a time, and fails for one that is not there. */
export function ipFamilies(): readonly ('-4' | '-6')[] {
  return kernelHasIpv6() ? ['-4', '-6'] : ['-4']
}

/** {@link showJson} of `ip` for each family, in one list. @throws FlanneletteError `host-command`, `not-permitted` */
export async function showFamilies<T>(args: readonly string[], where: InNamespace = {}): Promise<T[]> {
  return (await Promise.all(ipFamilies().map((family) => showJson<T>('ip', [family, ...args], where)))).flat()
}

/** One link with its addresses, `null` when there is no device of that name. */
export async function readLink(name: string, where: InNamespace = {}): Promise<LinkInfo | null> {
  const argv = toolCommand('ip', ['-json', '-details', 'address', 'show', 'dev', name], where)
  const result = await attempt(argv)
  if (result.exitCode !== 0) {
    if (/does not exist/.test(result.stderr)) return null
    throw commandFailure(argv, result)
  }
  return (JSON.parse(result.stdout) as LinkInfo[]).find((link) => link.ifname === name) ?? null
}

/**
 * Runs commands in one process and stops at the first that fails.
 * @throws FlanneletteError `host-command` naming the failed command
 */
export async function batch(tool: IpTool, commands: readonly string[], where: InNamespace = {}): Promise<void> {
  if (commands.length === 0) return
  const result = await attempt(toolCommand(tool, ['-batch', '-'], where), { input: batchInput(commands) })
  if (result.exitCode === 0) return
  const failed = failedLines(result.stderr)[0]
  throw commandFailure([tool, commands[failed ?? 0] ?? ''], result, where.namespace)
}

/** A command of a batch that did not work, by its index. */
export interface BatchFailure {
  readonly index: number
  readonly message: string
}

/**
 * Runs all commands, whatever becomes of the others, and tells which failed.
 * @throws FlanneletteError `host-command` only if the program itself cannot run
 */
export async function batchEach(
  tool: IpTool,
  commands: readonly string[],
  where: InNamespace = {},
): Promise<BatchFailure[]> {
  if (commands.length === 0) return []
  const argv = toolCommand(tool, ['-force', '-batch', '-'], where)
  const result = await attempt(argv, { input: batchInput(commands) })
  if (result.exitCode === 0) return []
  const failures = explainFailures(result.stderr)
  if (failures.length === 0) throw commandFailure(argv, result)
  return failures
}

/** Pairs each `Command failed` line with what the tool said just before it. Lines of the batch count from 1. */
export function explainFailures(stderr: string): BatchFailure[] {
  const failures: BatchFailure[] = []
  let said = ''
  for (const line of stderr.split('\n')) {
    const match = /^Command failed .*:(\d+)$/.exec(line)
    if (match === null) {
      if (line.trim() !== '') said = line
      continue
    }
    failures.push({ index: Number(match[1]) - 1, message: firstLine(said) || 'failed' })
    said = ''
  }
  return failures
}

function failedLines(stderr: string): number[] {
  return explainFailures(stderr).map((failure) => failure.index)
}

function toolCommand(tool: IpTool, args: readonly string[], where: InNamespace): string[] {
  // -n is the tools' own way into a namespace: it saves the mounts of `ip netns exec`.
  return where.namespace === undefined ? [tool, ...args] : [tool, '-n', where.namespace, ...args]
}

function batchInput(commands: readonly string[]): string {
  return `${commands.join('\n')}\n`
}
