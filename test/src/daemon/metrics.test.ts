// The metrics page: exactly the names that were promised, every label from the start, values as counted.
import { expect, test } from 'vitest'
import { Counters } from '../../../dataplane/engine/counters.ts'
import { DROP_REASON_NAMES } from '../../../dataplane/index.ts'
import { type MetricFacts, Metrics } from '../../../src/daemon/metrics.ts'
import { STORE_OPERATIONS } from '../../../src/store/metered-store.ts'
import { METRIC_NAMES } from '../../support/metric-names.ts'

const NONE: MetricFacts = {
  version: '1.2.3',
  counters: {},
  forwardingEntries: 0,
  pendingEntries: 0,
  generation: 0,
  leaseExpiry: null,
  conflicts: 0,
  storeLastSuccess: null,
  storeOperations: STORE_OPERATIONS.map((operation) => ({ operation, ok: 0, failed: 0 })),
  workerRestarts: [0, 0],
  lostTraceRecords: 0,
  peersLastReceive: [],
  pathMtus: [],
}

async function page(facts: Partial<MetricFacts> = {}): Promise<string[]> {
  const { text } = await new Metrics(() => ({ ...NONE, ...facts })).page()
  return text.split('\n')
}

const valuesOf = (lines: readonly string[], name: string) =>
  lines.filter((line) => new RegExp(`^flannelette_${name}[ {]`).test(line))

test('the names are those that were promised', async () => {
  const types = (await page()).filter((line) => line.startsWith('# TYPE'))
  expect(types.map((line) => line.split(' ')[2]).sort()).toEqual([...METRIC_NAMES].sort())
})

test('every drop reason of an engine is there from the start, with 0', async () => {
  const lines = valuesOf(await page({ counters: new Counters().snapshot() }), 'dropped_packets_total')
  for (const reason of DROP_REASON_NAMES) {
    expect(lines.filter((line) => line.includes(`reason="${reason}"`) && line.endsWith(' 0')).length).toBeGreaterThan(0)
  }
})

test('drops of the engine and of the kernel before it are told by direction and reason', async () => {
  const lines = await page({ counters: { 'outbound.dropped.no-route': 7, 'inbound.lost.rx-queue-full': 3 } })
  expect(lines).toContain('flannelette_dropped_packets_total{direction="outbound",reason="no-route"} 7')
  expect(lines).toContain('flannelette_dropped_packets_total{direction="inbound",reason="rx-queue-full"} 3')
  expect(lines).toContain('flannelette_socket_dropped_datagrams_total 3')
})

test('what nobody counts has no value, rather than 0', async () => {
  const kernel = { 'outbound.packets.passed': 6, 'inbound.bytes.passed': 90, 'inbound.dropped': 3, 'inbound.errors': 1 }
  const lines = await page({ counters: kernel, workerRestarts: [], peersLastReceive: null, lostTraceRecords: null })
  const ofTraffic = ['packets_total', 'packet_bytes_total', 'dropped_packets_total', 'io_calls_total']
  const others = [
    'batch_packets\\w*',
    'socket_dropped_datagrams_total',
    'worker_restarts_total',
    'trace_lost_records_total',
  ]
  expect([...ofTraffic, ...others].flatMap((name) => valuesOf(lines, name))).toEqual([
    'flannelette_packets_total{direction="outbound",side="underlay"} 6',
    'flannelette_packet_bytes_total{direction="inbound",side="overlay"} 90',
    'flannelette_dropped_packets_total{direction="inbound",reason="kernel"} 4',
  ])
})

test('packets and bytes are told by direction and side', async () => {
  const counters = { 'outbound.packets.read': 5, 'outbound.packets.passed': 4, 'inbound.bytes.passed': 90 }
  const lines = await page({ counters })
  expect(lines).toContain('flannelette_packets_total{direction="outbound",side="overlay"} 5')
  expect(lines).toContain('flannelette_packets_total{direction="outbound",side="underlay"} 4')
  expect(lines).toContain('flannelette_packet_bytes_total{direction="inbound",side="overlay"} 90')
})

