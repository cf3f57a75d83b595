// How the host layer runs a program: one place that knows namespaces, standard input, time limits and how a failure
// is told to people. ip.ts, nft.ts and ethtool.ts are thin wrappers around it.
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { constants } from 'node:os'
import { FlanneletteError } from '../errors.ts'

export interface CommandOptions {
  /** Name of the network namespace (`ip netns`) to run in; absent: the caller's own. */
  readonly namespace?: string | undefined
  /** Written to the program's standard input. */
  readonly input?: string | undefined
  /** Milliseconds until the program is killed; default 20 000. */
  readonly timeoutMs?: number | undefined
  /** Kills the program when it fires. */
  readonly signal?: AbortSignal | undefined
}

/** Where a wrapper of a program works; `{}`: in the caller's own namespace. */
export type InNamespace = Pick<CommandOptions, 'namespace'>

export interface CommandResult {
  /** 0-255; 128 + signal number when a signal ended the program, as shells count. */
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

const DEFAULT_TIMEOUT_MS = 20_000

/** Debian package that brings a program, for the remedy of a missing one. */
const PACKAGES: Readonly<Record<string, string>> = {
  ip: 'iproute2',
  bridge: 'iproute2',
  nft: 'nftables',
  iptables: 'iptables',
  ip6tables: 'iptables',
  'iptables-restore': 'iptables',
  'ip6tables-restore': 'iptables',
  ethtool: 'ethtool',
  iperf3: 'iperf3',
  ping: 'iputils-ping',
}

/** Whether a program is there, by PATH. */
export function isInstalled(program: string): boolean {
  return (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/${program}`))
}

/**
 * The argument vector that runs `argv` in a namespace (`ip netns exec` replaces itself, so the process id is the
 * program's).
 */
export function inNamespace(namespace: string | undefined, argv: readonly string[]): string[] {
  return namespace === undefined ? [...argv] : ['ip', 'netns', 'exec', namespace, ...argv]
}

/**
 * Runs a program to its end, whatever its exit code.
 * @throws FlanneletteError `host-command` when it cannot be started or runs into the time limit
 */
export function attempt(argv: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const [program = '', ...args] = inNamespace(options.namespace, argv)
  return new Promise((resolve, reject) => {
    // Without files left to open there is a child without streams, which fails a moment later.
    const child: ChildProcess = spawn(program, args, {
      env: { ...process.env, LC_ALL: 'C' },
      stdio: ['pipe', 'pipe', 'pipe'],
      timeout: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
      killSignal: 'SIGKILL',
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    })
    child.on('error', (cause) => reject(startFailure(program, argv, cause)))
    let stdout = ''
    let stderr = ''
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
    })
    child.stdin?.on('error', () => {}) // a program that does not read its input is no failure
    child.on('close', (code, signal) => {
      if (signal === 'SIGKILL' && child.killed) reject(failure(argv, 'no end within the time limit', options.namespace))
      else resolve({ exitCode: code ?? 128 + (signal === null ? 0 : constants.signals[signal]), stdout, stderr })
    })
    child.stdin?.end(options.input ?? '')
  })
}

/**
 * Runs a program that must succeed and gives its standard output.
 * @throws FlanneletteError `host-command` with the command and the program's first error line
 */
export async function run(argv: readonly string[], options: CommandOptions = {}): Promise<string> {
  const result = await attempt(argv, options)
  if (result.exitCode !== 0) throw commandFailure(argv, result, options.namespace)
  return result.stdout
}

/** The error for a program that ended with another exit code than 0; `code` and `remedy` follow from what it said. */
export function commandFailure(argv: readonly string[], result: CommandResult, namespace?: string): FlanneletteError {
  return failure(argv, firstLine(result.stderr) || `exit code ${result.exitCode}`, namespace)
}

function failure(argv: readonly string[], said: string, namespace: string | undefined): FlanneletteError {
  // What `ip netns exec` says of a program that is not there.
  const missing = /^exec of "([^"]+)" failed: No such file/.exec(said)?.[1]
  if (missing !== undefined) return missingProgram(missing)
  const where = namespace === undefined ? '' : ` (in namespace ${namespace})`
  const notPermitted = /operation not permitted|permission denied/i.test(said)
  return new FlanneletteError(
    notPermitted ? 'not-permitted' : 'host-command',
    `\`${argv.join(' ')}\` failed${where}: ${said}`,
    notPermitted ? { remedy: 'run as root or with CAP_NET_ADMIN' } : {},
  )
}

function startFailure(program: string, argv: readonly string[], cause: Error): FlanneletteError {
  if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return missingProgram(program)
  return new FlanneletteError('host-command', `\`${argv.join(' ')}\` could not run: ${cause.message}`, { cause })
}

function missingProgram(program: string): FlanneletteError {
  const debianPackage = PACKAGES[program]
  const remedy = debianPackage === undefined ? {} : { remedy: `install it: apt-get install ${debianPackage}` }
  return new FlanneletteError('host-command', `the program \`${program}\` is missing`, remedy)
}

/** First line that says something, without the tools' own prefixes. */
export function firstLine(stderr: string): string {
  for (const line of stderr.split('\n')) {
    const text = line.replace(/^(RTNETLINK answers|Error): /, '').trim()
    if (text !== '' && !text.startsWith('Command failed')) return text
  }
  return ''
}
