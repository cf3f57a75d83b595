// Dataplane workers of node A on a TUN and sockets of the kernel, in a namespace of their own, with a peer that plays
// node B on the same loopback and the host behind A's TUN. Runs the built worker: a thread cannot load sources.
import { release } from 'node:os'
import { onTestFinished } from 'vitest'
import { OVERHEAD_BYTES } from '../../dataplane/encap/overhead.ts'
import type { UnderlayAddress } from '../../dataplane/forwarding/remote-vtep.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { openTunQueues } from '../../dataplane/io/linux/tun.ts'
import {
  type OuterDf,
  openPathSockets,
  openSenders,
  openUdpSockets,
  receiveOneByOne,
} from '../../dataplane/io/linux/udp-open.ts'
import { prefixAround } from '../../dataplane/wire/prefix.ts'
import type { WorkerDriver, WorkerReport } from '../../dataplane/worker/messages.ts'
import type * as Built from '../../dataplane/worker/worker-group.ts'
import { NODE_A, NODE_B, VNI } from './engine-pair.ts'
import { enterNetwork, inNetwork, NamespaceSocket } from './namespace-socket.ts'
import { ip as iproute, ownNamespace } from './own-namespace.ts'
import { countingBytes, ip, udpPacket } from './packets.ts'
import { vxlanFrame } from './vxlan-frame.ts'

const { WorkerGroup } = (await import(
  new URL('../../dist/dataplane/worker/worker-group.js', import.meta.url).href
)) as typeof Built

export const TUN_NAME = 'flannel.1'
export const UNDERLAY_PORT = 8472
/** Both nodes live on one loopback. */
export const HERE = { ...NODE_A, underlay: '127.0.0.1' }
export const THERE = { ...NODE_B, underlay: '127.0.0.2' }
export const POD = '10.244.1.2'
export const FAR_POD = '10.244.2.3'

/** The TUN with so many queues, up, with the pod's address and a route to all pods; closed when the test is over. */
export function makeTuns(namespace: string, queues: number): number[] {
  const tuns = inNetwork(namespace, () => openTunQueues(TUN_NAME, queues))
  if ('errno' in tuns) throw new Error(`${tuns.step}: errno ${tuns.errno}`)
  onTestFinished(() => tuns.forEach(({ fd }) => void libc.close(fd)))
  iproute('-n', namespace, 'link', 'set', TUN_NAME, 'up', 'mtu', String(1500 - OVERHEAD_BYTES.vxlan))
  iproute('-n', namespace, 'address', 'add', `${POD}/32`, 'dev', TUN_NAME)
  iproute('-n', namespace, 'route', 'add', '10.244.0.0/16', 'dev', TUN_NAME)
  return tuns.map(({ fd }) => fd)
}

/** A death that a worker told of: why, and when the next thread starts. */
export interface Death {
  readonly message: string
  readonly delayMs: number
}

/** So many workers, with a few source ports when asked for. */
export async function runningWorkers(count: number, sourcePorts = 0, driver: WorkerDriver = 'offload') {
  const namespace = ownNamespace()
  iproute('netns', 'exec', namespace, 'sysctl', '-qw', 'net.ipv6.conf.all.disable_ipv6=1')
  const tunFds = makeTuns(namespace, count)
  return startGroup(namespace, tunFds, { underlay: ip(HERE.underlay), sourcePorts, driver })
}

interface GroupOptions {
  readonly underlay: UnderlayAddress
  readonly sourcePorts?: number
  readonly driver?: WorkerDriver
  readonly outerDf?: OuterDf
  readonly settings?: Partial<Built.WorkerGroupOptions['settings']>
}

