// What a node does on its host besides moving packets: firewall rules and the blackhole route, put there once the lease
// is known and looked at again every few seconds, since other programs flush what they did not write.
import type { Prefix } from '../../dataplane/index.ts'
import type { Clock, Timer } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import { keepBlackholeRoutes } from '../host/blackhole-route.ts'
import { bridgeNetfilterProblem } from '../host/bridge-netfilter.ts'
import type { LocalVtep } from '../host/dataplane.ts'
import type { FirewallMode } from '../host/firewall/firewall.ts'
import { forwardPolicyProblem } from '../host/firewall/forward-policy.ts'
import { FirewallKeeper } from '../host/firewall/keeper.ts'
import type { FamilyNetworks } from '../host/firewall/rules.ts'
import { findLeftBehind, type InUse, removeFormerRoutes, removeOtherDevices, takeAway } from '../host/left-behind.ts'
import { liesWithin } from '../host/network-overlap.ts'
import type { Log } from '../log.ts'
import type { HostWork } from './agent-options.ts'
import { readIdentities } from './running-daemons.ts'
import { inUseBy, type Neighbour, type Seat } from './seats.ts'

export interface HostIntegrationOptions {
  readonly clock: Clock
  readonly log: Log
  /** Masquerade what pods say to the world. */
  readonly masquerade: boolean
  /** But not to these, of either family; none when left out. */
  readonly unmasqueraded?: readonly Prefix[]
  /** Masqueraded ports at random where the kernel can. */
  readonly randomFully: boolean
  /** Accept forwarded pod packets. */
  readonly forwardRules: boolean
  readonly blackholeRoute: boolean
  readonly resyncMs: number
  /** This daemon among those of the host; absent: it is alone. */
  readonly seat?: Pick<Seat, 'number' | 'neighbours'>
}

export class HostIntegration implements HostWork {
  readonly #options: HostIntegrationOptions
  #keeper: FirewallKeeper | null = null
  #networks: readonly FamilyNetworks[] = []
  #timer: Timer | null = null
  #stopped = false
  /** All rules were right once: what differs later somebody changed. */
  #written = false
  /** Routes of former starts are gone. */
  #routesTidy = false
  /** A pass that is under way: a stop waits for it. */
  #pass: Promise<void> = Promise.resolve()
  #problems: readonly string[] = []

  constructor(options: HostIntegrationOptions) {
    this.#options = options
  }

  /** Resolves once rules and route are there, or it is known (and logged) why not: a later pass may have more luck. */
  async start(local: LocalVtep, mode: FirewallMode): Promise<void> {
    const { masquerade, unmasqueraded = [], forwardRules, randomFully, log, seat } = this.#options
    const networks = networksOf(local)
    this.#networks = networks
    if (mode === 'iptables') {
      const missing = bridgeNetfilterProblem(networks.map(({ family }) => family))
      if (missing !== null) log.warn('bridge-netfilter-missing', `${missing.message}; ${missing.remedy}`)
    }
    if (forwardRules) await this.#warnOfPolicies(mode)
    const keeper = new FirewallKeeper({
      mode,
      networks,
      masquerade,
      unmasqueraded,
      forward: forwardRules,
      randomFully,
      seat: seat?.number ?? 1,
    })
    this.#keeper = keeper
    this.#pass = this.#look().then(() => this.#tidy(keeper, devicesOf(local)))
    await this.#pass
  }

