// A worker whose thread dies of a JavaScript error in the middle of a packet: the next thread goes on with the same
// device, socket, table and counters, and nobody waits for the dead one.
import { setTimeout as pause } from 'node:timers/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { entryFor } from '../support/engine-pair.ts'
import { countingBytes } from '../support/packets.ts'
import { skipWithoutRawSocket } from '../support/raw-socket-here.ts'
import { outgoing, runningWorker, THERE, toPod, until } from '../support/running-worker.ts'
import { vxlanFrame } from '../support/vxlan-frame.ts'

type Running = Awaited<ReturnType<typeof runningWorker>>

/** Lets the thread die at the next packet: it cannot count down from a bigint. */
async function kill({ worker, host, deaths }: Running): Promise<void> {
  const before = deaths.length
  await worker.replaceTable([entryFor(THERE)]) // by now a thread listens
  worker.trace(5n as unknown as number, null)
  await worker.replaceTable([entryFor(THERE)]) // commands are obeyed in order
  await host.write(outgoing)
  await until(() => deaths.length === before + 1)
}

describe.each(['offload', 'dgram', 'raw'] as const)('a worker of the %s driver that dies of an error', (driver) => {
  beforeEach((context) => {
    if (driver === 'raw') skipWithoutRawSocket(context)
  })

  test('is replaced at once, and the next one forwards by the same table', async () => {
    const running = await runningWorker(driver)
    const { worker, host, pod, peer, deaths } = running
    await worker.replaceTable([entryFor(THERE)])
    await host.write(outgoing)
    expect(await peer.readMany(1)).toHaveLength(1)
    await kill(running)
    await host.write(outgoing)
    expect(await peer.readMany(1)).toEqual([vxlanFrame(outgoing)])
    await peer.write(toPod(333))
    expect(await pod.readMany(1)).toEqual([countingBytes(333)])
    expect(deaths).toEqual([{ message: expect.stringMatching(/BigInt/), delayMs: 0 }])
    // Counted on from where the dead one was, which lost the packet at hand.
    expect(worker.counters.get('outbound.packets.passed')).toBe(2)
    expect(worker.counters.get('worker.restarts')).toBe(1)
    // A packet is counted after it was handed over.
    await expect.poll(() => worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  test('takes nobody along who waits for a table: the next one puts it in force', async () => {
    const running = await runningWorker(driver)
    const { worker, host, peer } = running
    await kill(running)
    const other = { ...THERE, mac: 0x0a0000000077 }
    const generations = await Promise.all([worker.replaceTable([]), worker.replaceTable([entryFor(other)])])
    expect(generations).toEqual([3, 4])
    await host.write(outgoing)
    expect(await peer.readMany(1)).toEqual([vxlanFrame(outgoing, { destinationMac: other.mac })])
  })

  test('again and again is replaced later and later, and a stop meanwhile takes no time', async () => {
    const running = await runningWorker(driver)
    const { worker, deaths } = running
    for (let n = 0; n < 3; n++) await kill(running)
    expect(deaths.map(({ delayMs }) => delayMs)).toEqual([0, 100, 200])
    const waiting = worker.replaceTable([])
    const beforeTheNext = pause(150).then(() => 'late')
    expect(await Promise.race([worker.stop().then(() => 'stopped'), beforeTheNext])).toBe('stopped')
    expect(await waiting).toBe(7)
    expect(await worker.replaceTable([])).toBe(8)
    expect(worker.counters.get('worker.restarts')).toBe(3)
  })
})
