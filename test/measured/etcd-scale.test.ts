// Ten thousand nodes in etcd: how long a start takes, how soon one change is in force, and what that costs in memory.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { EtcdConnection } from '../../src/store/etcd/connection.ts'
import type { RunningDaemon } from '../support/daemon-under-test.ts'
import { flannelValue, PREFIX, startOnEtcd, Underlay } from '../support/etcd-network.ts'

const NODES = 10_000
const WIDE = '{"Network":"10.0.0.0/8","SubnetLen":24,"Backend":{"Type":"vxlan"}}'
const CHANGES = 41
/** Deadlines; the test fails at three times these. */
const START_MS = 10_000
const CHANGE_MS = 100
/** A limit as it stands: memory does not depend on how busy the machine is. */
const RSS_MB = 250

const publicIpOf = (node: number) => `172.16.${node >> 8}.${node & 255}`
const keyOf = (node: number) => `${PREFIX}/subnets/10.${100 + (node >> 8)}.${node & 255}.0-24`
const macOf = (node: number) => `02:00:00:00:${hex(node >> 8)}:${hex(node & 255)}`
const hex = (octet: number) => octet.toString(16).padStart(2, '0')

async function fill(calls: EtcdConnection): Promise<void> {
  const nowhere = { from: '/nowhere', to: null }
  for (let first = 0; first < NODES; first += 100) {
    const puts = Array.from({ length: 100 }, (_, index) => {
      const node = first + index
      return { key: keyOf(node), value: flannelValue(publicIpOf(node), macOf(node)), leaseId: null }
    })
    await calls.commit({ when: [], puts, readOtherwise: nowhere })
  }
}

/** Resolves with the milliseconds until the daemon forwards by its next table. */
function nextTable(daemon: RunningDaemon, change: () => Promise<unknown>): Promise<number> {
  const seen = () => daemon.output.split('"peers-replaced"').length
  const before = seen()
  const start = performance.now()
  return new Promise((resolve, reject) => {
    const look = setInterval(() => {
      if (seen() > before) {
        clearInterval(look)
        resolve(performance.now() - start)
      }
    }, 1)
    change().catch(reject)
  })
}

function rssMegabytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) / 1024
}

test('10,000 leases: start, one change, memory', async () => {
  const underlay = new Underlay()
  const host = underlay.host(1)
  const etcd = await underlay.etcd()
  etcd.ctl('put', `${PREFIX}/config`, WIDE)
  const calls = underlay.connect(etcd)
  await fill(calls)
  const start = performance.now()
  const daemon = startOnEtcd(host, [etcd])
  await expect.poll(() => daemon.status?.peers.length, { timeout: 3 * START_MS, interval: 20 }).toBe(NODES)
  const startMs = performance.now() - start
  const times: number[] = []
  for (let change = 0; change < CHANGES; change++) {
    await new Promise((resolve) => setTimeout(resolve, 200))
    const put = { key: keyOf(change), value: flannelValue(publicIpOf(change), macOf(change + 1)), leaseId: null }
    times.push(
      await nextTable(daemon, () => calls.commit({ when: [], puts: [put], readOtherwise: { from: '/', to: null } })),
    )
  }
  times.sort((a, b) => a - b)
  const medianMs = times[CHANGES >> 1]!
  const rss = rssMegabytes(daemon.pid)
  console.log(
    `10,000 leases: start ${startMs.toFixed(0)} ms, change median ${medianMs.toFixed(0)} ms ` +
      `(least ${times[0]!.toFixed(0)}, most ${times.at(-1)!.toFixed(0)}), resident ${rss.toFixed(0)} MB`,
  )
  expect(startMs).toBeLessThan(3 * START_MS)
  expect(medianMs).toBeLessThan(3 * CHANGE_MS)
  expect(rss).toBeLessThan(RSS_MB)
})
