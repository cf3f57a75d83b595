// status.json in the state directory: what `flannelette lab status` and people with `jq` read. Rewritten when it
// changed, looked at once a second, less often where a look takes long. The shape is a promise: fields are added, never renamed, and `version` counts the
// breaks.
import { type FeatureName, formatAddress, formatMac, formatPrefix } from '../../dataplane/index.ts'
import { writeFileAtomically } from '../atomic-file.ts'
import type { Clock, Timer } from '../clock.ts'
import type { Dataplane, LocalVtep } from '../host/dataplane.ts'
import { describeConflict } from '../lease/diff.ts'
import { identityInWords } from '../lease/lease.ts'
import type { AgentState } from './agent-options.ts'
import type { Health } from './health.ts'
import { isoOrNull, type LeaseStatus, leaseStatus } from './lease-status.ts'
import type { NodeAgent } from './node-agent.ts'
import { type PeerStatus, peerStatuses } from './peer-status.ts'
import { PeerWatch } from './peer-watch.ts'
import { type UnreadableLeases, unreadableLeases } from './unreadable-leases.ts'

export const STATUS_FILE = 'status.json'
const PERIOD_MS = 1000
/** With ten thousand peers a look takes a fifth of a second, in which no change of a lease is heard. */
const LARGEST_SHARE = 1 / 20

export interface DaemonStatus {
  readonly version: 1
  /** When this state was first seen, ISO 8601. */
  readonly since: string
  readonly pid: number
  readonly state: AgentState
  readonly dataplane: Dataplane['kind']
  /** Why it is this one, `null` where a person said so. */
  readonly dataplaneWhy: string | null
  /** By what the underlay can tell flows apart. */
  readonly entropy: string
  readonly driver: Dataplane['driver']
  /** DF of tunnel packets. */
  readonly outerDf: 'clear' | 'set'
  /** What the kernel does for the driver, by name; see dataplane/io/feature.ts. */
  readonly features: Readonly<Partial<Record<FeatureName, { readonly on: boolean; readonly why: string }>>>
  readonly store: { readonly name: string; readonly reachable: boolean; readonly why: string }
  readonly node: {
    readonly device: string
    readonly vni: number
    readonly port: number
    readonly mac: string
    readonly underlayInterface: string
    readonly underlayAddress: string
    readonly overlayAddress: string
    readonly network: string
    /** `null` when the node carries IPv4 only. */
    readonly overlayIpv6: string | null
    readonly ipv6Network: string | null
    readonly mtu: number
    /** The device that IPv6 has to itself, `null` without one. */
    readonly ipv6Device?: {
      readonly device: string
      readonly mac: string
      readonly underlayAddress: string
      readonly mtu: number
    } | null
  } | null
  readonly lease:
    | (LeaseStatus & { readonly state: string; readonly renewedAt: string | null; readonly renewsAt: string | null })
    | null
  /** Forwarding table: generation, and the peers behind it in address order. */
  readonly generation: number
  readonly peers: readonly PeerStatus[]
  /** With a subnet that is pending: its way is `none`. */
  readonly pendingPeers: number
  readonly leftOut: readonly {
    readonly subnet: string
    readonly publicIp: string
    readonly reason: string
    readonly detail: string
  }[]
  readonly conflicts: readonly string[]
  /** Entries of the store that hold no lease. */
  readonly unreadableLeases?: UnreadableLeases
  /** `null` when nobody judges it. */
  readonly health: Health | null
  /** What the node lacks of rules and routes on its host, `null` when nothing. */
  readonly hostProblem: string | null
  /** Who was refused by the source check lately, the latest first, at most 32. */
  readonly offenders: readonly {
    readonly outerSource: string
    readonly innerSource: string
    readonly reason: string
    readonly packets: number
    /** ISO 8601. */
    readonly lastSeen: string
  }[]
  readonly counters: Readonly<Record<string, number>>
}

/** What remembers from one status to the next. */
export interface StatusMemory {
  readonly watch: PeerWatch
  readonly health: { look(): Health } | null
}