/** A worker of node A for each queue; stopped when the test is over. */
export async function startGroup(namespace: string, tunFds: readonly number[], given: GroupOptions) {
  const { underlay, sourcePorts = 0, driver = 'offload', outerDf = 'clear' } = given
  const sockets = inNetwork(namespace, () => openUdpSockets(underlay, UNDERLAY_PORT, release(), tunFds.length, outerDf))
  if ('errno' in sockets) throw new Error(`${sockets.step}: errno ${sockets.errno}`)
  const senderFds = inNetwork(namespace, () => openSenders(underlay, sourcePorts, outerDf))
  const paths = tunFds.map(() => inNetwork(namespace, () => (outerDf === 'set' ? openPathSockets(underlay) : null)))
  const pathFds = paths.flatMap((one) => (one === null || 'step' in one ? [] : [one]))
  const reports: WorkerReport[] = []
  const deaths: Death[] = []
  if (driver === 'dgram') for (const { fd } of sockets) receiveOneByOne(fd)
  const options: Built.WorkerGroupOptions = {
    driver,
    underlayAddress: underlay,
    rawPorts: { firstPort: UNDERLAY_PORT, ports: 1 },
    queues: tunFds.map((tunFd, index) => ({
      ...{ tunFd, socketFd: sockets[index]!.fd },
      ...(pathFds[index] === undefined ? {} : { pathFds: pathFds[index] }),
    })),
    senderFds,
    maxSegments: driver === 'offload' ? sockets[0]!.maxSegments : 1,
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
      mergeTcp: true,
      mergeUdp: true,
      ...given.settings,
    },
    onReport: (report) => reports.push(report),
    onDeath: ({ message }, delayMs) => deaths.push({ message, delayMs }),
  }
  // This thread makes the raw socket, again after a death, where it is.
  if (driver === 'raw') onTestFinished(enterNetwork(namespace))
  const group = await WorkerGroup.start(options)
  onTestFinished(async () => {
    await group.stop()
    const ofPaths = pathFds.flatMap(({ fragmentingFd, probeFd }) => [fragmentingFd, probeFd])
    for (const fd of [...sockets.map((socket) => socket.fd), ...senderFds, ...ofPaths]) libc.close(fd)
  })
  return { namespace, socketFds: sockets.map(({ fd }) => fd), group, reports, deaths }
}

/** One worker, the host behind its TUN, a pod on it, and the peer. */
export async function runningWorker(driver: WorkerDriver = 'offload') {
  const { group, ...rest } = await runningWorkers(1, 0, driver)
  const { namespace } = rest
  const host = NamespaceSocket.ipv4(namespace, FAR_POD)
  const pod = NamespaceSocket.udp(namespace, { from: [POD, 5000] })
  const peer = NamespaceSocket.udp(namespace, {
    from: [THERE.underlay, UNDERLAY_PORT],
    to: [HERE.underlay, UNDERLAY_PORT],
  })
  onTestFinished(() => {
    for (const open of [host, pod, peer]) open.close()
  })
  return { ...rest, worker: group.workers[0]!, host, pod, peer }
}

/** A packet of the pod to its far fellow. */
export const outgoing = udpPacket({ source: POD, destination: FAR_POD, payload: countingBytes(200) })

/** The frame in which the far pod's datagram of so many bytes arrives. */
export const toPod = (bytes: number) =>
  vxlanFrame(udpPacket({ source: FAR_POD, destination: POD, payload: countingBytes(bytes) }), {
    destinationMac: HERE.mac,
    sourceMac: THERE.mac,
  })

/**
 * The loopback of a namespace carries so much a second (8 Mbit unless told otherwise) until the test ends, and keeps so
 * much of what waits for it; the function that comes back gives it another rate. What is left at the end is thrown away: the kernel sends every ICMP answer of one CPU, whatever the namespace, from one socket
 * (`net/ipv4/icmp.c`), and answers that wait in this queue would silence the pings of the whole machine until it has
 * drained, namespace deleted or not. One CPU receives them all, as the queue's timer may fire on another than the
 * sender's and two would change their order.
 */
export function slowLoopback(namespace: string, limit = '8mb', rate = '8mbit'): (rate: string) => void {
  const root = ['dev', 'lo', 'root']
  const within = (...words: string[]) => iproute('netns', 'exec', namespace, ...words)
  within('sh', '-c', 'echo 1 > /sys/class/net/lo/queues/rx-0/rps_cpus')
  const shape = (verb: string, speed: string) =>
    within('tc', 'qdisc', verb, ...root, 'tbf', 'rate', speed, 'burst', '4kb', 'limit', limit)
  shape('add', rate)
  onTestFinished(() => void within('tc', 'qdisc', 'del', ...root))
  return (faster) => void shape('change', faster)
}

/** Waits until `condition` holds; a turn of the loop, again and again, at most twenty seconds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 20_000
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('it never came true')
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}
