// Prometheus' view of a node: names, units and labels are a promise (docs/operations.md). Nothing is counted here: each
// scrape reads what dataplane, agent and store have counted; what nobody counts is not there, rather than 0. Loaded
// only by a daemon that is asked for metrics.
import { Counter, type CounterConfiguration, Gauge, Registry } from 'prom-client'
import { DROP_REASONS, type DropReason, MESSAGE_SIZES } from '../../dataplane/index.ts'
import type { OperationCount } from '../store/metered-store.ts'
import { dropCounts } from './drop-counts.ts'

/** What a scrape needs to know. Times are seconds since 1970. */
export interface MetricFacts {
  readonly version: string
  readonly counters: Readonly<Record<string, number>>
  readonly forwardingEntries: number
  readonly pendingEntries: number
  readonly generation: number
  /** `null` without a lease, infinite for a reservation. */
  readonly leaseExpiry: number | null
  readonly conflicts: number
  readonly storeLastSuccess: number | null
  readonly storeOperations: readonly OperationCount[]
  readonly workerRestarts: readonly number[]
  /** `null` where nothing can be traced. */
  readonly lostTraceRecords: number | null
  /** By public IP, 0 for a peer that nothing came from yet; `null` leaves peers out. */
  readonly peersLastReceive: readonly (readonly [node: string, seconds: number])[] | null
  /** Largest packets of pods that reach peers whole, by public IP, where the way is known to take less than the MTU. */
  readonly pathMtus: readonly (readonly [node: string, bytes: number])[]
}

type Labels = Readonly<Record<string, string>>
type Row = readonly [value: number, labels?: Labels]

const CALLS = {
  tun_read: 'outbound.calls.read',
  udp_send: 'outbound.calls.send',
  udp_receive: 'inbound.calls.receive',
  tun_write: 'inbound.calls.write',
} as const

export class Metrics {
  readonly #registry = new Registry()
  readonly #source: () => MetricFacts
  #facts!: MetricFacts

