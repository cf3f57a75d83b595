// A dataplane worker as a thread of its own, on a TUN and a UDP socket of the kernel: it forwards, obeys at once, reports
// what is unwell, survives what strangers send, and ends when told to. Runs the built worker: a thread cannot load sources.
import { release } from 'node:os'
import { describe, expect, onTestFinished, test } from 'vitest'
import { OVERHEAD_BYTES } from '../../dataplane/encap/overhead.ts'
import { EBADFD } from '../../dataplane/io/errno.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { openTun } from '../../dataplane/io/linux/tun.ts'
import { openUdpSocket } from '../../dataplane/io/linux/udp-socket.ts'
import { prefixAround } from '../../dataplane/wire/prefix.ts'
import type * as Built from '../../dataplane/worker/dataplane-worker.ts'
import type { RecordedStep, WorkerReport } from '../../dataplane/worker/messages.ts'
import { entryFor, NODE_A, NODE_B, VNI } from '../support/engine-pair.ts'
import { inNetwork, NamespaceSocket } from '../support/namespace-socket.ts'
import { ip as iproute, ownNamespace } from '../support/own-namespace.ts'
import { countingBytes, icmpEcho, ip, udpPacket } from '../support/packets.ts'
import { seededRandom } from '../support/seeded-random.ts'
import { vxlanFrame } from '../support/vxlan-frame.ts'

const { DataplaneWorker } = (await import(
  new URL('../../dist/dataplane/worker/dataplane-worker.js', import.meta.url).href
)) as typeof Built

const NAME = 'flannel.1'
const UNDERLAY_PORT = 8472
/** Both nodes live on one loopback. */
const HERE = { ...NODE_A, underlay: '127.0.0.1' }
const THERE = { ...NODE_B, underlay: '127.0.0.2' }
const POD = '10.244.1.2'
const FAR_POD = '10.244.2.3'

function makeTun(namespace: string): number {
  const tun = inNetwork(namespace, () => openTun(NAME))
  if ('errno' in tun) throw new Error(`${tun.step}: errno ${tun.errno}`)
  onTestFinished(() => void libc.close(tun.fd))
  iproute('-n', namespace, 'link', 'set', NAME, 'up', 'mtu', String(1500 - OVERHEAD_BYTES.vxlan))
  iproute('-n', namespace, 'address', 'add', `${POD}/32`, 'dev', NAME)
  iproute('-n', namespace, 'route', 'add', '10.244.0.0/16', 'dev', NAME)
  return tun.fd
}

/** A worker of node A, a peer that plays node B on the same loopback, and the host behind A's TUN. */
async function running() {
  const namespace = ownNamespace()
  iproute('netns', 'exec', namespace, 'sysctl', '-qw', 'net.ipv6.conf.all.disable_ipv6=1')
  const tunFd = makeTun(namespace)
  const socket = inNetwork(namespace, () => openUdpSocket(ip(HERE.underlay), UNDERLAY_PORT, release()))
  if ('errno' in socket) throw new Error(`${socket.step}: errno ${socket.errno}`)
  const reports: WorkerReport[] = []
  const worker = await DataplaneWorker.start({
    tunFd,
    socketFd: socket.fd,
    maxSegments: socket.maxSegments,
    encapsulation: 'vxlan',
    vni: VNI,
    mac: HERE.mac,
    settings: {
      overlayAddress: ip(HERE.subnet),
      subnet: prefixAround(ip(HERE.subnet), 24),
      mtuBytes: 1500 - OVERHEAD_BYTES.vxlan,
      sourceCheck: 'strict',
      overlayIpv6: null,
      ipv6Subnet: null,
      countsHop: false,
      mergeUdp: true,
    },
    onReport: (report) => reports.push(report),
    onDeath: (error) => {
      throw error
    },
  })
  const host = NamespaceSocket.ipv4(namespace, FAR_POD)
  const pod = NamespaceSocket.udp(namespace, { from: [POD, 5000] })
  const peer = NamespaceSocket.udp(namespace, {
    from: [THERE.underlay, UNDERLAY_PORT],
    to: [HERE.underlay, UNDERLAY_PORT],
  })
  onTestFinished(async () => {
    for (const open of [host, pod, peer]) open.close()
    await worker.stop()
    libc.close(socket.fd)
  })
  return { namespace, worker, reports, host, pod, peer }
}

const outgoing = udpPacket({ source: POD, destination: FAR_POD, payload: countingBytes(200) })
const toPod = (bytes: number) =>
  vxlanFrame(udpPacket({ source: FAR_POD, destination: POD, payload: countingBytes(bytes) }), {
    destinationMac: HERE.mac,
    sourceMac: THERE.mac,
  })

/** Waits until `condition` holds; a turn of the loop, again and again, at most five seconds. */
async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 5000
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('it never came true')
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

describe('a worker', () => {
  test('forwards both ways once it has a table, and tells when that is', async () => {
    const { worker, host, pod, peer } = await running()
    expect(await worker.replaceTable([entryFor(THERE)])).toBe(1)
    await host.write(outgoing)
    expect(await peer.readMany(1)).toEqual([vxlanFrame(outgoing)])
    await peer.write(toPod(333))
    expect(await pod.readMany(1)).toEqual([countingBytes(333)])
    await until(() => worker.counters.get('inbound.packets.passed') === 1)
    expect(worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  test('forwards by the newest table only, and the wait for older ones ends too', async () => {
    const { worker, host, peer } = await running()
    const generations = await Promise.all([
      worker.replaceTable([entryFor(THERE)]),
      worker.replaceTable([]),
      worker.replaceTable([entryFor({ ...THERE, mac: 0x0a0000000077 })]),
    ])
    expect(generations).toEqual([1, 2, 3])
    await host.write(outgoing)
    expect(await peer.readMany(1)).toEqual([vxlanFrame(outgoing, { destinationMac: 0x0a0000000077 })])
  })

  test('is woken by what is said to it, not by its clock', async () => {
    const { worker } = await running()
    const start = performance.now()
    for (let n = 0; n < 20; n++) await worker.replaceTable([entryFor(THERE)])
    // It sleeps for a second when nobody says anything.
    expect(performance.now() - start).toBeLessThan(2000)
  })

  test('records as many steps as it was asked for', async () => {
    const { worker, host, peer } = await running()
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
    const { namespace, worker, pod, peer } = await running()
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
    expect(worker.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  })

  test('reports a device that is gone once, and goes on with the next one', async () => {
    const { namespace, worker, reports, host, peer } = await running()
    await worker.replaceTable([entryFor(THERE)])
    iproute('-n', namespace, 'link', 'delete', NAME)
    await until(() => reports.length > 0)
    expect(reports).toEqual([{ type: 'device-failed', errno: EBADFD }])
    worker.replaceDevice(makeTun(namespace))
    await worker.replaceTable([entryFor(THERE)])
    await host.write(icmpEcho({ source: POD, destination: FAR_POD }))
    expect(await peer.readMany(1)).toEqual([vxlanFrame(icmpEcho({ source: POD, destination: FAR_POD }))])
    expect(reports).toHaveLength(1)
  })

  test('ends when told to, and telling it twice does not wait', async () => {
    const { worker } = await running()
    await worker.stop()
    await worker.stop()
  })
})
