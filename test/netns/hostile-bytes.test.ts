// Whatever comes to the UDP port or into the TUN: the daemon lives, forwards on, and counts every packet.
import { expect, onTestFinished, test } from 'vitest'
import { parseMac } from '../../dataplane/index.ts'
import { findStatus } from '../../src/daemon/status-source.ts'
import { readLink } from '../../src/host/ip.ts'
import { hostFiles } from '../../src/lab/lab-state.ts'
import {
  countersOf,
  type DaemonCounters,
  eventually,
  imbalanceOf,
  labUnderTest,
  logOf,
} from '../support/lab-under-test.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { ip } from '../support/own-namespace.ts'
import { icmpEcho, tcpPacket, udpPacket } from '../support/packets.ts'
import { seededRandom } from '../support/seeded-random.ts'
import { vxlanFrame } from '../support/vxlan-frame.ts'

const SEED = Number(process.env.FLANNELETTE_SEED ?? 20)
console.log(`hostile bytes from seed ${SEED}`)
const STRANGER = '192.168.56.99'
const PORT = 8472
/** Of each kind. */
const MANY = 3000
/** Fewer than wait for a busy kernel (net.core.netdev_max_backlog) or in the device. */
const AT_A_TIME = 400

const lab = labUnderTest({ name: 'hostile', hosts: 2, pods: 1 })
const random = seededRandom(SEED)
const below = (limit: number) => Math.floor(random() * limit)
const noise = (length: number) => Uint8Array.from({ length }, () => below(256))

const mutated = (bytes: Uint8Array) => {
  const copy = bytes.slice()
  for (let change = below(8); change >= 0; change--) copy[below(copy.length)] = below(256)
  return copy
}

/** Inner packets that pod2.1 might send to pod1.1. */
function packets(): Uint8Array[] {
  const path = { source: '10.244.2.2', destination: '10.244.1.2' }
  return [
    icmpEcho(path),
    udpPacket({ ...path, payload: noise(300) }),
    udpPacket({ ...path, fragmentWord: 0x2000, payload: noise(64) }),
    tcpPacket({ ...path, payload: noise(1200) }),
  ]
}

/** Noise of every length, and good things cut short or changed here and there. */
function hostile(good: readonly Uint8Array[]): Uint8Array[] {
  const one = () => good[below(good.length)]!
  return Array.from({ length: MANY }, () => [
    noise(1 + below(1400)),
    one().slice(0, 1 + below(100)),
    mutated(one()),
    mutated(one()),
  ]).flat()
}

/** What host1 has counted up to now, not up to its last status. */
const live = async (): Promise<DaemonCounters> =>
  (await findStatus({ stateDirectory: hostFiles('hostile', 'host1').stateDirectory })).status.counters

const counted = (counters: DaemonCounters, names: readonly string[]) =>
  names.reduce((sum, name) => sum + (counters[name] ?? 0), 0)

/**
 * Sends all, some at a time, until the counters have grown by as many: what is to be counted by the daemon must not be
 * lost in a queue in front of it. Gives all counters before and after.
 */
async function send(socket: NamespaceSocket, all: readonly Uint8Array[], ...names: string[]) {
  onTestFinished(() => socket.close())
  const before = await live()
  for (let at = 0; at < all.length; at += AT_A_TIME) {
    const some = all.slice(at, at + AT_A_TIME)
    for (const bytes of some) await socket.write(bytes)
    const grown = async () => counted(await live(), names) - counted(before, names)
    await expect.poll(grown, { interval: 1 }).toBeGreaterThanOrEqual(at + some.length)
  }
  return { before, after: await live() }
}