  constructor(source: () => MetricFacts) {
    this.#source = source
    this.#gauge('build_info', 'Version of flannelette and of Node.', ['version', 'node'], ({ version }) => [
      [1, { version, node: process.version }],
    ])
    this.#traffic()
    this.#table()
    this.#storeAndWorkers()
  }

  /** The page in Prometheus' text format. */
  async page(): Promise<{ readonly type: string; readonly text: string }> {
    this.#facts = this.#source()
    return { type: this.#registry.contentType, text: await this.#registry.metrics() }
  }

  #traffic(): void {
    const labels = ['direction', 'side']
    const about = 'by direction and the side of the node they were seen at'
    this.#counter('packets_total', `Packets of pods ${about}.`, labels, (facts) => sides(facts, 'packets'))
    this.#counter('packet_bytes_total', `Bytes of packets ${about}.`, labels, (facts) => sides(facts, 'bytes'))
    this.#counter('dropped_packets_total', 'Packets that were not passed on.', ['direction', 'reason'], drops)
    this.#counter('io_calls_total', 'System calls that moved packets.', ['call'], ({ counters }) =>
      Object.entries(CALLS).flatMap(([call, name]) => counted(counters, name, { call })),
    )
    this.#counter('socket_dropped_datagrams_total', "Datagrams lost by the socket's full queue.", [], ({ counters }) =>
      counted(counters, 'inbound.lost.rx-queue-full'),
    )
    this.#batches()
  }

  #table(): void {
    this.#gauge('forwarding_entries', 'Prefixes that packets are forwarded by.', [], (facts) => [
      [facts.forwardingEntries],
    ])
    this.#gauge('pending_entries', 'Prefixes of peers that packets are not sent to for now.', [], (facts) => [
      [facts.pendingEntries],
    ])
    this.#gauge('forwarding_generation', 'Number of the forwarding table in force.', [], ({ generation }) => [
      [generation],
    ])
    this.#gauge('lease_expiry_timestamp_seconds', 'When the own lease ends unless renewed.', [], ({ leaseExpiry }) =>
      leaseExpiry === null ? [] : [[leaseExpiry]],
    )
    this.#gauge('lease_conflicts', 'Pairs of leases that contradict each other.', [], ({ conflicts }) => [[conflicts]])
    this.#gauge(
      'peer_last_receive_timestamp_seconds',
      'When a packet of that peer came last, 0 for never.',
      ['node'],
      ({ peersLastReceive }) => (peersLastReceive ?? []).map(([node, seconds]) => [seconds, { node }]),
    )
    this.#gauge(
      'peer_path_mtu_bytes',
      'Largest packet of pods that reaches the peer whole, where the way takes less than the MTU.',
      ['node'],
      ({ pathMtus }) => pathMtus.map(([node, bytes]) => [bytes, { node }]),
    )
  }

  #storeAndWorkers(): void {
    this.#gauge('store_last_success_timestamp_seconds', 'When the lease store last answered.', [], (facts) =>
      facts.storeLastSuccess === null ? [] : [[facts.storeLastSuccess]],
    )
    this.#counter('store_requests_total', 'Requests to the lease store.', ['operation', 'result'], (facts) =>
      facts.storeOperations.flatMap(({ operation, ok, failed }): Row[] => [
        [ok, { operation, result: 'ok' }],
        [failed, { operation, result: 'failed' }],
      ]),
    )
    this.#counter('worker_restarts_total', 'Threads that died and were replaced.', ['worker'], ({ workerRestarts }) =>
      workerRestarts.map((times, worker) => [times, { worker: String(worker) }]),
    )
    this.#counter('trace_lost_records_total', 'Recorded steps that a reader was too slow for.', [], (facts) =>
      facts.lostTraceRecords === null ? [] : [[facts.lostTraceRecords]],
    )
  }

  /** prom-client's own histogram only observes; this one was counted elsewhere. */
  #batches(): void {
    const name = 'flannelette_batch_packets'
    const help = 'Packets that were sent by one message.'
    const get = async () => {
      const { counters } = this.#facts
      const packets = counters['outbound.messages.packets']
      if (packets === undefined) return { name, help, type: 'histogram', values: [] }
      let count = 0
      const buckets = MESSAGE_SIZES.map((le) => {
        count += counters[`outbound.messages.up-to-${le}`] ?? 0
        return { metricName: `${name}_bucket`, labels: { le }, value: count }
      })
      const rest = [
        { metricName: `${name}_bucket`, labels: { le: '+Inf' }, value: count },
        { metricName: `${name}_sum`, labels: {}, value: packets },
        { metricName: `${name}_count`, labels: {}, value: count },
      ]
      return { name, help, type: 'histogram', values: [...buckets, ...rest] }
    }
    this.#registry.registerMetric({ name, get, reset: () => {} } as never)
  }

  /** Without labels a metric is 0 after a reset; one of nothing to say shall not be there at all. */
  #counter(name: string, help: string, labelNames: string[], rows: (facts: MetricFacts) => Row[]): void {
    const facts = () => this.#facts
    const settings: CounterConfiguration<string> = {
      ...{ name: `flannelette_${name}`, help, labelNames, registers: [this.#registry] },
      collect() {
        this.reset()
        if (labelNames.length === 0) this.remove()
        for (const [value, labels] of rows(facts())) this.inc(labels ?? {}, value)
      },
    }
    new Counter(settings)
  }

  #gauge(name: string, help: string, labelNames: string[], rows: (facts: MetricFacts) => Row[]): void {
    const facts = () => this.#facts
    new Gauge({
      ...{ name: `flannelette_${name}`, help, labelNames, registers: [this.#registry] },
      collect() {
        this.reset()
        if (labelNames.length === 0) this.remove()
        for (const [value, labels] of rows(facts())) this.set(labels ?? {}, value)
      },
    })
  }
}

function sides({ counters }: MetricFacts, unit: 'packets' | 'bytes'): Row[] {
  return [
    ...counted(counters, `outbound.${unit}.read`, { direction: 'outbound', side: 'overlay' }),
    ...counted(counters, `outbound.${unit}.passed`, { direction: 'outbound', side: 'underlay' }),
    ...counted(counters, `inbound.${unit}.read`, { direction: 'inbound', side: 'underlay' }),
    ...counted(counters, `inbound.${unit}.passed`, { direction: 'inbound', side: 'overlay' }),
  ]
}

/** The row of a counter, none where nobody counts it. */
function counted(counters: MetricFacts['counters'], name: string, labels: Labels = {}): Row[] {
  const value = counters[name]
  return value === undefined ? [] : [[value, labels]]
}

/** Each reason in each direction in which it can be met, with 0 as well. */
function drops({ counters }: MetricFacts): Row[] {
  return dropCounts(counters)
    .filter(({ reason, direction, packets }) => packets > 0 || isMetIn(reason, direction))
    .map(({ reason, direction, packets }) => [packets, { direction, reason }])
}

function isMetIn(reason: string, direction: string): boolean {
  const where = DROP_REASONS[reason as DropReason]?.where ?? 'both'
  return where === 'both' || where === direction
}
