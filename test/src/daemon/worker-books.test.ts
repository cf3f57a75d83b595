// What an engine has counted, over a change of its workers.
import { expect, test } from 'vitest'
import { works } from '../../../dataplane/io/feature.ts'
import { type CountingWorkers, WorkerBooks } from '../../../src/daemon/worker-books.ts'
import { ip } from '../../support/packets.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const PEER = ip('192.0.2.2')
const traffic = (packets: number, atMs: number) => ({
  ...{ sentPackets: packets, sentBytes: 100 * packets, lastSentMs: atMs },
  ...{ receivedPackets: 0, receivedBytes: 0, lastReceivedMs: 0 },
})

function workers(packets: number, more: Record<string, number> = {}): CountingWorkers {
  return {
    counters: () => ({ 'outbound.packets.read': packets, 'socket.overflowed': 1, ...more }),
    traffic: () => new Map([[PEER, traffic(packets, packets)]]),
    pathLimits: () => new Map([[PEER, 1350]]),
    restarts: () => [packets, 0],
  }
}

function books() {
  const log = new RecordingLog()
  return { log, books: new WorkerBooks(log) }
}

test('before the first workers all is empty', () => {
  const { books: empty } = books()
  expect([empty.traffic().size, empty.pathLimits().size]).toEqual([0, 0])
  expect([empty.features(), empty.offenders(), empty.workerRestarts()]).toEqual([[], [], []])
})

test('workers go on with the counts of those before', () => {
  const { books: open } = books()
  open.open(workers(3))
  open.close()
  open.open(workers(4))
  expect(open.counters()).toEqual({ 'outbound.packets.read': 7, 'inbound.lost.rx-queue-full': 2 })
  expect(open.traffic().get(PEER)).toMatchObject({ sentPackets: 7, sentBytes: 700, lastSentMs: 4 })
  expect(open.workerRestarts()).toEqual([7, 0])
})

test('what was counted outlives the workers, and limits of ways do not', () => {
  const { books: closed } = books()
  closed.open(workers(3))
  closed.close()
  expect(closed.traffic().get(PEER)).toMatchObject({ sentPackets: 3 })
  expect([closed.workerRestarts(), closed.pathLimits().size]).toEqual([[3, 0], 0])
})

test('a feature that the kernel refuses at work is told once, and tried again with new workers', () => {
  const { books: open, log } = books()
  const refusing = workers(1, { 'downgrade.udp-gso': 1 })
  const isUsed = () => open.features().map(({ on }) => on)
  open.begin([works('udp-gso', 'probed')])
  open.open(refusing)
  expect(isUsed()).toEqual([true])
  open.counters()
  expect([open.counters()['downgrade.udp-gso'], isUsed(), log.of('downgrade').length]).toEqual([1, [false], 1])
  open.close()
  open.begin([works('udp-gso', 'probed')])
  open.open(workers(1))
  expect([open.counters()['downgrade.udp-gso'], isUsed()]).toEqual([0, [true]])
})
