// A daemon by itself, outside any lab: a host of a test's own with an underlay, a store and a state directory, and
// `flannelette run` on it, to its end or until it is told to stop.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as immediate } from 'node:timers/promises'
import { expect, onTestFinished } from 'vitest'
import type { DaemonStatus } from '../../src/daemon/status-file.ts'
import { inNamespace } from '../../src/host/command.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { ip, joinedNamespaces } from './own-namespace.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export const CONFIG = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan', VNI: 1 } }
/** A start takes seconds on a busy machine, of which there are two at a time. */
const READY_LIMIT_MS = 60_000

export interface Host {
  readonly namespace: string
  /** Of its `eth0`. */
  readonly address: string
  readonly store: string
  readonly stateDirectory: string
  readonly subnetFile: string
}

/** Two hosts on one underlay that share a store. Call inside a test. */
export function twoHosts(): [Host, Host] {
  const directory = temporaryDirectory()
  const store = join(directory, 'store')
  mkdirSync(store)
  writeConfig(store, CONFIG)
  const [first, second] = joinedNamespaces().map((namespace, index) => ({
    namespace,
    address: `192.0.2.${index + 1}`,
    store,
    stateDirectory: join(directory, `state${index}`),
    subnetFile: join(directory, `subnet${index}.env`),
  }))
  return [first!, second!]
}

export function writeConfig(store: string, config: unknown): void {
  writeFileSync(join(store, 'config'), JSON.stringify(config))
}

/** The command line of a daemon for this host; `more` words come last. */
export function daemonWords(host: Host, more: readonly string[] = []): string[] {
  return [
    ...[process.execPath, mainProgram(), 'run', '--store', `file:${host.store}`],
    ...(more.includes('--iface') ? [] : ['--iface', 'eth0']), // the flag adds up
    ...['--state-dir', host.stateDirectory, '--subnet-file', host.subnetFile, ...more],
  ]
}

export class RunningDaemon {
  readonly #child: ChildProcess
  readonly #exited: Promise<number>
  readonly #host: Host
  #output = ''

  /** Starts the words in the host's namespace; killed with the test at the latest. */
  constructor(host: Host, words: readonly string[]) {
    const argv = inNamespace(host.namespace, words)
    this.#host = host
    this.#child = spawn(argv[0]!, argv.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] })
    this.#exited = once(this.#child, 'close').then(([code]) => code as number)
    this.#child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.#output += text
    })
    onTestFinished(async () => {
      this.#child.kill('SIGKILL')
      await this.#exited
    })
  }

  get pid(): number {
    return this.#child.pid!
  }

  get output(): string {
    return this.#output
  }

  /** What a person is told: lines of stderr that are not of the log, and the last one of all. */
  get told(): string[] {
    const lines = this.#output.split('\n').filter((line) => line !== '')
    return lines.flatMap((line) => {
      if (!line.startsWith('{')) return [line]
      return line.startsWith('{"level":"fatal"') ? [String((JSON.parse(line) as { readonly msg: unknown }).msg)] : []
    })
  }

  /** Warnings and errors of the log, but for what the machine's kernel lacks. */
  get complaints(): string[] {
    const lines = this.#output.split('\n').filter((line) => /^\{"level":"(warn|error)"/.test(line))
    return lines.filter((line) => !line.includes('"event":"bridge-netfilter-missing"'))
  }

  get status(): DaemonStatus | null {
    try {
      const status = JSON.parse(readFileSync(join(this.#host.stateDirectory, 'status.json'), 'utf8')) as DaemonStatus
      return status.pid === this.pid ? status : null
    } catch {
      return null
    }
  }

  /** Waits until it forwards and knows so many peers. */
  async ready(peers: number): Promise<void> {
    const seen = () => {
      if (this.#child.exitCode !== null) throw new Error(`the daemon ended: ${this.#output}`)
      return this.status?.state === 'ready' ? this.status.peers.length : -1
    }
    await expect.poll(seen, { timeout: READY_LIMIT_MS, interval: 20 }).toBe(peers)
    // What it has written before that is in the pipe by now: a whole turn of the loop reads it.
    for (let phase = 0; phase < 2; phase++) await immediate()
  }

  /** Exit code, once it has ended. */
  exited(): Promise<number> {
    return this.#exited
  }

  /** Sends a signal and waits for the end: exit code and milliseconds. */
  async end(signal: NodeJS.Signals): Promise<{ exitCode: number; milliseconds: number }> {
    const start = performance.now()
    this.#child.kill(signal)
    const exitCode = await this.#exited
    return { exitCode, milliseconds: performance.now() - start }
  }
}

export function startDaemon(host: Host, more: readonly string[] = []): RunningDaemon {
  return new RunningDaemon(host, daemonWords(host, more))
}

/**
 * What a host shows of a daemon: devices, addresses, IPv4 routes, its subnet.env. Without operational states: a device
 * that was just made does not know its own yet.
 */
export function traceOf(host: Host): {
  links: string[]
  addresses: string[]
  routes: string[]
  subnetFile: string | null
} {
  const lines = (...words: string[]) =>
    ip('-n', host.namespace, ...words)
      .split('\n')
      .filter(Boolean)
  return {
    links: lines('-br', 'link', 'show').map((line) => line.split(/\s+/)[0] ?? ''),
    addresses: lines('-4', '-br', 'address', 'show').map(withoutState),
    routes: lines('-4', 'route', 'show').map(withoutState),
    subnetFile: isFile(host.subnetFile) ? readFileSync(host.subnetFile, 'utf8') : null,
  }
}

function withoutState(line: string): string {
  return line
    .replace(/ (UNKNOWN|UP|DOWN|LOWERLAYERDOWN|linkdown)\b/g, '')
    .replace(/\s+/g, ' ')
    .trim()
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true
}

/** Keys of the leases in the store. */
export function leasesIn(store: string): string[] {
  const subnets = join(store, 'subnets')
  return existsSync(subnets) ? readdirSync(subnets).filter((name) => !name.startsWith('.')) : []
}
