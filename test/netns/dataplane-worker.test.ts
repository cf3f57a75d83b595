// A dataplane worker on a TUN and a UDP socket of the kernel, in a thread of its own or (raw) on the main one: it
// forwards, obeys at once, reports what is unwell, survives what strangers send, and ends when told to. Runs the built
// worker: a thread cannot load sources.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { EBADFD } from '../../dataplane/io/errno.ts'
import type { RecordedStep } from '../../dataplane/worker/messages.ts'
import { entryFor } from '../support/engine-pair.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { ip as iproute } from '../support/own-namespace.ts'
import { countingBytes, icmpEcho } from '../support/packets.ts'
import { skipWithoutRawSocket } from '../support/raw-socket-here.ts'
import {
  FAR_POD,
  HERE,
  makeTuns,
  outgoing,
  POD,
  runningWorker,
  THERE,
  TUN_NAME,
  toPod,
  UNDERLAY_PORT,
  until,
} from '../support/running-worker.ts'
import { seededRandom } from '../support/seeded-random.ts'
import { vxlanFrame } from '../support/vxlan-frame.ts'

describe.each(['offload', 'dgram', 'raw'] as const)('a worker of the %s driver', (driver) => {
  beforeEach((context) => {
    if (driver === 'raw') skipWithoutRawSocket(context)
  })

  test('forwards both ways once it has a table, and tells when that is', async () => {
    const { worker, host, pod, peer } = await runningWorker(driver)
    expect(await worker.replaceTable([entryFor(THERE)])).toBe(1)
    await host.write(outgoing)
    expect(await peer.readMany(1)).toEqual([vxlanFrame(outgoing)])
    await peer.write(toPod(333))
    expect(await pod.readMany(1)).toEqual([countingBytes(333)])
    await until(() => worker.counters.get('inbound.packets.passed') === 1)
    await expect.poll(() => worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  test('forwards by the newest table only, and the wait for older ones ends too', async () => {
    const { worker, host, peer } = await runningWorker(driver)
    const generations = await Promise.all([
      worker.replaceTable([entryFor(THERE)]),
      worker.replaceTable([]),
      worker.replaceTable([entryFor({ ...THERE, mac: 0x0a0000000077 })]),
    ])
    expect(generations).toEqual([1, 2, 3])
    await host.write(outgoing)
    expect(await peer.readMany(1)).toEqual([vxlanFrame(outgoing, { destinationMac: 0x0a0000000077 })])
  })

  test('takes another MTU when told, after what the device took in before', async () => {
    const { worker, host, peer } = await runningWorker(driver)
    const refused = () => worker.counters.dropped('outbound', 'too-big').packets
    await worker.replaceTable([entryFor(THERE)])
    for (let round = 1; round <= 20; round++) {
      await worker.setMtu(1450)
      for (let n = 0; n < 5; n++) await host.write(outgoing)
      await worker.setMtu(outgoing.length - 1)
      expect(await peer.readMany(5)).toHaveLength(5)
      expect(refused()).toBe(round - 1)
      await host.write(outgoing)
      await until(() => refused() === round)
    }
  })

  test('is woken by what is said to it, not by its clock', async () => {
    const { worker } = await runningWorker(driver)
    const start = performance.now()
    for (let n = 0; n < 20; n++) await worker.replaceTable([entryFor(THERE)])
    // It sleeps for a second when nobody says anything.
    expect(performance.now() - start).toBeLessThan(10_000)
  })

  test('records as many steps as it was asked for', async () => {
    const { worker, host, peer } = await runningWorker(driver)
    await worker.replaceTable([entryFor(THERE)])
    const steps: RecordedStep[] = []
    worker.trace(5, (more) => void steps.push(...more))
    await worker.replaceTable([entryFor(THERE)]) // commands are obeyed in order
    await host.write(outgoing)
    await host.write(outgoing)
    expect(await peer.readMany(2)).toHaveLength(2)
    await until(() => steps.length === 5)
    // The fifth is the send, or the next packet when both were read in one turn.
    expect(steps.slice(0, 4).map(({ step }) => step.kind)).toEqual(['tun-read', 'lookup', 'fit', 'encap'])
    expect(steps[0]!.snap).toBe(Buffer.from(outgoing).toString('hex').slice(0, 384))
  })

  test('survives what a stranger sends, and counts every bit of it', async () => {
    const { namespace, worker, pod, peer } = await runningWorker(driver)
    await worker.replaceTable([entryFor(THERE)])
    const stranger = NamespaceSocket.udp(namespace, { to: [HERE.underlay, UNDERLAY_PORT] })
    onTestFinished(() => stranger.close())
    const random = seededRandom(3)
    const good = toPod(100)
    for (let n = 1; n <= 500; n++) {
      const junk = n % 2 === 0 ? good.slice(0, n % good.length || 1) : countingBytes(n, n)
      for (let hit = 0; hit < 3; hit++) junk[Math.floor(random() * junk.length)] = Math.floor(random() * 256)
      await stranger.write(junk)
    }
    await peer.write(good)
    expect(await pod.readMany(1)).toEqual([countingBytes(100)])
    await until(() => worker.counters.get('inbound.packets.read') === 501)
    expect(worker.counters.get('inbound.packets.passed')).toBe(1)
    await expect.poll(() => worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  test('reports a device that is gone once, and goes on with the next one', async () => {
    const { namespace, worker, reports, host, peer } = await runningWorker(driver)
    await worker.replaceTable([entryFor(THERE)])
    iproute('-n', namespace, 'link', 'delete', TUN_NAME)
    await until(() => reports.length > 0)
    expect(reports).toEqual([{ type: 'device-failed', errno: EBADFD }])
    worker.replaceDevice(makeTuns(namespace, 1)[0]!)
    await worker.replaceTable([entryFor(THERE)])
    await host.write(icmpEcho({ source: POD, destination: FAR_POD }))
    expect(await peer.readMany(1)).toEqual([vxlanFrame(icmpEcho({ source: POD, destination: FAR_POD }))])
    expect(reports).toHaveLength(1)
  })

  test('ends when told to, and telling it twice does not wait', async () => {
    const { worker } = await runningWorker(driver)
    await worker.stop()
    await worker.stop()
  })
})
