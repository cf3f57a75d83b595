// `flannelette run` as a process: the only place that names concrete stores and dataplanes, and that deals with
// signals.
import { resolve } from 'node:path'
import { type Clock, systemClock } from '../clock.ts'
import { withoutFlagVariables } from '../config/flag-values.ts'
import type { RunOptions } from '../config/options.ts'
import { EXIT, FlanneletteError } from '../errors.ts'
import type { Dataplane, VtepOutline } from '../host/dataplane.ts'
import { HostGateway, type RouteTools } from '../host/host-gateway.ts'
import { readLink } from '../host/ip.ts'
import { isRoute, sharedDoorbell } from '../host/ip-monitor.ts'
import { KernelVtep } from '../host/kernel-vtep.ts'
import { routeTable } from '../host/route-table.ts'
import { selectUnderlay } from '../host/underlay-interface.ts'
import { vxlanObstacle } from '../host/vxlan-probe.ts'
import { withDeadline } from '../lease/store-deadline.ts'
import { createLog, type Log, readerOf } from '../log.ts'
import { FileStore } from '../store/file.ts'
import type { LeaseStore } from '../store/lease-store.ts'
import { MeteredStore } from '../store/metered-store.ts'
import { AutoDataplane } from './auto-dataplane.ts'
import { ChosenDataplane } from './chosen-dataplane.ts'
import { DirectRouting } from './direct-routing.ts'
import { ExtensionDataplane } from './extension-dataplane.ts'
import { FamilyDataplanes } from './family-dataplanes.ts'
import { collectEarly } from './heap-growth.ts'
import { HostIntegration } from './host-integration.ts'
import { OwnIdentities } from './identity-claim.ts'
import { IdleDataplane } from './idle-dataplane.ts'
import { NodeAgent } from './node-agent.ts'
import { Operations } from './operations.ts'
import { Seat, seatPlaceOf } from './seats.ts'
import { StateDirectory } from './state-directory.ts'
import { ToldPeers } from './told-peers.ts'
import { UserspaceDataplane, type UserspaceOptions } from './userspace-dataplane.ts'
import { WakeUp } from './wake-up.ts'

/**
 * A stop that takes longer is cut off, in milliseconds: a supervisor's patience is short (10 s and more). What is to be
 * removed takes some programs, and a busy host lets each of them wait.
 */
const STOP_LIMIT_MS = { keep: 1500, remove: 5000 } as const

/**
 * Runs a node until a signal or the loss of its lease. Resolves with the exit code. @throws FlanneletteError at start
 */
export async function runDaemon(options: RunOptions): Promise<number> {
  collectEarly()
  const clock = systemClock()
  const log = openLog(options, clock)
  for (const notice of options.notices) log.warn('option-without-effect', notice)
  const onTerminal = process.stdin.isTTY || process.stderr.isTTY
  const signals = new SignalWait(onTerminal ? [...STOP_SIGNALS, 'SIGHUP'] : STOP_SIGNALS)
  const monotonicMs = () => performance.now()
  const wakeUp = new WakeUp({ clock, monotonicMs, validate: () => agent.wake() })
  const onStandstill: OnStandstill = (standstillMs) => wakeUp.look(standstillMs)
  const doorbell = sharedDoorbell(['link', 'address', 'route'])
  const routes: RouteTools = { log, clock, table: routeTable(), doorbell }
  const tunnel = () => new DirectRouting(createDataplane(options, routes, onStandstill), routes)
  const tunnels = new FamilyDataplanes(tunnel)
  const dataplane = new ChosenDataplane(tunnels, (outline) => withoutTunnel(outline, routes, options))
  const state = new StateDirectory(options.stateDirectory, log)
  const store = new MeteredStore(await openStore(options, log, clock), clock)
  const seat = new Seat(options, log)
  const identities = new OwnIdentities(store.name, log)
  const agent = new NodeAgent({
    store,
    dataplane,
    state,
    hostWork: hostIntegration(options, clock, log, seat),
    claimPlace: (outline) => seat.announce(seatPlaceOf(outline, dataplane.kind)),
    ipMasq: options.ipMasq,
    clock,
    log,
    random: Math.random,
    selectUnderlay: (families) => selectUnderlay(options, {}, families),
    underlayEyes: { doorbell: (ring) => doorbell(ring, (line) => !isRoute(line)), readLink },
    claimIdentity: (publicIp) => identities.claim(publicIp),
    ...(options.publicIp === undefined ? {} : { publicIp: options.publicIp }),
    ...(options.publicIpv6 === undefined ? {} : { publicIpv6: options.publicIpv6 }),
    tunnelFlags: options.tunnelFlags,
    subnetFile: options.subnetFile,
    ...(options.dockerOptsFile === undefined ? {} : { dockerOptsFile: options.dockerOptsFile }),
    renewMarginMs: options.renewMarginMinutes * 60_000,
  })
  if (!onTerminal) process.on('SIGHUP', () => lookAgain(agent, log))
  if (!state.exists) await requireStore(store, clock)
  await state.claim()
  await seat.take()
  const traceable = () => (tunnels.isTraceable ? tunnels : null)
  const operations = new Operations({ agent, dataplane, traceable, store, clock, log, options })
  try {
    await operations.start()
    return await live(agent, operations, signals, options, log)
  } finally {
    operations.stop()
    identities.giveUp()
    seat.leave()
    log.close()
  }
}

