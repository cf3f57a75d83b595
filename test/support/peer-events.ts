// A mixed cluster and what may happen in it: host1 forwards by the kernel, host2 by our engine, host3 chose for itself
// and is then the peer that changes. After each event both observers must have what the leases ask for, nothing stale,
// and what others put there; packets between the two must not notice. For the short and the long suite.
import { execFileSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import { ChangingPeer } from './changing-peer.ts'
import { type EventGround, IPV4_GROUND } from './event-ground.ts'
import { eventually, killDaemon, labUnderTest, logOf } from './lab-under-test.ts'
import { ip } from './own-namespace.ts'
import { SteadyPing } from './steady-ping.ts'

const CONVERGES_WITHIN_MS = 5000
const LIMIT_MS = 3 * CONVERGES_WITHIN_MS

/** Pings of those that must not notice, 10 ms apart: they outlast every event. */
const STEADY_PINGS = 200
const UNNOTICED = { sent: STEADY_PINGS, lost: [] }

/** What happens to host3. */
export const PEER_EVENTS = {
  'gets another MAC': (peer) => peer.takeMac('0a:00:00:00:00:33'),
  'gets another address': (peer, ground) => peer.takeAddress(ground.underlayOf(33)),
  'gets another subnet': (peer, ground) => peer.takeSubnet(ground.subnetOf(33)),
  leaves: (peer) => peer.leave(),
  'comes back': (peer) => peer.comeBack(),
} satisfies Record<string, (peer: ChangingPeer, ground: EventGround) => void>

/** What somebody else does on host1, where the kernel's tables are ours to keep. */
export const KERNEL_EVENTS = {
  'has its route led elsewhere under our tag': (host, peer) =>
    host.own('route', 'replace', peer.subnet, 'dev', 'eth0', 'proto', '142'),
  'loses its route': (host, peer) => host.own('route', 'delete', peer.subnet),
  'loses its neighbour entry': (host, peer) => host.own('neigh', 'delete', peer.overlayAddress, 'dev', host.device),
  'has its neighbour entry led elsewhere': (host, peer) =>
    host.own('neigh', 'replace', peer.overlayAddress, 'lladdr', '0a:00:00:00:00:99', 'dev', host.device),
  'loses its FDB entry': (host, peer) =>
    host.bridge('fdb', 'delete', peer.mac, 'dev', host.device, 'dst', peer.publicIp),
  'has its FDB entry led elsewhere': (host, peer, ground) =>
    host.bridge(...['fdb', 'replace', peer.mac, 'dev', host.device, 'dst', ground.underlayOf(99), 'self', 'permanent']),
} satisfies Record<string, (host: Host, peer: ChangingPeer, ground: EventGround) => void>

/** What somebody does to a device: all peers notice. */
export const DEVICE_EVENTS = {
  'deleted device': (host) => host.ip('link', 'delete', host.device),
  'device set down': (host) => host.ip('link', 'set', host.device, 'down'),
  'device set down and up': (host) => {
    host.ip('link', 'set', host.device, 'down')
    host.ip('link', 'set', host.device, 'up')
  },
  'device without its address': (host) => host.ip('address', 'flush', 'dev', host.device),
  'device with another MTU': (host) => host.ip('link', 'set', host.device, 'mtu', '1200'),
  'device with another MAC': (host) => host.ip('link', 'set', host.device, 'address', '0a:00:00:00:00:98'),
  'underlay set down and up': (host) => {
    host.ip('link', 'set', 'eth0', 'down')
    host.ip('link', 'set', 'eth0', 'up')
  },
} satisfies Record<string, (host: Host) => void>

/** A namespace of the lab, by iproute2. */
class Host {
  readonly #namespace: string
  readonly #ground: EventGround

  constructor(lab: Lab, name: string, ground: EventGround) {
    this.#namespace = lab.namespace(name)
    this.#ground = ground
  }

  get device(): string {
    return this.#ground.device
  }

  ip(...words: string[]): string {
    return ip('-n', this.#namespace, ...words)
  }

  /** Of the family that the events are about. */
  own(...words: string[]): string {
    return this.ip(this.#ground.family, ...words)
  }

  bridge(...words: string[]): string {
    return execFileSync('bridge', ['-n', this.#namespace, ...words], { encoding: 'utf8' })
  }
}

interface Row {
  readonly dst?: string
  readonly mac?: string
  readonly lladdr?: string
  readonly gateway?: string
  readonly dev?: string
  readonly state?: string | readonly string[]
  readonly flags?: readonly string[]
  readonly protocol?: string
}

export interface EventLists {
  readonly peerEvents: readonly (keyof typeof PEER_EVENTS)[]
  readonly kernelEvents: readonly (keyof typeof KERNEL_EVENTS)[]
  readonly deviceEvents: readonly (keyof typeof DEVICE_EVENTS)[]
}

export interface EventOptions extends EventLists {
  /** Of the lab. */
  readonly name: string
  /** That of IPv4 when absent. */
  readonly ground?: EventGround
}

export function describePeerEvents({ ground = IPV4_GROUND, ...options }: EventOptions): void {
  const { device } = ground
  const family = ground.family === '-4' ? 'ipv4' : 'dual'
  describe(`in a cluster of a kernel, a userspace and a choosing node, the ${device} of the first`, () => {
    const lab = labUnderTest({ name: options.name, hosts: 3, pods: 1, kernel: ['host1'], auto: ['host3'], family })
    let scene: Scene | null = null
    const now = () => {
      if (scene === null) throw new Error('host3 has not been taken over')
      return scene
    }

    test('has the rows of flannel in the kernel’s tables', async () => {
      const peer = new ChangingPeer(lab(), ground)
      const host = (name: string) => new Host(lab(), name, ground)
      scene = { lab: lab(), ground, peer, kernel: host('host1'), userspace: host('host2') }
      await killDaemon(lab(), 'host3')
      plantForeign(now())
      expectRows(now())
      expectForeign(now())
    })

    testPeerEvents(now, options)
    testForeignRoute(now)
    testDeviceEvents(now, options)
    testNetworkRoute(now)
  })
}

function testPeerEvents(now: () => Scene, { peerEvents, kernelEvents }: EventLists): void {
  test.each(peerEvents)('follows when a peer %s, and nobody else notices', async (event) => {
    const steady = pingSteadily(now())
    PEER_EVENTS[event](now().peer, now().ground)
    await expectConverged(now(), ['pod1.1', 'pod2.1'])
    expectForeign(now())
    expect(await steady.first(STEADY_PINGS)).toEqual(UNNOTICED)
  })

  test.each(kernelEvents)('recovers when a peer %s by somebody else, and nobody else notices', async (event) => {
    const steady = pingSteadily(now())
    KERNEL_EVENTS[event](now().kernel, now().peer, now().ground)
    await expectConverged(now(), ['pod1.1'])
    expectForeign(now())
    // Said after it was done.
    await expect.poll(() => logOf(now().lab, 'host1').map((line) => line.event)).toContain('peers-restored')
    expect(await steady.first(STEADY_PINGS)).toEqual(UNNOTICED)
  })
}

function testForeignRoute(now: () => Scene): void {
  test('leaves a route of somebody else where a peer’s was, says so, and goes on once it is gone', async () => {
    const { lab, kernel, peer } = now()
    const steady = pingSteadily(now())
    kernel.own('route', 'replace', peer.subnet, 'dev', 'eth0', 'proto', 'static')
    const foreign = kernel.own('route', 'show', peer.subnet)
    await eventually(() => {
      const { pendingPeers, peers } = lab.host('host1').status!
      const ways = peers.flatMap((one) => one.ways ?? [])
      const lost = ways.filter(({ way }) => way === 'none')
      expect([pendingPeers, lost.map(({ subnet }) => subnet)]).toEqual([1, [peer.subnet]])
      expect(lost[0]!.why).toContain(`not ours is in the way: ${peer.subnet} dev eth0 proto static`)
    }, LIMIT_MS)
    expect(await steady.first(STEADY_PINGS)).toEqual(UNNOTICED)
    expect(kernel.own('route', 'show', peer.subnet)).toBe(foreign)
    kernel.own('route', 'delete', peer.subnet, 'proto', 'static')
    await expectConverged(now(), ['pod1.1'])
    expectForeign(now())
    await eventually(() => expect(lab.host('host1').status!.pendingPeers).toBe(0))
  })
}

function testDeviceEvents(now: () => Scene, { deviceEvents }: EventLists): void {
  test.each(deviceEvents)('recovers from a %s where the kernel forwards', async (event) => {
    const shape = () => shapeOf(now())
    const before = shape()
    const start = performance.now()
    DEVICE_EVENTS[event](now().kernel)
    await expect.poll(shape, { timeout: LIMIT_MS, interval: 50 }).toEqual(before)
    await expectConverged(now(), ['pod1.1'], start)
    expectForeign(now(), 'beside the device')
  })
}

/** Of the whole overlay, where our engine forwards. */
function testNetworkRoute(now: () => Scene): void {
  test('recovers when the route of the overlay is altered where our engine forwards', async () => {
    const { userspace, ground } = now()
    const { network } = ground
    const shown = () => userspace.own('route', 'show', network)
    const route = shown()
    const start = performance.now()
    userspace.own('route', 'replace', network, 'dev', 'eth0', 'proto', '142')
    await expect.poll(shown, { timeout: LIMIT_MS, interval: 50 }).toBe(route)
    await expectConverged(now(), ['pod2.1'], start)
  })

  test('leaves a route of somebody else where the overlay’s was, says so, and goes on once it is gone', async () => {
    const { lab, userspace, ground } = now()
    const { network } = ground
    userspace.own('route', 'replace', network, 'dev', 'eth0', 'proto', 'static')
    const foreign = userspace.own('route', 'show', network)
    await eventually(() => {
      const about = lab.host('host2').status!.health!.checks.find(({ name }) => name === 'device')!.about
      expect(about).toContain(`a route that is not ours is in the way: ${network} dev eth0 proto static`)
    }, LIMIT_MS)
    expect(userspace.own('route', 'show', network)).toBe(foreign)
    userspace.own('route', 'delete', network)
    await expectConverged(now(), ['pod2.1'])
  })
}

/** Who plays, and where. */
interface Scene {
  readonly lab: Lab
  readonly ground: EventGround
  /** host3 */
  readonly peer: ChangingPeer
  /** host1 */
  readonly kernel: Host
  /** host2 */
  readonly userspace: Host
}

/**
 * What a device is, but for its number, and for the addresses of IPv6 that the kernel makes for itself: a small MTU takes
 * IPv6 away, and a larger one makes it anew.
 */
function shapeOf({ kernel, ground }: Scene): unknown {
  const shown = kernel.ip('-json', '-details', ground.family, 'address', 'show', ground.device)
  const [link] = JSON.parse(shown || '[]') as { readonly addr_info?: readonly { readonly scope: string }[] }[]
  const addresses = (link?.addr_info ?? []).filter(({ scope }) => scope === 'global')
  return { ...link, addr_info: addresses, ifindex: 0, inet6_addr_gen_mode: '' }
}

/** A host that no lease tells of, and that somebody reaches by our device all the same. */
const STRANGER = 77
const STRANGER_MAC = '0a:00:00:00:00:77'

function strangerOf({ subnetOf, underlayOf }: EventGround) {
  const subnet = subnetOf(STRANGER)
  return { subnet, gateway: subnet.split('/')[0]!, mac: STRANGER_MAC, publicIp: underlayOf(STRANGER) }
}

/** Routes, a neighbour and an FDB entry that are no business of ours. */
function plantForeign({ kernel, ground }: Scene): void {
  const { device, elsewhere, higherMetric, subnetOf } = ground
  const { subnet, gateway, mac, publicIp } = strangerOf(ground)
  kernel.own('route', 'add', elsewhere, 'dev', 'cni0', 'proto', 'static')
  kernel.own('route', 'add', subnetOf(3), 'dev', 'cni0', 'proto', 'static', 'metric', higherMetric)
  kernel.own('neigh', 'add', gateway, 'lladdr', mac, 'dev', device, 'nud', 'permanent')
  kernel.own('route', 'add', subnet, 'via', gateway, 'dev', device, 'onlink', 'proto', 'static')
  kernel.bridge('fdb', 'add', mac, 'dev', device, 'dst', publicIp, 'self', 'permanent')
}

/** With the device the kernel takes away what stands on it. */
function expectForeign({ kernel, ground }: Scene, where: 'everywhere' | 'beside the device' = 'everywhere'): void {
  const { device, elsewhere, higherMetric, subnetOf } = ground
  const beside = kernel.own('route', 'show', 'proto', 'static', 'dev', 'cni0').trim().split(/\s*\n/)
  expect(beside).toEqual([
    expect.stringContaining(elsewhere),
    expect.stringMatching(new RegExp(`^${subnetOf(3)} .*metric ${higherMetric}`)),
  ])
  if (where !== 'everywhere') return
  const { subnet, gateway, mac, publicIp } = strangerOf(ground)
  expect(kernel.own('route', 'show', subnet)).toContain(`via ${gateway} dev ${device} proto static`)
  expect(kernel.own('neigh', 'show', gateway)).toContain(`lladdr ${mac} PERMANENT`)
  expect(kernel.bridge('fdb', 'show', 'dev', device)).toContain(`${mac} dst ${publicIp} self permanent`)
}

/** Neighbours, FDB entries and routes of host1, but for the foreign ones, are those of its peers and no others. */
function expectRows({ lab, kernel, peer, ground }: Scene): void {
  const { device, family } = ground
  const stranger = strangerOf(ground)
  const { lease, node } = lab.host('host2').status!
  const steady =
    family === '-4'
      ? { subnet: lease!.subnet, mac: lease!.vtepMac!, publicIp: lease!.publicIp }
      : { subnet: lease!.ipv6Subnet!, mac: node!.ipv6Device!.mac, publicIp: lease!.publicIpv6! }
  const peers = [steady, ...(peer.present ? [peer] : [])]
  const rows = peers.map((one) => ({
    subnet: one.subnet,
    gateway: one.subnet.split('/')[0]!,
    mac: one.mac,
    to: one.publicIp,
  }))
  const isStranger = ({ dst, mac }: Row) => mac === stranger.mac || dst === stranger.gateway || dst === stranger.subnet
  // The kernel has a route of its own to each IPv6 address of a device.
  const shown = (text: string) =>
    (JSON.parse(text) as Row[]).filter((row) => !isStranger(row) && row.protocol !== 'kernel')
  const sorted = (list: readonly string[]) => [...list].sort()
  const neighbors = shown(kernel.ip('-json', family, 'neigh', 'show', 'dev', device, 'nud', 'permanent'))
  expect(sorted(neighbors.map(({ dst, lladdr }) => `${dst} ${lladdr}`))).toEqual(
    sorted(rows.map(({ gateway, mac }) => `${gateway} ${mac}`)),
  )
  const fdb = shown(kernel.bridge('-json', 'fdb', 'show', 'dev', device)).filter(({ dst }) => dst !== undefined)
  expect(sorted(fdb.map(({ mac, dst, state, flags }) => `${mac} ${dst} ${state} ${flags}`))).toEqual(
    sorted(rows.map(({ mac, to }) => `${mac} ${to} permanent self`)),
  )
  const routes = shown(kernel.ip('-json', family, 'route', 'show', 'dev', device))
  expect(sorted(routes.map(({ dst, gateway, flags }) => `${dst} ${gateway} ${flags}`))).toEqual(
    sorted(rows.map((row) => `${row.subnet} ${row.gateway} onlink`)),
  )
  const ours = shown(kernel.ip('-json', family, 'route', 'show', 'proto', '142'))
  expect(sorted(ours.map(({ dst }) => dst!))).toEqual(sorted(rows.map((row) => row.subnet)))
}

/** Waits until the rows are right and the pods reach the peer, or do not where it has left; tells how long that took. */
async function expectConverged(scene: Scene, pods: readonly string[], start = performance.now()): Promise<void> {
  const { lab, peer, ground } = scene
  const check = async () => {
    expectRows(scene)
    // Of each peer one MAC is told, that over IPv4.
    const known = lab
      .host('host2')
      .status?.peers.map((one) =>
        ground.family === '-4' ? [one.subnet, one.publicIp, one.vtepMac] : [one.ipv6Subnet, one.publicIpv6, peer.mac],
      )
    expect(known?.slice(1)).toEqual(peer.present ? [[peer.subnet, peer.publicIp, peer.mac]] : [])
    for (const pod of pods) {
      const ping = ['ping', '-n', '-c', '1', '-W', '0.3', peer.overlayAddress]
      expect((await lab.exec(pod, ping)).exitCode === 0).toBe(peer.present)
    }
    return true
  }
  await expect.poll(check, { timeout: LIMIT_MS, interval: 50 }).toBe(true)
  console.log(`converged after ${((performance.now() - start) / 1000).toFixed(1)} s`)
}

/** Pings between host1 and host2 while something happens to host3. */
function pingSteadily({ lab, ground }: Scene): SteadyPing {
  const { address } = lab.endpoint('pod2.1', ground.family === '-4' ? 4 : 6)
  return new SteadyPing(lab.namespace('pod1.1'), address)
}