test('message sizes are a cumulative histogram', async () => {
  const counters = { 'outbound.messages.up-to-1': 3, 'outbound.messages.up-to-8': 2, 'outbound.messages.packets': 14 }
  const lines = valuesOf(await page({ counters }), 'batch_packets_\\w+')
  expect(lines.map((line) => line.replace('flannelette_batch_packets_', ''))).toEqual([
    ...['1', '2', '4'].map((le) => `bucket{le="${le}"} 3`),
    ...['8', '16', '32', '64', '128', '+Inf'].map((le) => `bucket{le="${le}"} 5`),
    'sum 14',
    'count 5',
  ])
})

test('what is not known yet is not there; a reservation never ends', async () => {
  expect(valuesOf(await page(), 'lease_expiry_timestamp_seconds')).toEqual([])
  expect(valuesOf(await page(), 'store_last_success_timestamp_seconds')).toEqual([])
  const lines = await page({ leaseExpiry: Number.POSITIVE_INFINITY, storeLastSuccess: 12.5 })
  expect(lines).toContain('flannelette_lease_expiry_timestamp_seconds +Inf')
  expect(lines).toContain('flannelette_store_last_success_timestamp_seconds 12.5')
})

test('prefixes that are forwarded by, and those that are pending, are two numbers', async () => {
  const lines = await page({ forwardingEntries: 7, pendingEntries: 2 })
  expect([...valuesOf(lines, 'forwarding_entries'), ...valuesOf(lines, 'pending_entries')]).toEqual([
    'flannelette_forwarding_entries 7',
    'flannelette_pending_entries 2',
  ])
})

test('a peer has a path MTU while the way to it is limited', async () => {
  const pathMtus = [['192.0.2.2', 1350]] as const
  expect(valuesOf(await page({ pathMtus }), 'peer_path_mtu_bytes')).toEqual([
    'flannelette_peer_path_mtu_bytes{node="192.0.2.2"} 1350',
  ])
  expect(valuesOf(await page(), 'peer_path_mtu_bytes')).toEqual([])
})

test('leases that contradict each other are told by their number', async () => {
  expect(await page()).toContain('flannelette_lease_conflicts 0')
  expect(await page({ conflicts: 2 })).toContain('flannelette_lease_conflicts 2')
})

test('peers have a series each unless they are switched off, and lose it when they go', async () => {
  let peersLastReceive: MetricFacts['peersLastReceive'] = [['192.0.2.2', 0]]
  const metrics = new Metrics(() => ({ ...NONE, peersLastReceive }))
  const series = async () => valuesOf((await metrics.page()).text.split('\n'), 'peer_last_receive_timestamp_seconds')
  expect(await series()).toEqual(['flannelette_peer_last_receive_timestamp_seconds{node="192.0.2.2"} 0'])
  peersLastReceive = [['192.0.2.3', 9]]
  expect(await series()).toEqual(['flannelette_peer_last_receive_timestamp_seconds{node="192.0.2.3"} 9'])
  peersLastReceive = null
  expect(await series()).toEqual([])
})

test('store requests are told by operation and result, restarts by worker', async () => {
  const lines = await page({ workerRestarts: [0, 2], storeOperations: [{ operation: 'renew', ok: 4, failed: 1 }] })
  expect(lines).toContain('flannelette_store_requests_total{operation="renew",result="failed"} 1')
  expect(lines).toContain('flannelette_worker_restarts_total{worker="1"} 2')
})

test('a second scrape tells sums, not sums of sums', async () => {
  const metrics = new Metrics(() => ({ ...NONE, counters: { 'outbound.calls.read': 5 } }))
  await metrics.page()
  expect((await metrics.page()).text).toContain('flannelette_io_calls_total{call="tun_read"} 5\n')
})
