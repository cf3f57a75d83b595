// Everything by which a running node is looked at: status.json, the local socket, probes and metrics over HTTP,
// systemd. One place, so that all of them say the same; none of them touches what it looks at.
import { join } from 'node:path'
import type { Clock, Timer } from '../clock.ts'
import type { ListenAddress, RunOptions } from '../config/options.ts'
import type { Dataplane } from '../host/dataplane.ts'
import type { Pending } from '../host/pending.ts'
import type { Log } from '../log.ts'
import { packageVersion } from '../package-version.ts'
import type { MeteredStore } from '../store/metered-store.ts'
import { API_SOCKET, ApiServer, type Traceable } from './api-server.ts'
import { every, HealthWatch, LoopLag } from './health.ts'
import type { MetricFacts, Metrics } from './metrics.ts'
import type { NodeAgent } from './node-agent.ts'
import { PeerWatch } from './peer-watch.ts'
import { listenersOf, ProbeServer } from './probe-server.ts'
import { type DaemonStatus, StatusFile, statusOf } from './status-file.ts'
import { statusLine } from './status-line.ts'
import { SystemdNotifier } from './systemd.ts'

/** How often systemd gets a new line, if there is one, milliseconds. */
const STATUS_LINE_MS = 1000

export interface OperationsOptions {
  readonly agent: NodeAgent
  readonly dataplane: Dataplane
  /** What can record steps by now, `null` when nothing does. */
  readonly traceable: () => Traceable | null
  readonly store: MeteredStore
  readonly clock: Clock
  readonly log: Log
  readonly options: Pick<
    RunOptions,
    'stateDirectory' | 'apiSocket' | 'healthzIp' | 'healthzPort' | 'metricsAddress' | 'metricsPeers'
  >
}

export class Operations {
  readonly #parts: OperationsOptions
  readonly #lag = new LoopLag()
  readonly #health: HealthWatch
  readonly #watch = new PeerWatch()
  readonly #file: StatusFile
  readonly #api: ApiServer
  readonly #probes: ProbeServer
  #metrics: Metrics | null = null
  #systemd: SystemdNotifier | null = null
  #timer: Timer | null = null

  constructor(parts: OperationsOptions) {
    const { agent, dataplane, traceable, clock, options } = parts
    this.#parts = parts
    this.#health = new HealthWatch(agent, dataplane, () => this.#lag.lagMs)
    this.#file = new StatusFile(options.stateDirectory, clock, () => this.#status())
    this.#api = new ApiServer({
      path: options.apiSocket ?? join(options.stateDirectory, API_SOCKET),
      traceable,
      status: () => this.#status(),
    })
    const health: ListenAddress | null =
      options.healthzPort === 0 ? null : { host: options.healthzIp, port: options.healthzPort }
    this.#probes = new ProbeServer({
      listeners: listenersOf(health, options.metricsAddress ?? null),
      health: () => this.#health.look(),
      metrics: () => this.#metrics!.page(),
    })
  }

  /** Before the node starts: who asks meanwhile is told that it does. @throws FlanneletteError `port-busy`, `usage` */
  async start(): Promise<void> {
    const { options, log, clock } = this.#parts
    this.#lag.start()
    if (options.metricsAddress !== undefined) {
      const { Metrics } = await import('./metrics.ts')
      this.#metrics = new Metrics(() => this.#facts())
    }
    await this.#probes.start()
    await this.#api.start()
    this.#systemd = await SystemdNotifier.fromEnvironment(process.env, log)
    this.#file.start()
    this.#sayStatus()
    if (this.#systemd !== null) this.#timer = every(clock, STATUS_LINE_MS, () => this.#sayStatus())
  }

  /** The node forwards. */
  ready(): void {
    this.#file.write()
    this.#sayStatus()
    this.#systemd?.ready()
  }

  stopping(): void {
    this.#sayStatus()
    this.#systemd?.stopping()
  }

  stop(): void {
    this.#timer?.cancel()
    this.#lag.stop()
    this.#probes.stop()
    this.#api.stop()
    this.#file.stop()
    this.#systemd?.close()
  }

  #status() {
    const { agent, dataplane, clock } = this.#parts
    return statusOf(agent, dataplane, clock, { watch: this.#watch, health: this.#health })
  }

  /** What cannot be told now is told later: a status is no duty. */
  #sayStatus(): void {
    if (this.#systemd === null) return
    try {
      this.#systemd.status(statusLine(this.#status()))
    } catch {
      // without files left to open, the kernel's counters cannot be read
    }
  }

  #facts(): MetricFacts {
    const { agent, dataplane, store, options } = this.#parts
    const status = this.#status()
    const { manager, peers } = agent
    const expiresAtMs = manager?.lease.expiresAtMs ?? Number.POSITIVE_INFINITY
    const entries = countEntries(status.peers, peers.pending)
    const seconds = (iso: string | null | undefined) => (iso == null ? 0 : Date.parse(iso) / 1000)
    return {
      version: packageVersion(),
      counters: status.counters,
      forwardingEntries: entries.inForce,
      pendingEntries: entries.pending,
      generation: status.generation,
      leaseExpiry: manager === null ? null : expiresAtMs / 1000,
      conflicts: peers.conflicts.length,
      storeLastSuccess: store.lastSuccessWallMs === null ? null : store.lastSuccessWallMs / 1000,
      storeOperations: store.operations,
      workerRestarts: dataplane.books?.workerRestarts() ?? [],
      lostTraceRecords: dataplane.kind === 'userspace' ? this.#api.lostSteps : null,
      peersLastReceive:
        options.metricsPeers && dataplane.books !== undefined
          ? status.peers.map(({ publicIp, traffic }) => [publicIp, seconds(traffic?.lastReceived)] as const)
          : null,
      pathMtus: status.peers.flatMap(({ publicIp, pathMtu }) =>
        pathMtu === null || !options.metricsPeers ? [] : [[publicIp, pathMtu] as const],
      ),
    }
  }
}

type Subnets = Pick<DaemonStatus['peers'][number], 'subnet' | 'ipv6Subnet'>

/** Prefixes of peers: how many packets are forwarded by, and how many are pending. */
export function countEntries(
  peers: readonly Subnets[],
  pending: Pending,
): { readonly inForce: number; readonly pending: number } {
  let [all, waiting] = [0, 0]
  for (const { subnet, ipv6Subnet } of peers) {
    // A peer without IPv4 is known by its IPv6 subnet: that is one entry.
    for (const prefix of new Set([subnet, ipv6Subnet])) {
      if (prefix === null) continue
      all += 1
      if (pending.has(prefix)) waiting += 1
    }
  }
  return { inForce: all - waiting, pending: waiting }
}
