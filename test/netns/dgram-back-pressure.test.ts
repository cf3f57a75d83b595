// The dgram driver on a link that is slower than its pod: what does not fit waits in the device's queue, nothing that
// was read is dropped, and whoever says something to the worker is heard meanwhile.
import { expect, test } from 'vitest'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { entryFor } from '../support/engine-pair.ts'
import { ip as iproute } from '../support/own-namespace.ts'
import { countingBytes, udpPacket } from '../support/packets.ts'
import { FAR_POD, POD, runningWorker, slowLoopback, THERE, TUN_NAME, until } from '../support/running-worker.ts'
import { vxlanFrame } from '../support/vxlan-frame.ts'

const SOL_SOCKET = 1
const SO_SNDBUF = 7
/** Those that may be under way, and what is read before that is known. */
const MOST_UNDER_WAY = 600
const PACKETS = 2000
const packetOf = (n: number) =>
  udpPacket({ source: POD, destination: FAR_POD, identification: n, payload: countingBytes(400, n) })

test('a slow link slows the pod’s packets down and loses none of them', async () => {
  const { namespace, socketFds, worker, host, peer } = await runningWorker('dgram')
  iproute('-n', namespace, 'link', 'set', TUN_NAME, 'txqueuelen', String(2 * PACKETS))
  // Next to nothing passes at first: however long things take here, nothing is through before it was looked at.
  const setRate = slowLoopback(namespace, '8mb', '8kbit')
  libc.setsockopt(socketFds[0]!, SOL_SOCKET, SO_SNDBUF, 0)
  await worker.replaceTable([entryFor(THERE)])
  for (let n = 0; n < PACKETS; n++) await host.write(packetOf(n))
  const underWay = () => worker.counters.get('outbound.calls.read') - worker.counters.get('outbound.packets.read')
  await until(() => underWay() > 100)
  // By now it does not read: it is full. It hears all the same.
  for (let n = 0; n < 5; n++) await worker.replaceTable([entryFor(THERE)])
  expect(underWay()).toBeGreaterThan(100)
  expect(underWay()).toBeLessThan(MOST_UNDER_WAY)
  setRate('8mbit')
  const frames = await peer.readMany(PACKETS, 20_000)
  expect(frames).toHaveLength(PACKETS)
  expect(frames.findIndex((frame, n) => Buffer.compare(frame, vxlanFrame(packetOf(n))) !== 0)).toBe(-1)
  await until(() => worker.counters.get('outbound.packets.passed') === PACKETS)
  expect(worker.counters.get('outbound.packets.read')).toBe(PACKETS)
  await expect.poll(() => worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
})
