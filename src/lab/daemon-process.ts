// One daemon per host: started in the host's namespace, waited for until it says that it is ready, told apart from
// strangers by pid and start time.
import { spawn } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { withoutFlagVariables } from '../config/flag-values.ts'
import { writeSubnetFile } from '../config/subnet-file.ts'
import type { DaemonStatus } from '../daemon/status-file.ts'
import { FlanneletteError } from '../errors.ts'
import { inNamespace } from '../host/command.ts'
import { hostFiles, type LabHost, labFiles } from './lab-state.ts'
import type { HostPlan, LabOptions, LabPlan } from './plan.ts'
import { identify, isAlive, type ProcessIdentity } from './process-identity.ts'
import { UNDERLAY_INTERFACE } from './underlay.ts'

const READY_LIMIT_MS = 60_000
const POLL_MS = 20

/**
 * The built command line of this very package; sources run by a test runner have it below dist/.
 * @throws FlanneletteError `lab-state` when it is not built
 */
export function mainProgram(): string {
  const inSources = import.meta.url.endsWith('.ts')
  const path = fileURLToPath(new URL(inSources ? '../../dist/src/main.js' : '../main.js', import.meta.url))
  if (existsSync(path)) return path
  throw new FlanneletteError('lab-state', `there is no ${path}`, { remedy: 'build it first: npm run build' })
}

/** Leads a new daemon to the subnet that the plan has for it, by the file that a former run would have left. */
export function suggestSubnet(plan: LabPlan, host: HostPlan): void {
  const files = hostFiles(plan.name, host.name)
  mkdirSync(files.stateDirectory, { recursive: true })
  const { network, ipv6Network } = plan
  const { subnet, ipv6Subnet } = host
  const ipv6 = ipv6Network === null || ipv6Subnet === null ? null : { network: ipv6Network, subnet: ipv6Subnet }
  writeSubnetFile(files.subnetFile, { network, subnet, ipv6, mtuBytes: 1450, ipMasq: false })
}

/** The daemon's command line. */
function daemonCommand(options: LabOptions, host: Pick<LabHost, 'name' | 'dataplane'>): string[] {
  const files = hostFiles(options.name, host.name)
  const checksum = ['--udp-checksum', options.udpChecksum ? 'on' : 'off']
  return [
    process.execPath,
    mainProgram(),
    'run',
    ...['--store', `file:${labFiles(options.name).store}`],
    ...['--iface', UNDERLAY_INTERFACE],
    ...['--state-dir', files.stateDirectory],
    ...['--subnet-file', files.subnetFile],
    ...['--dataplane', host.dataplane],
    ...(host.dataplane === 'userspace' || options.backend !== 'vxlan' ? [] : checksum),
    ...options.daemonArguments,
  ]
}

/**
 * Starts the daemon apart from this process; its log is appended to, so that a restart continues it.
 * @throws FlanneletteError `lab-state` when there is no process of it
 */
export function startDaemon(
  options: LabOptions,
  host: Pick<LabHost, 'name' | 'namespace' | 'dataplane'>,
): ProcessIdentity {
  const files = hostFiles(options.name, host.name)
  rmSync(files.statusFile, { force: true }) // what a killed daemon said last is not what the new one says
  const [program = '', ...words] = inNamespace(host.namespace, daemonCommand(options, host))
  const log = openSync(files.log, 'a')
  try {
    // `ip netns exec` replaces itself by the daemon, so this pid stays the daemon's.
    const child = spawn(program, words, {
      detached: true,
      stdio: ['ignore', log, log],
      env: withoutFlagVariables(process.env),
    })
    child.on('error', () => {})
    child.unref()
    const identity = child.pid === undefined ? null : identify(child.pid)
    if (identity === null) throw new FlanneletteError('lab-state', `the daemon of ${host.name} could not be started`)
    return identity
  } finally {
    closeSync(log)
  }
}

/** What a host's daemon wrote last; `null` before it has written anything. */
export function readStatus(lab: string, host: string): DaemonStatus | null {
  try {
    return JSON.parse(readFileSync(hostFiles(lab, host).statusFile, 'utf8')) as DaemonStatus
  } catch {
    return null
  }
}

/**
 * Waits until the daemon says `ready` and knows that many peers.
 * @throws FlanneletteError `lab-state` with the daemon's last log line when it ended or the time is over
 */
export async function waitReady(
  lab: string,
  host: string,
  daemon: ProcessIdentity,
  peers: number,
  signal?: AbortSignal,
): Promise<DaemonStatus> {
  const deadline = performance.now() + READY_LIMIT_MS
  for (;;) {
    signal?.throwIfAborted()
    const status = readStatus(lab, host)
    if (status?.state === 'ready' && (status.peers?.length ?? 0) >= peers) return status
    if (!isAlive(daemon)) throw notReady(lab, host, `the daemon of ${host} ended at its start`)
    if (performance.now() > deadline) {
      throw notReady(lab, host, `the daemon of ${host} is not ready after ${READY_LIMIT_MS / 1000} s`)
    }
    await pause(POLL_MS)
  }
}

function notReady(lab: string, host: string, message: string): FlanneletteError {
  return new FlanneletteError('lab-state', `${message}: ${lastLine(hostFiles(lab, host).log) || 'it wrote no log'}`)
}

/** What a daemon's log ends with, as a sentence; empty when there is none. */
export function lastLine(path: string): string {
  try {
    const line = readFileSync(path, 'utf8').trimEnd().split('\n').at(-1) ?? ''
    if (line.startsWith('{')) return String((JSON.parse(line) as { readonly msg?: unknown }).msg)
    return line.replace(/^flannelette: /, '') // this program says that of itself before all it says
  } catch {
    return ''
  }
}
