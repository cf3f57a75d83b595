// A lab: several hosts with pods on this machine, each host a network namespace with its own daemon. This class is what
// the command line, the tests and the benchmark use; the pieces are in the files beside it. Nothing is held open
// between calls: a lab lives in its namespaces and its state file, and any process may take it up again.
import { writeFileAtomically } from '../atomic-file.ts'
import type { DaemonStatus } from '../daemon/status-file.ts'
import { FlanneletteError } from '../errors.ts'
import { attempt, type CommandOptions, type CommandResult } from '../host/command.ts'
import { loadRuleset } from '../host/nft.ts'
import { buildLab, type Progress, type UpContext } from './build.ts'
import { readStatus, startDaemon, waitReady } from './daemon-process.ts'
import {
  addFault,
  checkFault,
  checkHealing,
  type Fault,
  faultRulesets,
  healsDaemonOf,
  hostsOf,
  withoutFaults,
} from './faults.ts'
import { type IperfOptions, type IperfResult, iperf } from './iperf.ts'
import {
  claimLab,
  type LabHost,
  type LabPod,
  type LabState,
  labFiles,
  requireLabState,
  writeLabState,
} from './lab-state.ts'
import { type AddressFamily, type Endpoint, type PingOptions, type PingResult, ping, pingAll } from './ping.ts'
import { checkLabName, LAB_DEFAULTS, type LabOptions, networkConfigJson, planLab } from './plan.ts'
import { identify, isAlive, signal, waitGone } from './process-identity.ts'
import { occupancy, type Removed, tearDown } from './teardown.ts'

/** A host as `status` shows it. */
export interface HostReport extends LabHost {
  readonly daemonPid: number | null
  readonly alive: boolean
  /** What its daemon says; `null` when it says nothing. */
  readonly status: DaemonStatus | null
}

export interface LabReport {
  readonly name: string
  readonly options: LabOptions
  readonly hosts: readonly HostReport[]
  readonly pods: readonly LabPod[]
  readonly faults: readonly Fault[]
}

export class Lab {
  #state: LabState

  private constructor(state: LabState) {
    this.#state = state
  }

  /**
   * Brings a lab up and waits until all daemons are ready and know each other. Leftovers of a crashed lab of that name
   * are removed first; if anything fails, everything that was built is removed again.
   * @throws FlanneletteError `usage`, `lab-state` when that lab is up already, `host-command`
   */
  static async up(options: Partial<LabOptions> = {}, context: UpContext = {}): Promise<Lab> {
    const whole: LabOptions = { ...LAB_DEFAULTS, ...options }
    const plan = planLab(whole)
    requireRoot()
    const state: LabState = {
      version: 1,
      name: whole.name,
      phase: 'starting',
      starter: identify(process.pid) ?? { pid: process.pid, startTicks: 0 },
      owned: context.owned === true,
      options: whole,
      switchNamespace: plan.switchNamespace,
      hosts: [],
      pods: [],
      faults: [],
    }
    await claim(state, context.progress)
    try {
      const config = { mode: 0o644, durable: false }
      writeFileAtomically(`${labFiles(whole.name).store}/config`, networkConfigJson(plan, whole), config)
      return new Lab(await buildLab(plan, state, context))
    } catch (error) {
      await tearDown(whole.name)
      // Ctrl-C reaches the programs that are just running as well; what they say of it is not the reason.
      context.signal?.throwIfAborted()
      throw error
    }
  }

  /** Takes up a lab that is up. @throws FlanneletteError `usage` for a name that no lab has, `lab-state` */
  static open(name: string = LAB_DEFAULTS.name): Lab {
    checkLabName(name)
    return new Lab(requireLabState(name))
  }

  /** Takes up a lab to do something in its namespaces. @throws FlanneletteError `not-permitted`, `lab-state` */
  static enter(name: string = LAB_DEFAULTS.name): Lab {
    requireRoot()
    return Lab.open(name)
  }

