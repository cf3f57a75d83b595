// A second kernel for tests: Debian's user-mode Linux as an ordinary process, on the machine's own files, which it can
// only read. `vec0` is its underlay, a TAP in a network namespace of its own outside; a second TAP carries what tests
// ask of it, so that nothing a test does to the underlay cuts the test off.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { type CommandResult, inNamespace } from '../../src/host/command.ts'
import { ip } from './own-namespace.ts'
import { ROOT } from './source-tree.ts'

export const OUTSIDE = '192.0.2.1'
export const GUEST = '192.0.2.2'
/** Of the TAP outside. */
export const UNDERLAY_DEVICE = 'uml0'

const CONTROL_DEVICE = 'uml1'
const CONTROL_OUTSIDE = '198.51.100.1/30'
const CONTROL_GUEST = '198.51.100.2'
const AGENT_PORT = 7100
/** What asks the agent in the guest, and dies with its connection: bash connects, cat reads. */
const CLIENT = `exec 3<>/dev/tcp/${CONTROL_GUEST}/${AGENT_PORT} && printf '%s\\n' "$1" >&3 && exec cat <&3`
/** Exit code of a program that was killed, or of which nothing was heard. */
const NO_ANSWER = 255
const KERNEL = '/usr/bin/linux.uml'
const MODULES = '/usr/lib/uml/modules'
const MEMORY = '768M'
const BOOT_LIMIT_MS = 100_000
const COMMAND_LIMIT_MS = 90_000
const LOOK_MS = 100

/** Why no guest can be booted here; `null` when one can. */
export function guestObstacle(): string | null {
  if (process.getuid?.() !== 0) return 'needs root'
  try {
    return readdirSync(MODULES).length > 0 ? null : `${MODULES} is empty`
  } catch {
    return `no user-mode Linux (Debian package user-mode-linux, amd64 only; this is ${process.arch})`
  }
}

/** A program, in the guest or in a namespace outside. */
export interface RunningProgram {
  /** What it has written so far; `exitCode` is `null` while it runs. */
  readonly output: { stdout: string; stderr: string; exitCode: number | null }
  readonly ended: Promise<CommandResult>
  kill(): void
}

/** Where programs run. */
export interface Place {
  /** Address on the underlay. */
  readonly address: string
  start(argv: readonly string[]): RunningProgram
}

/** Runs a program to its end. @throws Error when it does not end in time */
export async function runIn(place: Place, argv: readonly string[]): Promise<CommandResult> {
  const program = place.start(argv)
  const limit = AbortSignal.timeout(COMMAND_LIMIT_MS)
  limit.addEventListener('abort', () => program.kill())
  const result = await program.ended
  if (limit.aborted) throw new Error(`no end within the time limit: ${argv.join(' ')}`)
  return result
}

/** Runs a program that must succeed, and gives its standard output. */
export async function mustRunIn(place: Place, argv: readonly string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await runIn(place, argv)
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: exit ${exitCode}: ${stderr}`)
  return stdout
}

/** Loads a module of the guest's kernel, `sch_netem` for example, and what it needs. */
export async function loadModule(guest: UmlGuest, name: string): Promise<void> {
  await mustRunIn(guest, ['modprobe', '-d', '/run/modules', name])
}

export class UmlGuest implements Place {
  readonly address = GUEST
  /** The namespace outside that holds both TAPs. */
  readonly namespace: string
  /** Empty as seen from here: the guest's kernel has a file system in memory on it. */
  readonly #directory = mkdtempSync(join(tmpdir(), 'flannelette-guest-'))
  readonly #kernel: ChildProcess
  readonly #ended: Promise<unknown>
  readonly #clients = new Set<ChildProcess>()
  #console = ''

  private constructor(namespace: string) {
    this.namespace = namespace
    makeTap(namespace, UNDERLAY_DEVICE, `${OUTSIDE}/24`)
    makeTap(namespace, CONTROL_DEVICE, CONTROL_OUTSIDE)
    this.#kernel = startKernel(namespace, this.#directory)
    this.#ended = once(this.#kernel, 'close')
    for (const stream of [this.#kernel.stdout!, this.#kernel.stderr!]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#console += text
      })
    }
  }

  /** Comes back when the guest answers; `stop` it afterwards. @throws Error with the console's text */
  static async boot(): Promise<UmlGuest> {
    const namespace = `flx-uml-${process.pid}`
    ip('netns', 'add', namespace)
    ip('-n', namespace, 'link', 'set', 'lo', 'up')
    const guest = new UmlGuest(namespace)
    try {
      await guest.#answering()
      return guest
    } catch (error) {
      await guest.stop()
      throw error
    }
  }

  /** What the guest's kernel and its first process wrote. */
  get console(): string {
    return this.#console
  }

  /** The place outside, at the other end of the underlay. */
  get outside(): Place {
    return { address: OUTSIDE, start: (argv) => startOutside(this.namespace, argv) }
  }

  start(argv: readonly string[]): RunningProgram {
    const output = emptyOutput()
    const client = spawnIn(this.namespace, ['bash', '-c', CLIENT, 'guest-client', JSON.stringify(argv)])
    this.#clients.add(client.on('close', () => this.#clients.delete(client)))
    client.stderr.resume() // it complains when the guest does not answer
    createInterface({ input: client.stdout }).on('line', (line) => {
      const { stdout = '', stderr = '', exitCode } = JSON.parse(line) as Partial<CommandResult>
      output.stdout += stdout
      output.stderr += stderr
      output.exitCode = exitCode ?? output.exitCode
    })
    return running(client, output, () => NO_ANSWER)
  }

  /** Ends the guest at once, and takes away all there was of it. */
  async stop(): Promise<void> {
    for (const client of this.#clients) client.kill('SIGKILL')
    this.#kernel.kill('SIGKILL')
    await this.#ended
    ip('netns', 'delete', this.namespace)
    rmdirSync(this.#directory)
  }

  async #answering(): Promise<void> {
    const deadline = performance.now() + BOOT_LIMIT_MS
    const probes: RunningProgram[] = []
    try {
      for (;;) {
        if (this.#kernel.exitCode !== null) throw new Error(`the guest ended: ${this.#console}`)
        if (performance.now() > deadline) throw new Error(`the guest does not answer: ${this.#console}`)
        // A guest that has much to do answers an earlier one while the next is asked.
        probes.push(this.start(['true']))
        await Promise.race([...probes.slice(-1).map(({ ended }) => ended), pause(5 * LOOK_MS)])
        if (probes.some(({ output }) => output.exitCode === 0)) return
        await pause(LOOK_MS)
      }
    } finally {
      for (const probe of probes) probe.kill()
    }
  }
}