/** Everything there is to say of an agent now. */
export function statusOf(
  agent: NodeAgent,
  dataplane: Dataplane,
  clock: Clock,
  memory: StatusMemory = { watch: new PeerWatch(), health: null },
): DaemonStatus {
  const { local, manager, peers } = agent
  // Before the features: what the counters tell of a downgrade is part of these.
  const counters = local === null ? {} : dataplane.counters()
  return {
    version: 1,
    since: new Date(clock.wallMs()).toISOString(),
    pid: process.pid,
    state: agent.state,
    dataplane: dataplane.kind,
    dataplaneWhy: dataplane.why ?? null,
    entropy: dataplane.entropy,
    driver: dataplane.driver,
    outerDf: dataplane.outerDf ?? 'clear',
    features: Object.fromEntries((dataplane.books?.features() ?? []).map(({ name, on, why }) => [name, { on, why }])),
    store: agent.store,
    node: local === null ? null : nodeStatus(local),
    lease:
      manager === null
        ? null
        : {
            ...leaseStatus(manager.lease),
            state: manager.state,
            renewedAt: isoOrNull(manager.lastRenewalWallMs),
            renewsAt: isoOrNull(toWallSecond(clock, manager.renewalDueInMs)),
          },
    generation: peers.generation,
    peers: peerStatuses(peers, dataplane, clock, memory.watch),
    pendingPeers: peers.pendingCount,
    leftOut: peers.leftOut.map(({ lease, subnet, reason, detail }) => {
      return { subnet, publicIp: identityInWords(lease.attributes), reason, detail }
    }),
    conflicts: peers.conflicts.map(describeConflict),
    unreadableLeases: unreadableLeases(manager?.unreadable ?? []),
    health: memory.health?.look() ?? null,
    hostProblem: agent.hostProblem,
    offenders: (dataplane.books?.offenders() ?? []).map(({ outerSource, innerSource, reason, packets, lastSeenMs }) => {
      const [outer, inner] = [formatAddress(outerSource), formatAddress(innerSource)]
      return { outerSource: outer, innerSource: inner, reason, packets, lastSeen: new Date(lastSeenMs).toISOString() }
    }),
    counters,
  }
}

/** Keeps `<directory>/status.json` up to date until `stop`, which writes it a last time. */
export class StatusFile {
  readonly #path: string
  readonly #clock: Clock
  readonly #status: () => DaemonStatus
  #last = ''
  #timer: Timer | null = null

  constructor(directory: string, clock: Clock, status: () => DaemonStatus) {
    this.#path = `${directory}/${STATUS_FILE}`
    this.#clock = clock
    this.#status = status
  }

  start(): void {
    const start = this.#clock.bootMs()
    this.write()
    const tookMs = this.#clock.bootMs() - start
    this.#timer = this.#clock.after(Math.max(PERIOD_MS, tookMs / LARGEST_SHARE), () => this.start())
  }

  /** Writes the file if anything but the time differs. A failure is left to the next second: status is no duty. */
  write(): void {
    try {
      const { since, ...rest } = this.#status()
      const text = JSON.stringify(rest, null, 2)
      if (text === this.#last) return
      // Made once: with ten thousand peers it is megabytes.
      const content = `{\n  "since": ${JSON.stringify(since)},${text.slice(1)}\n`
      writeFileAtomically(this.#path, content, { mode: 0o644, durable: false })
      this.#last = text
    } catch {
      this.#last = ''
    }
  }

  stop(): void {
    this.#timer?.cancel()
    this.write()
  }
}

function nodeStatus(local: LocalVtep): DaemonStatus['node'] {
  return {
    device: local.deviceName,
    vni: local.vni,
    port: local.port,
    mac: formatMac(local.mac),
    underlayInterface: local.underlayInterface,
    underlayAddress: formatAddress(local.underlayAddress),
    overlayAddress: formatAddress(local.overlayAddress),
    network: formatPrefix(local.network ?? local.ipv6Network!),
    overlayIpv6: local.ipv6Subnet === null ? null : formatAddress(local.ipv6Subnet.address),
    ipv6Network: local.ipv6Network === null ? null : formatPrefix(local.ipv6Network),
    mtu: local.mtuBytes,
    ipv6Device: ipv6DeviceStatus(local),
  }
}

function ipv6DeviceStatus({ ipv6Device }: LocalVtep) {
  if (ipv6Device === undefined) return null
  const { deviceName: device, mac, underlayAddress, mtuBytes: mtu } = ipv6Device
  return { device, mac: formatMac(mac), underlayAddress: formatAddress(underlayAddress), mtu }
}

/** In whole seconds: what is computed anew each time should not look new each time. */
function toWallSecond(clock: Clock, inMs: number | null): number | null {
  return inMs === null ? null : Math.round((clock.wallMs() + inMs) / 1000) * 1000
}
