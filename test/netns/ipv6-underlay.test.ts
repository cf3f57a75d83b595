// The dataplane over an IPv6 underlay, with a kernel VTEP as the other end: pings, bulk TCP, bytes and strangers.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { openTunQueues } from '../../dataplane/io/linux/tun.ts'
import { formatMac } from '../../dataplane/wire/address.ts'
import { parseIpv6Prefix } from '../../dataplane/wire/prefix.ts'
import type { WorkerDriver } from '../../dataplane/worker/messages.ts'
import { inNetwork } from '../support/namespace-socket.ts'
import { ip as iproute, joinedNamespaces } from '../support/own-namespace.ts'
import { ip6 } from '../support/packets.ts'
import { skipWithoutRawSocket } from '../support/raw-socket-here.ts'
import { HERE, startGroup, THERE, UNDERLAY_PORT } from '../support/running-worker.ts'

const run = promisify(execFile)
const OURS = { underlay: 'fd00::1', pod: 'fd01:1::', podPrefix: 'fd01:1::/64' }
const KERNEL = { underlay: 'fd00::2', pod: 'fd01:2::', podPrefix: 'fd01:2::/64' }
const DEVICE = 'flannel-v6.1'
/** 1500 less IPv6, UDP, VXLAN and Ethernet headers. */
const MTU = '1430'
const PINGS = 20

async function pair(driver: WorkerDriver) {
  const [near, far] = joinedNamespaces()
  iproute('-n', near, 'address', 'add', `${OURS.underlay}/64`, 'dev', 'eth0', 'nodad')
  iproute('-n', far, 'address', 'add', `${KERNEL.underlay}/64`, 'dev', 'eth0', 'nodad')
  await underlayCarries(near, far)
  const tuns = inNetwork(near, () => openTunQueues(DEVICE, 1, { header: driver !== 'plain' }))
  if ('errno' in tuns) throw new Error(`${tuns.step}: errno ${tuns.errno}`)
  onTestFinished(() => tuns.forEach(({ fd }) => void libc.close(fd)))
  const vxlan = ['id', '1', 'local', KERNEL.underlay, 'dev', 'eth0', 'dstport', String(UNDERLAY_PORT), 'nolearning']
  iproute('-n', far, 'link', 'add', DEVICE, 'address', formatMac(THERE.mac), 'type', 'vxlan', ...vxlan)
  for (const [namespace, own] of [
    [near, OURS],
    [far, KERNEL],
  ] as const) {
    iproute('-n', namespace, 'link', 'set', DEVICE, 'up', 'mtu', MTU)
    iproute('-n', namespace, 'address', 'add', `${own.pod}/128`, 'dev', DEVICE, 'nodad')
  }
  iproute('-n', near, 'route', 'add', KERNEL.podPrefix, 'dev', DEVICE)
  iproute('-n', far, 'neighbour', 'add', OURS.pod, 'lladdr', formatMac(HERE.mac), 'dev', DEVICE, 'nud', 'permanent')
  execBridge(far, 'fdb', 'append', formatMac(HERE.mac), 'dev', DEVICE, 'dst', OURS.underlay, 'self', 'permanent')
  iproute('-n', far, 'route', 'add', OURS.podPrefix, 'via', OURS.pod, 'dev', DEVICE, 'onlink')
  const running = await startGroup(
    near,
    tuns.map(({ fd }) => fd),
    {
      ...{ underlay: ip6(OURS.underlay), driver, sourcePorts: 4 },
      settings: {
        ...{ overlayIpv6: ip6(OURS.pod), ipv6Subnet: parseIpv6Prefix(OURS.podPrefix), mtuBytes: Number(MTU) },
      },
    },
  )
  const vtep = { underlayAddress: ip6(KERNEL.underlay), port: UNDERLAY_PORT, mac: THERE.mac, vni: 1 }
  await running.group.replaceTable([{ prefix: parseIpv6Prefix(KERNEL.podPrefix)!, vtep }])
  return { near, far, ...running }
}

/** New addresses are in use, and neighbours known, once pings are answered both ways. */
async function underlayCarries(near: string, far: string, to = KERNEL.underlay): Promise<void> {
  await expect.poll(async () => (await answered(near, to, 2)) + (await answered(far, OURS.underlay, 2))).toBe(4)
}

function execBridge(namespace: string, ...args: string[]): void {
  iproute('netns', 'exec', namespace, 'bridge', ...args)
}

/** Of pings from one side to the other, how many were answered. */
async function answered(namespace: string, to: string, count = PINGS): Promise<number> {
  const argv = ['netns', 'exec', namespace, 'ping', '-n', '-q', '-c', String(count), '-i', '0.02', '-W', '2', to]
  const { stdout } = await run('ip', argv).catch((error: { stdout: string }) => error)
  return Number(/(\d+) received/.exec(stdout)?.[1] ?? 0)
}

test.for<WorkerDriver>(['offload', 'plain', 'dgram', 'raw'])(
  '%s and a kernel VTEP ping each other',
  async (driver, context) => {
    if (driver === 'raw') skipWithoutRawSocket(context)
    const { near, far, group } = await pair(driver)
    expect(await answered(near, KERNEL.pod)).toBe(PINGS)
    expect(await answered(far, OURS.pod)).toBe(PINGS)
    const traffic = group.traffic().get(ip6(KERNEL.underlay))
    expect(traffic).toMatchObject({ receivedPackets: 2 * PINGS, sentPackets: 2 * PINGS })
  },
)

test('a peer that moves to another address is sent to there, and its old one is a stranger’s', async () => {
  const { near, far, group, reports } = await pair('offload')
  const moved = 'fd00::22'
  iproute('-n', far, 'address', 'add', `${moved}/64`, 'dev', 'eth0', 'nodad')
  await underlayCarries(near, far, moved)
  const vtep = { underlayAddress: ip6(moved), port: UNDERLAY_PORT, mac: THERE.mac, vni: 1 }
  await group.replaceTable([{ prefix: parseIpv6Prefix(KERNEL.podPrefix)!, vtep }])
  // The kernel takes our packets at any of its addresses, and answers from the old one.
  expect(await answered(near, KERNEL.pod)).toBe(0)
  await expect
    .poll(() => reports.find(({ type }) => type === 'offenders'))
    .toMatchObject({
      offenders: [{ outerSource: ip6(KERNEL.underlay), innerSource: ip6(KERNEL.pod), reason: 'unknown-peer' }],
    })
  iproute('-n', far, 'link', 'set', DEVICE, 'type', 'vxlan', 'id', '1', 'local', moved, 'dev', 'eth0')
  // What the kernel has cached of its old address passes.
  await expect.poll(() => answered(near, KERNEL.pod)).toBe(PINGS)
})
