// A hundred thousand leases in a store: while the main thread works through them and the table is swapped, again and
// again, the worker forwards as if nothing was.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { formatMac } from '../../dataplane/wire/address.ts'
import { systemClock } from '../../src/clock.ts'
import { forwardingEntries } from '../../src/daemon/forwarding-entries.ts'
import { PeerUpdates } from '../../src/daemon/peer-updates.ts'
import { inNamespace } from '../../src/host/command.ts'
import type { Lease } from '../../src/lease/lease.ts'
import { silentLog } from '../../src/log.ts'
import { MemoryLeases } from '../../src/store/memory.ts'
import { entryFor, VNI } from '../support/engine-pair.ts'
import { FakeDataplane } from '../support/fake-dataplane.ts'
import { peerLease } from '../support/peer-lease.ts'
import { FAR_POD, HERE, POD, runningWorkers, THERE, UNDERLAY_PORT } from '../support/running-worker.ts'
import { ROOT } from '../support/source-tree.ts'

const LEASES = 100_000
const SWAPS = 8
/**
 * Longest time without a packet; the test fails at three times this. A swap that stopped the worker would take more.
 */
const GAP_MS = 50

/** /26 subnets of 11.0.0.0/8. */
const NETWORKS = { network: null, ipv6Network: null }

function manyLeases(): Lease[] {
  const one = peerLease('11.0.0.0/26', '172.16.0.0', formatMac(THERE.mac))
  return Array.from({ length: LEASES }, (_, node) => ({
    ...one,
    subnet: { address: 0x0b00_0000 + node * 64, length: 26 },
    attributes: { ...one.attributes, publicIp: 0xac10_0000 + node },
  }))
}

test('100,000 leases: no pause in forwarding while their table is swapped', async () => {
  const { namespace, group } = await runningWorkers(1)
  const clock = systemClock()
  const shared = new MemoryLeases(clock, null)
  const own = { ...peerLease('10.244.1.0/24', HERE.underlay, formatMac(HERE.mac)), expiresAtMs: null }
  const dataplane = new FakeDataplane()
  // The far node lives on this loopback, at an address that no lease may have.
  const tunnel = { encapsulation: 'vxlan', underlayAddress: 1, ipv6Network: null } as const
  const local = { ...tunnel, port: UNDERLAY_PORT, vni: VNI }
  dataplane.replacePeers = (peers) => group.replaceTable([entryFor(THERE), ...forwardingEntries(peers, local)])
  const updates = new PeerUpdates({ dataplane, clock, log: silentLog })
  const leases = manyLeases()
  await updates.offer(leases, own, NETWORKS, 'first')

  const script = join(ROOT, 'test/support/arrival-gaps.mjs')
  const argv = inNamespace(namespace, [process.execPath, script, POD, FAR_POD, THERE.underlay, String(UNDERLAY_PORT)])
  const traffic = spawn(argv[0]!, argv.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] })
  onTestFinished(() => void traffic.kill('SIGKILL'))
  let output = ''
  traffic.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  await expect.poll(() => output, { timeout: 5000 }).toContain('running')

  const end = new AbortController()
  const news = shared
    .open(() => 0)
    .watch(end.signal)
    [Symbol.asyncIterator]()
  const times: number[] = []
  for (let swap = 0; swap < SWAPS; swap++) {
    shared.edit(() => leases.slice(0, leases.length - swap))
    const start = performance.now()
    const { value } = await news.next()
    if (value?.type === 'snapshot') await updates.offer(value.leases, own, NETWORKS, 'change')
    times.push(performance.now() - start)
  }
  end.abort()
  traffic.stdin.end()
  await once(traffic, 'close')
  const { sent, lost, longest } = JSON.parse(output.replace('running\n', '')) as Record<
    'sent' | 'lost' | 'longest',
    number
  >
  const swapMs = times.sort((a, b) => a - b)[SWAPS >> 1]!
  console.log(
    `${LEASES} leases: a change takes ${swapMs.toFixed(0)} ms, ${sent} packets meanwhile, ${lost} lost, longest gap ${longest.toFixed(1)} ms`,
  )
  expect(updates.peers).toHaveLength(leases.length - SWAPS + 1)
  expect(lost).toBe(0)
  expect(longest).toBeLessThan(3 * GAP_MS)
})