async function expectUnharmed(pid: number | null): Promise<void> {
  expect(await lab().ping('pod1.1', 'pod2.1', { count: 20 })).toMatchObject({ received: 20 })
  expect(await lab().ping('pod2.1', 'pod1.1', { count: 20 })).toMatchObject({ received: 20 })
  expect(lab().host('host1').daemonPid).toBe(pid)
  const quiet = ['info', 'packets-refused']
  expect(
    logOf(lab(), 'host1').filter(({ level, event }) => ![level, event].some((word) => quiet.includes(word))),
  ).toEqual([])
  await eventually(() => expect(imbalanceOf(countersOf(lab(), 'host1'))).toEqual({ packets: 0, bytes: 0 }))
}

/** Frames to host1 as host2 would send them, and worse. */
function datagrams(): Uint8Array[] {
  const macOf = (host: string) => parseMac(lab().host(host).status?.node?.mac ?? '') ?? 0
  const macs = { destinationMac: macOf('host1'), sourceMac: macOf('host2') }
  return hostile(packets().map((packet) => vxlanFrame(packet, { ...macs, vni: 1 })))
}

test('nothing that a stranger sends gets in, and the stranger is named', async () => {
  const { daemonPid, underlayAddress } = lab().host('host1')
  ip('-n', lab().namespace('host2'), 'address', 'add', `${STRANGER}/24`, 'dev', 'eth0')
  // Neighbours know each other: what waits until they do is little.
  expect(await lab().ping('host2', 'host1')).toMatchObject({ received: 1 })
  const sent = datagrams()
  const socket = NamespaceSocket.udp(lab().namespace('host2'), { from: [STRANGER, 0], to: [underlayAddress, PORT] })
  const { before, after } = await send(socket, sent, 'inbound.packets.read')
  expect(after['inbound.packets.read']! - before['inbound.packets.read']!).toBe(sent.length)
  expect(after['inbound.packets.passed']).toBe(before['inbound.packets.passed'])
  expect(after['inbound.dropped.unknown-peer']! - before['inbound.dropped.unknown-peer']!).toBeGreaterThan(MANY / 10)
  const named = { outerSource: STRANGER, innerSource: '10.244.2.2', reason: 'unknown-peer' }
  await eventually(() => expect(lab().host('host1').status?.offenders).toContainEqual(expect.objectContaining(named)))
  await eventually(() =>
    expect(logOf(lab(), 'host1').filter(({ event }) => event === 'packets-refused')).toHaveLength(1),
  )
  await expectUnharmed(daemonPid)
})

test('what a peer sends is counted, and does no harm', async () => {
  const { daemonPid, underlayAddress } = lab().host('host1')
  expect(await lab().ping('host2', 'host1')).toMatchObject({ received: 1 })
  const sent = datagrams()
  const socket = NamespaceSocket.udp(lab().namespace('host2'), {
    from: [lab().host('host2').underlayAddress, 0],
    to: [underlayAddress, PORT],
  })
  const { before, after } = await send(socket, sent, 'inbound.packets.read')
  for (const reason of ['vxlan-short', 'vni-unknown', 'inner-destination-mac', 'truncated', 'bad-checksum']) {
    const name = `inbound.dropped.${reason}`
    expect(after[name]! - before[name]!, reason).toBeGreaterThan(0)
  }
  await expectUnharmed(daemonPid)
})

test('what comes out of the TUN is counted, and does no harm', async () => {
  const { daemonPid, namespace } = lab().host('host1')
  const link = await readLink('flannel.1', { namespace })
  const sent = hostile(
    packets().map((packet) => {
      const away = packet.slice()
      away.set(packet.subarray(16, 20), 12) // from pod1.1 to pod2.1
      away.set(packet.subarray(12, 16), 16)
      return away
    }),
  )
  const device = NamespaceSocket.device(namespace, link!.ifindex)
  const { before, after } = await send(device, sent, 'outbound.packets.read', 'outbound.lost.tun-queue-full')
  for (const reason of ['not-ip', 'truncated', 'bad-header-length', 'no-route']) {
    const name = `outbound.dropped.${reason}`
    expect(after[name]! - before[name]!, reason).toBeGreaterThan(0)
  }
  await expectUnharmed(daemonPid)
})