function openLog({ logFormat: format, verbose }: RunOptions, clock: Clock) {
  const reader = readerOf(process.stderr, process.env.JOURNAL_STREAM)
  return createLog({ format, level: verbose ? 'debug' : 'info', clock, sink: process.stderr, reader })
}

/** What SIGHUP means to a service, and to whoever sends it to all daemons of a host: no end of the pod network. */
function lookAgain(agent: NodeAgent, log: Log): void {
  const rest = 'flags, variables and the network config take a restart'
  log.info('reload', `SIGHUP: looking at rules, routes and the config in the store now; ${rest}`)
  agent.lookNow()
}

/** A node that remembers nothing cannot start without its store: then not even the state directory is made. */
async function requireStore(store: LeaseStore, clock: Clock): Promise<void> {
  if (store.remote) return // waited for, in the start itself
  try {
    await withDeadline(clock, store.readNetworkConfig(), store.name)
  } catch (error) {
    if (!(error instanceof FlanneletteError) || error.code !== 'config-missing') throw error
  }
}

async function live(agent: NodeAgent, operations: Operations, signals: SignalWait, options: RunOptions, log: Log) {
  const starting = agent.start().then(() => operations.ready())
  starting.catch(() => {}) // a start that a signal interrupted may fail after nobody waits for it any more
  const first = await Promise.race([starting.then(() => 'started' as const), signals.first])
  const event = first === 'started' ? await Promise.race([agent.lost, signals.first]) : first
  if (event instanceof FlanneletteError) return EXIT.failed
  operations.stopping()
  log.info(
    'stopping',
    `${event}: stopping, ${options.onExit === 'keep' ? 'device, routes and rules stay' : 'removing all'}`,
  )
  await Promise.race([agent.stop(options.onExit), cutOff(log, STOP_LIMIT_MS[options.onExit])])
  log.info('stopped', 'stopped')
  return EXIT.ok
}

function cutOff(log: Log, limitMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      log.warn('stop-cut-off', `stopping took longer than ${limitMs} ms and was cut off`)
      resolve()
    }, limitMs)
    timer.unref()
  })
}

const STOP_SIGNALS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT']

/** The first of the signals; a second one ends the process at once, as an impatient person expects. */
class SignalWait {
  readonly first: Promise<NodeJS.Signals>

  /** With a terminal SIGHUP is one of them: it says that the terminal was closed. */
  constructor(names: readonly NodeJS.Signals[]) {
    this.first = new Promise((resolve) => {
      let seen = false
      for (const name of names) {
        process.on(name, () => {
          if (seen) process.exit(EXIT.interrupted)
          seen = true
          resolve(name)
        })
      }
    })
  }
}

/** @throws FlanneletteError `usage` for a store that this version does not know */
async function openStore({ store, etcd }: RunOptions, log: Log, clock: Clock): Promise<LeaseStore> {
  if (store === 'etcd') {
    // Its client is large: only who uses it pays for it.
    const { openEtcdStore } = await import('../store/etcd/etcd-store.ts')
    return openEtcdStore(etcd, { clock, log, random: Math.random })
  }
  const directory = /^file:(.+)$/.exec(store)?.[1]
  if (directory === undefined) {
    const remedy = 'use --store etcd, or --store file:DIRECTORY'
    throw new FlanneletteError('usage', `--store ${store} is not known`, { remedy })
  }
  return new FileStore(resolve(directory), { clock, log, random: Math.random })
}

function hostIntegration(options: RunOptions, clock: Clock, log: Log, seat: Seat): HostIntegration {
  return new HostIntegration({
    seat,
    clock,
    log,
    masquerade: options.ipMasq,
    unmasqueraded: options.ipMasqExclude,
    randomFully: options.ipMasqFullyRandom,
    forwardRules: options.iptablesForwardRules,
    blackholeRoute: options.blackholeRoute,
    resyncMs: options.iptablesResyncSeconds * 1000,
  })
}

type OnStandstill = NonNullable<UserspaceOptions['onStandstill']>

function createDataplane(options: RunOptions, tools: RouteTools, onStandstill: OnStandstill): Dataplane {
  const { log } = tools
  const kernel = () => new KernelVtep({ log, udpChecksum: options.udpChecksum })
  const userspace = () => createUserspace(options, tools, onStandstill)
  if (options.dataplane === 'auto') return new AutoDataplane({ kernel, userspace, obstacle: vxlanObstacle, log })
  return options.dataplane === 'kernel' ? kernel() : userspace()
}

function createUserspace(options: RunOptions, tools: RouteTools, onStandstill: OnStandstill): UserspaceDataplane {
  const { driver, udpGso, tunOffload, outerDf, sourceCheck, sourceAllow, workers, sourcePorts } = options
  return new UserspaceDataplane({
    tools,
    driver,
    udpGso,
    tunOffload,
    outerDf,
    sourceCheck,
    sourceAllow,
    workers,
    sourcePorts,
    onStandstill,
  })
}

/** What serves a backend that tunnels nothing; `null` for one that does. */
function withoutTunnel(
  { plain }: VtepOutline,
  routes: RouteTools,
  { stateDirectory }: Pick<RunOptions, 'stateDirectory'>,
): Dataplane | null {
  const { log } = routes
  if (plain === undefined) return null
  if (plain.type === 'host-gw') return new HostGateway(routes)
  if (plain.type === 'alloc') return new IdleDataplane()
  const told = new ToldPeers(stateDirectory, log)
  return new ExtensionDataplane({ commands: plain.commands, log, environment: withoutFlagVariables(process.env), told })
}
