// A daemon that stood still while its subnet may have gone to another node: it asks before it sends, and sends again as
// soon as it knows, or has waited long enough.
import { expect, test } from 'vitest'
import { LONGEST_PAUSE_MS, NAP_MS } from '../../dataplane/worker/nap-watch.ts'
import { Capture } from '../support/capture.ts'
import type { RunningDaemon } from '../support/daemon-under-test.ts'
import {
  flannelValue,
  KERNEL_OVERLAY,
  leaseOf,
  networkOnEtcd,
  type Place,
  PREFIX,
  Underlay,
} from '../support/etcd-network.ts'
import { SteadyPing } from '../support/steady-ping.ts'

/** Stops it for longer than any turn takes, with pods that go on sending. */
async function standStill(daemon: RunningDaemon, meanwhile: () => void): Promise<void> {
  process.kill(daemon.pid, 'SIGSTOP')
  meanwhile()
  await new Promise((resolve) => setTimeout(resolve, NAP_MS + 1000))
}

/** Frames of the tunnel that leave a place from now on. */
const sentBy = ({ namespace }: Place) =>
  Capture.start({ namespace, device: 'eth0', direction: 'out', filter: 'udp dst port 8472' })

const goOn = (daemon: RunningDaemon) => {
  process.kill(daemon.pid, 'SIGCONT')
  return performance.now()
}

async function firstFrame(capture: Capture, sinceMs: number, limitMs: number): Promise<number> {
  await expect.poll(() => capture.frames().length, { timeout: limitMs, interval: 10 }).toBeGreaterThan(0)
  return performance.now() - sinceMs
}

test('a daemon that stood still asks for its lease before it sends anything', async () => {
  const { first, second, etcd, one, two } = await networkOnEtcd(new Underlay())
  for (const place of [first, second]) new SteadyPing(place.namespace, KERNEL_OVERLAY)

  const key = `${PREFIX}/subnets/${leaseOf(one).key}`
  await standStill(one, () => etcd.ctl('put', key, flannelValue('192.0.2.66', '02:00:00:00:00:66')))
  const ofLost = await sentBy(first)
  goOn(one)
  expect(await one.exited()).toBe(1)
  expect(await ofLost.stop()).toEqual([])

  await standStill(two, () => {})
  const ofKept = await sentBy(second)
  const soonMs = await firstFrame(ofKept, goOn(two), LONGEST_PAUSE_MS)
  expect(two.output).toContain('"event":"woke-up"')
  await ofKept.stop()

  await standStill(two, () => etcd.freeze())
  const ofAway = await sentBy(second)
  const lateMs = await firstFrame(ofAway, goOn(two), 3 * LONGEST_PAUSE_MS)
  console.log(
    `first frame after ${soonMs.toFixed(0)} ms; with a store that does not answer after ${lateMs.toFixed(0)} ms`,
  )
  expect(lateMs).toBeGreaterThan(1000)
})
