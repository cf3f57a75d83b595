// The dataplane over an IPv6 underlay, with a kernel VTEP as the other end: pings, bulk TCP, bytes and strangers.
import { describe, expect, onTestFinished, test } from 'vitest'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { openTunQueues } from '../../dataplane/io/linux/tun.ts'
import type { OuterDf } from '../../dataplane/io/linux/udp-open.ts'
import { formatMac } from '../../dataplane/wire/address.ts'
import { parseIpv6Prefix } from '../../dataplane/wire/prefix.ts'
import type { WorkerDriver } from '../../dataplane/worker/messages.ts'
import { attempt } from '../../src/host/command.ts'
import { answered, numbersTo, pingsIn, pingWords, sentUntilAnswered } from '../support/answered.ts'
import { inNetwork } from '../support/namespace-socket.ts'
import { ip as iproute, joinedNamespaces, ownNamespace } from '../support/own-namespace.ts'
import { ip6 } from '../support/packets.ts'
import { skipWithoutRawSocket } from '../support/raw-socket-here.ts'
import { HERE, startGroup, THERE, UNDERLAY_PORT } from '../support/running-worker.ts'

const OURS = { underlay: 'fd00::1', pod: 'fd01:1::', podPrefix: 'fd01:1::/64' }
const KERNEL = { underlay: 'fd00::2', pod: 'fd01:2::', podPrefix: 'fd01:2::/64' }
const DEVICE = 'flannel-v6.1'
/** 1500 less IPv6, UDP, VXLAN and Ethernet headers. */
const MTU = '1430'
const PINGS = 20
/** The router's address, and the one that hosts send to. */
const [ROUTER, NEXT_HOP] = ['fd00:ff::1', 'fe80::1']

/** Both hosts, their underlay addresses on one link. */
function neighbours(): [string, string] {
  const [near, far] = joinedNamespaces()
  iproute('-n', near, 'address', 'add', `${OURS.underlay}/64`, 'dev', 'eth0', 'nodad')
  iproute('-n', far, 'address', 'add', `${KERNEL.underlay}/64`, 'dev', 'eth0', 'nodad')
  return [near, far]
}

/** Both hosts with a router between them, which passes packets of so many bytes. */
function behindRouter(mtuBytes: number): [string, string] {
  const router = ownNamespace()
  iproute('netns', 'exec', router, 'sysctl', '-qw', 'net.ipv6.conf.all.forwarding=1')
  const ends = [OURS, KERNEL].map(({ underlay }, index) => {
    const host = ownNamespace()
    const port = `port${index}`
    iproute('-n', router, 'link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', host)
    iproute('-n', router, 'link', 'set', port, 'up')
    iproute('-n', router, 'address', 'add', `${ROUTER}/128`, 'dev', port, 'nodad')
    iproute('-n', router, 'address', 'add', `${NEXT_HOP}/64`, 'dev', port, 'nodad')
    iproute('-n', router, 'route', 'add', `${underlay}/128`, 'dev', port, 'mtu', 'lock', String(mtuBytes))
    iproute('-n', host, 'link', 'set', 'eth0', 'up')
    iproute('-n', host, 'address', 'add', `${underlay}/128`, 'dev', 'eth0', 'nodad')
    iproute('-n', host, 'route', 'add', 'default', 'via', NEXT_HOP, 'dev', 'eth0')
    return host
  })
  return [ends[0]!, ends[1]!]
}

interface PairOptions {
  readonly hosts?: [string, string]
  readonly outerDf?: OuterDf
}

async function pair(driver: WorkerDriver, { hosts = neighbours(), outerDf = 'clear' }: PairOptions = {}) {
  const [near, far] = hosts
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
      ...{ underlay: ip6(OURS.underlay), driver, sourcePorts: 4, outerDf },
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
  await expect
    .poll(async () => (await answered(near, to, 2, 1000)) + (await answered(far, OURS.underlay, 2, 1000)))
    .toBe(4)
}

function execBridge(namespace: string, ...args: string[]): void {
  iproute('netns', 'exec', namespace, 'bridge', ...args)
}

test.for<WorkerDriver>(['offload', 'plain', 'dgram', 'raw'])(
  '%s and a kernel VTEP ping each other',
  async (driver, context) => {
    if (driver === 'raw') skipWithoutRawSocket(context)
    const { near, far, group } = await pair(driver)
    const sent = [await sentUntilAnswered(near, KERNEL.pod, PINGS), await sentUntilAnswered(far, OURS.pod, PINGS)]
    const packets = sent[0]! + sent[1]!
    // A packet is counted after it was handed over: its answer may be here first.
    const traffic = () => group.traffic().get(ip6(KERNEL.underlay))
    await expect.poll(traffic).toMatchObject({ receivedPackets: packets, sentPackets: packets })
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
  expect(await answered(near, KERNEL.pod, PINGS, 1000)).toBe(0)
  await expect
    .poll(() => reports.find(({ type }) => type === 'offenders'))
    .toMatchObject({
      offenders: [{ outerSource: ip6(KERNEL.underlay), innerSource: ip6(KERNEL.pod), reason: 'unknown-peer' }],
    })
  iproute('-n', far, 'link', 'set', DEVICE, 'type', 'vxlan', 'id', '1', 'local', moved, 'dev', 'eth0')
  // With the old address goes what the kernel, on each CPU for itself, has cached of it.
  iproute('-n', far, 'address', 'delete', `${KERNEL.underlay}/64`, 'dev', 'eth0')
  await expect.poll(() => answered(near, KERNEL.pod, 2, 1000)).toBe(2)
  expect(await answered(near, KERNEL.pod, PINGS)).toBe(PINGS)
})

describe('a router that passes 1400 of 1500 bytes', () => {
  /** 1400 less IPv6, UDP, VXLAN and Ethernet headers. */
  const WHOLE = 1330
  /** Pings of the device's MTU: what was said, and the numbers of those that were answered. */
  const largePings = async (near: string) => {
    const words = pingWords(KERNEL.pod, 5, ['-M', 'do', '-s', String(Number(MTU) - 48)])
    const { stdout, stderr } = await attempt(words, { namespace: near, timeoutMs: 60_000 })
    return { said: stdout + stderr, answered: pingsIn(stdout).answered }
  }

  test('with DF clear this kernel cuts what the router will not pass, once it has learnt', async () => {
    const { near, group } = await pair('offload', { hosts: behindRouter(1400) })
    await largePings(near)
    expect((await largePings(near)).answered).toEqual(numbersTo(5))
    expect(group.pathLimits()).toEqual(new Map())
  })

  test('with DF set the host behind the TUN is told', async () => {
    const { near, group } = await pair('offload', { hosts: behindRouter(1400), outerDf: 'set' })
    expect((await largePings(near)).said).toMatch(new RegExp(`(Packet too big: mtu=|mtu[=:] ?)${WHOLE}`))
    await expect.poll(() => group.pathLimits()).toEqual(new Map([[ip6(KERNEL.underlay), WHOLE]]))
    expect(await answered(near, KERNEL.pod, PINGS)).toBe(PINGS)
  })
})
