// The raw driver on a link that is slower than its pod: it works on the main thread, which has other work as well.
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { beforeEach, expect, test } from 'vitest'
import { entryFor } from '../support/engine-pair.ts'
import { ip as iproute } from '../support/own-namespace.ts'
import { countingBytes, udpPacket } from '../support/packets.ts'
import { skipWithoutRawSocket } from '../support/raw-socket-here.ts'
import { FAR_POD, POD, runningWorker, slowLoopback, THERE, TUN_NAME } from '../support/running-worker.ts'

/** More than a send buffer of 32 MiB holds, at more than two kilobytes of the kernel's memory each. */
const PACKETS = 20_000
const LONGEST_MS = 150

beforeEach(skipWithoutRawSocket)

test('a slow link does not keep the main thread from its other work', async () => {
  const { namespace, worker, host } = await runningWorker('raw')
  iproute('-n', namespace, 'link', 'set', TUN_NAME, 'txqueuelen', String(PACKETS))
  slowLoopback(namespace, '64mb')
  await worker.replaceTable([entryFor(THERE)])
  const packet = udpPacket({ source: POD, destination: FAR_POD, payload: countingBytes(1400) })
  for (let n = 0; n < PACKETS; n++) await host.write(packet)
  // What the machine does meanwhile may keep this thread from its work as well, now and then.
  await expect.poll(longestDelayMs, { timeout: 15_000 }).toBeLessThan(LONGEST_MS)
  // It has no room for all of them.
  expect(worker.counters.get('outbound.packets.passed')).toBeLessThan(PACKETS)
  expect(worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
}, 30_000)

/** By how much the event loop is late at most, in half a second. */
async function longestDelayMs(): Promise<number> {
  const delay = monitorEventLoopDelay({ resolution: 5 })
  delay.enable()
  await new Promise((resolve) => setTimeout(resolve, 500))
  delay.disable()
  return delay.max / 1e6
}