function makeTap(namespace: string, name: string, address: string): void {
  ip('-n', namespace, 'tuntap', 'add', 'mode', 'tap', 'name', name, 'vnet_hdr')
  ip('-n', namespace, 'address', 'add', address, 'dev', name)
  ip('-n', namespace, 'link', 'set', name, 'up')
}

/**
 * The guest as process 1 of a process namespace, so that its many processes end with it, and in a mount namespace in
 * which a file system in memory holds what the guest's kernel puts into files: its memory and its sockets.
 */
function startKernel(namespace: string, directory: string): ChildProcess {
  const kernelWords = [
    ...[KERNEL, `mem=${MEMORY}`, 'root=/dev/root', 'rootfstype=hostfs', 'rootflags=/', 'ro', 'quiet'],
    ...[`init=${join(ROOT, 'test/support/guest-init.sh')}`, 'con=null', 'con0=fd:0,fd:1', `uml_dir=${directory}/`],
    ...[`guest_node=${process.execPath}`, `guest_agent=${join(ROOT, 'test/support/guest-agent.mjs')}`],
    ...[`guest_control=${CONTROL_GUEST}/30`, `guest_underlay=${GUEST}/24`],
    `vec0:transport=tap,ifname=${UNDERLAY_DEVICE},depth=128,gro=1`,
    `vec1:transport=tap,ifname=${CONTROL_DEVICE},depth=16`,
  ]
  const isolate = ['--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc']
  const script = `mount -t tmpfs tmpfs ${directory} && exec ip netns exec ${namespace} "$@"`
  // Not even a killed test run leaves a guest behind.
  return spawn(
    'setpriv',
    ['--pdeathsig', 'KILL', 'unshare', ...isolate, 'bash', '-c', script, 'uml-guest', ...kernelWords],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env.PATH, HOME: directory, TMPDIR: directory },
    },
  )
}

function startOutside(namespace: string, argv: readonly string[]): RunningProgram {
  const child = spawnIn(namespace, argv)
  const output = emptyOutput()
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      output[name] += text
    })
  }
  return running(child, output, (code) => code ?? NO_ANSWER)
}

function spawnIn(namespace: string, argv: readonly string[]) {
  const [program = '', ...args] = inNamespace(namespace, argv)
  return spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] })
}

function emptyOutput(): RunningProgram['output'] {
  return { stdout: '', stderr: '', exitCode: null }
}

function running(
  child: ChildProcess,
  output: RunningProgram['output'],
  exitCodeOf: (code: number | null) => number,
): RunningProgram {
  const ended = once(child, 'close').then(([code]) => {
    output.exitCode ??= exitCodeOf(code as number | null)
    return { ...output, exitCode: output.exitCode }
  })
  return { output, ended, kill: () => void child.kill('SIGKILL') }
}
