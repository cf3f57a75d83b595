// The raw driver on a link that is slower than its pod: it works on the main thread, which has other work as well.
import { beforeEach, expect, test } from 'vitest'
import { entryFor } from '../support/engine-pair.ts'
import { ip as iproute } from '../support/own-namespace.ts'
import { countingBytes, udpPacket } from '../support/packets.ts'
import { skipWithoutRawSocket } from '../support/raw-socket-here.ts'
import { FAR_POD, POD, runningWorker, slowLoopback, THERE, TUN_NAME } from '../support/running-worker.ts'

/** More than a send buffer of 32 MiB holds, at more than two kilobytes of the kernel's memory each. */
const PACKETS = 20_000
/** A turn may pause for a millisecond 50 times; fails at three times as many. */
const MOST_SLEEPS = 3 * 50
/** Of the event loop, some milliseconds each. */
const TURNS = 100

beforeEach(skipWithoutRawSocket)

test('a slow link does not keep the main thread from its other work', async () => {
  const { namespace, worker, host } = await runningWorker('raw')
  iproute('-n', namespace, 'link', 'set', TUN_NAME, 'txqueuelen', String(PACKETS))
  slowLoopback(namespace, '64mb')
  await worker.replaceTable([entryFor(THERE)])
  const packet = udpPacket({ source: POD, destination: FAR_POD, payload: countingBytes(1400) })
  for (let n = 0; n < PACKETS; n++) await host.write(packet)
  expect(await mostSleeps()).toBeLessThan(MOST_SLEEPS)
  // It has no room for all of them.
  expect(worker.counters.get('outbound.packets.passed')).toBeLessThan(PACKETS)
  expect(worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
}, 60_000)

/**
 * How often this process slept at most before its event loop had its turn again, in many turns. Not for how long: what
 * else the machine does may keep a thread from its work as well.
 */
async function mostSleeps(): Promise<number> {
  const sleeps = () => process.resourceUsage().voluntaryContextSwitches
  let most = 0
  for (let [turn, before] = [0, sleeps()]; turn < TURNS; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 5))
    const now = sleeps()
    most = Math.max(most, now - before)
    before = now
  }
  return most
}