  /**
   * `remove` takes rules and route away; where nothing was started yet, all that a former start left.
   * @throws FlanneletteError `host-command`, `not-permitted`
   */
  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.#stopped = true
    this.#timer?.cancel()
    await this.#pass
    if (mode === 'keep') return
    if (this.#keeper === null) return this.#removeLeftBehind()
    await Promise.all([this.#keeper.remove(), keepBlackholeRoutes([], (dst) => this.#isOwn(dst))])
  }

  async #removeLeftBehind(): Promise<void> {
    const inUse = await this.#othersUse()
    if (inUse === null) return // what looks like ours may be theirs
    const { commands } = await findLeftBehind({}, inUse)
    for (const command of commands) await takeAway(command)
  }

  lookNow(): void {
    if (this.#timer === null || this.#stopped) return // nothing is kept, or a look is under way
    this.#timer.cancel()
    this.#timer = null
    this.#pass = this.#look()
  }

  problem(): string | null {
    return this.#problems[0] ?? null
  }

  async #look(): Promise<void> {
    if (this.#stopped) return
    this.#problems = [...(await this.#keepRules()), ...(await this.#keepRoute())]
    const { blackholeRoute, clock, resyncMs } = this.#options
    if (this.#stopped || (this.#keeper?.keeps !== true && !blackholeRoute)) return
    this.#timer = clock.after(resyncMs, () => {
      this.#timer = null
      this.#pass = this.#look()
    })
  }

  /** Resolves with what the node lacks now. Without forward rules most hosts forward all the same. */
  async #keepRules(): Promise<readonly string[]> {
    const { log, masquerade } = this.#options
    const { repaired = [], failures = [] } = (await this.#keeper?.sync()) ?? {}
    if (repaired.length > 0) {
      const faults = { faults: repaired.join('; ') }
      if (!this.#written) log.info('firewall-written', 'firewall rules were written', faults)
      else log.warn('firewall-repaired', 'firewall rules had been changed by somebody and were put right', faults)
    }
    if (failures.length === 0) this.#written = true
    for (const failure of failures) {
      log[masquerade ? 'error' : 'warn']('firewall-failed', `firewall rules could not be written: ${sentence(failure)}`)
    }
    return masquerade ? failures.map((failure) => `pods are not masqueraded: ${failure.message}`) : []
  }

  async #keepRoute(): Promise<readonly string[]> {
    const { log, blackholeRoute } = this.#options
    if (!blackholeRoute && this.#routesTidy) return []
    const wanted = blackholeRoute ? this.#networks.map(({ subnet }) => subnet) : []
    try {
      const inUse = this.#routesTidy ? null : await this.#othersUse()
      const isMine = (dst: string) => this.#isOwn(dst) || (inUse !== null && !liesWithin(inUse.networks, dst))
      const commands = await keepBlackholeRoutes(wanted, isMine)
      for (const command of commands) log.info('blackhole-route', `blackhole route: ip ${command}`)
      this.#routesTidy = true
      return []
    } catch (error) {
      log[blackholeRoute ? 'error' : 'warn'](
        'blackhole-route-failed',
        `the blackhole route could not be kept: ${sentence(error)}`,
      )
      return blackholeRoute ? [`the blackhole route is missing: ${(error as Error).message}`] : []
    }
  }

  async #warnOfPolicies(mode: FirewallMode): Promise<void> {
    const problem = await forwardPolicyProblem(mode).catch(() => null)
    if (problem !== null) this.#options.log.warn('forward-policy-drop', problem)
  }

  async #neighbours(): Promise<readonly Neighbour[]> {
    return (await this.#options.seat?.neighbours()) ?? []
  }

  /** What other daemons of this host use; `null` where one of them has not said so. */
  async #othersUse(): Promise<InUse | null> {
    const neighbours = await this.#neighbours()
    const known = new Set([process.pid, ...neighbours.map(({ pid }) => pid)])
    const { pids } = await readIdentities()
    return pids.every((pid) => known.has(pid)) ? inUseBy(neighbours) : null
  }

  #isOwn(dst: string): boolean {
    const networks = this.#networks.map(({ network }) => network)
    return liesWithin(networks, dst)
  }

  /** What a former start wrote in another mode, or made under another name. Left-overs are no reason not to forward. */
  async #tidy(keeper: FirewallKeeper, devices: readonly string[]): Promise<void> {
    const { log } = this.#options
    if (this.#stopped) return
    try {
      const inUse = await this.#othersUse()
      const seats = new Set((await this.#neighbours()).map(({ number }) => number))
      for (const { argv } of await keeper.removeOthers(seats)) {
        log.info('firewall-leftover-removed', `rules of a former start were removed by ${argv.join(' ')}`)
      }
      if (inUse === null || !(await isGuarded())) return
      for (const name of await removeOtherDevices([...devices, ...inUse.devices])) {
        log.info('device-leftover-removed', `${name}, the device of a former start, was removed`)
      }
      const networks = [...this.#networks.map(({ network }) => network), ...inUse.networks]
      for (const subnet of await removeFormerRoutes(networks)) {
        log.info('route-leftover-removed', `the route to ${subnet}, of a former start, was removed`)
      }
    } catch (error) {
      log.warn('leftovers-kept', `what a former start left could not be removed: ${sentence(error)}`)
    }
  }
}

/** Whether the guard of identities works: else a daemon that nobody knows of may be there. */
async function isGuarded(): Promise<boolean> {
  return (await readIdentities()).pids.includes(process.pid)
}

function networksOf({ network, subnet, ipv6Network, ipv6Subnet }: LocalVtep): FamilyNetworks[] {
  const networks: FamilyNetworks[] = []
  if (network !== null && subnet !== null) networks.push({ family: 'ip', network, subnet })
  if (ipv6Network !== null && ipv6Subnet !== null) {
    networks.push({ family: 'ip6', network: ipv6Network, subnet: ipv6Subnet })
  }
  return networks
}

function devicesOf({ deviceName, ipv6Device }: LocalVtep): readonly string[] {
  return ipv6Device === undefined ? [deviceName] : [deviceName, ipv6Device.deviceName]
}

function sentence(error: unknown): string {
  return error instanceof FlanneletteError ? error.oneLine : String(error)
}