  /** Removes the lab of that name, whatever is left of it. @throws FlanneletteError `usage`, `not-permitted` */
  static async down(name: string = LAB_DEFAULTS.name): Promise<Removed> {
    checkLabName(name)
    requireRoot()
    return tearDown(name)
  }

  down(): Promise<Removed> {
    return tearDown(this.name)
  }

  get name(): string {
    return this.#state.name
  }

  get pods(): readonly LabPod[] {
    return this.#state.pods
  }

  get hosts(): readonly LabHost[] {
    return this.#state.hosts
  }

  /** @throws FlanneletteError `usage` when there is no host of that name */
  host(name: string): HostReport {
    const host = this.#state.hosts.find((candidate) => candidate.name === name)
    if (host === undefined) throw unknownMember(name, this.#state.hosts)
    const alive = host.daemon !== null && isAlive(host.daemon)
    const status = alive ? readStatus(this.name, name) : null
    return { ...host, daemonPid: alive ? (host.daemon?.pid ?? null) : null, alive, status }
  }

  report(): LabReport {
    const { name, options, pods, faults } = this.#state
    return { name, options, hosts: this.#state.hosts.map((host) => this.host(host.name)), pods, faults }
  }

  /**
   * A pod by its address in the overlay, a host by its address on the underlay; either may also be named by an address.
   * @throws FlanneletteError `usage` for a stranger, and for a member without an address of that family
   */
  endpoint(name: string, family: AddressFamily = 4): Endpoint {
    const { pods, hosts } = this.#state
    const pod = pods.find((candidate) => [candidate.name, candidate.address, candidate.ipv6Address].includes(name))
    if (pod !== undefined) {
      const address = family === 6 || name === pod.ipv6Address ? pod.ipv6Address : pod.address
      if (address === null) throw withoutIpv6(name, 'bring the lab up with --ipv6 or --family dual')
      return { name: pod.name, namespace: pod.namespace, address }
    }
    const host = hosts.find((one) => [one.name, one.underlayAddress, one.underlayIpv6].includes(name))
    if (host !== undefined) {
      const address = family === 6 || name === host.underlayIpv6 ? host.underlayIpv6 : host.underlayAddress
      if (address === null) throw withoutIpv6(name, 'the underlay is IPv4: name pods')
      return { name: host.name, namespace: host.namespace, address }
    }
    throw unknownMember(name, [...this.#state.hosts, ...this.#state.pods])
  }

  /** Namespace of a host, a pod or the `switch`. @throws FlanneletteError `usage` */
  namespace(name: string): string {
    if (name === 'switch' && this.#state.switchNamespace !== null) return this.#state.switchNamespace
    return this.endpoint(name).namespace
  }

  /** Runs a program in a host or pod, to its end. */
  exec(name: string, argv: readonly string[], options: Omit<CommandOptions, 'namespace'> = {}): Promise<CommandResult> {
    return attempt(argv, { ...options, namespace: this.namespace(name) })
  }

  ping(from: string, to: string, options: PingOptions = {}): Promise<PingResult> {
    return ping(this.endpoint(from), this.endpoint(to, options.family), options)
  }

  /** Every ordered pair of pods. */
  pingAll(options: PingOptions = {}): Promise<PingResult[]> {
    return pingAll(
      this.#state.pods.map(({ name }) => this.endpoint(name, options.family)),
      options,
    )
  }

  iperf(from: string, to: string, options: IperfOptions = {}): Promise<IperfResult> {
    return iperf(this.endpoint(from), this.endpoint(to, options.family), options)
  }

  /** Puts one more fault in force. @throws FlanneletteError `usage` for an unknown host or an impossible fault */
  async fault(fault: Fault): Promise<void> {
    for (const name of hostsOf(fault)) this.host(name)
    checkFault(fault)
    if (fault.kind === 'crash') await this.#crash(fault.host)
    await this.#replaceFaults(addFault(this.#state.faults, fault))
  }

  /**
   * Takes faults away: of one kind (`loss`, `cut`, …), those that name a host, or all; starts daemons again that do not
   * run, whoever ended them, and waits until they are ready.
   * @throws FlanneletteError `usage` for what is neither
   */
  async heal(what?: string): Promise<void> {
    if (what !== undefined) checkHealing(what, this.#state.hosts)
    const left = withoutFaults(this.#state.faults, what)
    await this.#replaceFaults(left)
    const dead = this.report().hosts.filter(({ alive }) => !alive)
    for (const { name } of dead) if (healsDaemonOf(name, what)) await this.restart(name)
  }

  /** Starts a host's daemon (again) without waiting for it. */
  startDaemon(name: string): void {
    const host = this.host(name)
    this.#replaceHost({ ...stored(host), daemon: startDaemon(this.#state.options, host) })
  }

  /** Starts a host's daemon again and waits until it is ready and knows its peers. */
  async restart(name: string): Promise<void> {
    this.startDaemon(name)
    const { daemon } = this.host(name)
    if (daemon !== null) await waitReady(this.name, name, daemon, this.#state.hosts.length - 1)
  }

  async #crash(name: string): Promise<void> {
    const { daemon } = this.host(name)
    if (daemon === null || !signal(daemon, 'SIGKILL')) {
      throw new FlanneletteError('lab-state', `the daemon of ${name} does not run`, {
        remedy: `start it again: flannelette lab heal ${name}`,
      })
    }
    await waitGone([daemon], 2_000)
    this.#replaceHost({ ...stored(this.host(name)), daemon: null })
  }

  async #replaceFaults(faults: readonly Fault[]): Promise<void> {
    const rulesets = faultRulesets(this.#state, faults)
    await Promise.all([...rulesets].map(([namespace, ruleset]) => loadRuleset(ruleset, { namespace })))
    this.#save({ ...this.#state, faults })
  }

  #replaceHost(host: LabHost): void {
    const hosts = this.#state.hosts.map((known) => (known.name === host.name ? host : known))
    this.#save({ ...this.#state, hosts })
  }

  #save(state: LabState): void {
    writeLabState(state)
    this.#state = state
  }
}

/** @throws FlanneletteError `not-permitted` */
function requireRoot(): void {
  if (process.geteuid?.() === 0) return
  throw new FlanneletteError('not-permitted', 'a lab needs network namespaces', { remedy: 'run it as root' })
}

/** The part of a report that belongs into the state file. */
function stored({ daemonPid: _pid, alive: _alive, status: _status, ...host }: HostReport): LabHost {
  return host
}

/** Takes the name, after removing what a crashed lab of that name left. */
async function claim(state: LabState, progress: Progress = () => {}): Promise<void> {
  const { name } = state
  const found = await occupancy(name)
  if (found.kind === 'leftover') {
    progress(`removing what is left of a former lab "${name}": ${found.why}`)
    await tearDown(name)
  }
  if (found.kind === 'up') {
    throw taken(name, 'is up already', `take it down first: flannelette lab down --name ${name}`)
  }
  if (found.kind === 'starting' || !claimLab(state)) {
    throw taken(name, 'is being started by another process', 'wait for it')
  }
}

function taken(name: string, what: string, remedy: string): FlanneletteError {
  return new FlanneletteError('lab-state', `the lab "${name}" ${what}`, {
    remedy: `${remedy}, or choose another --name`,
  })
}

function withoutIpv6(name: string, remedy: string): FlanneletteError {
  return new FlanneletteError('usage', `${name} has no IPv6 address`, { remedy })
}

function unknownMember(name: string, members: readonly { readonly name: string }[]): FlanneletteError {
  const names = members.map((member) => member.name).join(', ')
  return new FlanneletteError('usage', `there is no "${name}" in this lab`, { remedy: `it has: ${names}` })
}
