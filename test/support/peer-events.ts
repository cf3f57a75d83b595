// A mixed cluster and what may happen in it: host1 forwards by the kernel, host2 by our engine, host3 chose for itself
// and is then the peer that changes. After each event both observers must have what the leases ask for, nothing stale,
// and what others put there; packets between the two must not notice. For the short and the long suite.
import { execFileSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import { ChangingPeer } from './changing-peer.ts'
import { killDaemon, labUnderTest, logOf } from './lab-under-test.ts'
import { ip } from './own-namespace.ts'

const CONVERGES_WITHIN_MS = 5000
const LIMIT_MS = 3 * CONVERGES_WITHIN_MS
const DEVICE = 'flannel.1'
const NETWORK = '10.244.0.0/16'

/** Between two pings of those that must not notice, and how many there are: they outlast every event. */
const STEADY_SECONDS = 0.01
const STEADY_PINGS = 200

/** What happens to host3. */
export const PEER_EVENTS = {
  'gets another MAC': (peer: ChangingPeer) => peer.takeMac('0a:00:00:00:00:33'),
  'gets another address': (peer: ChangingPeer) => peer.takeAddress('192.168.56.33'),
  'gets another subnet': (peer: ChangingPeer) => peer.takeSubnet('10.244.33.0/24'),
  leaves: (peer: ChangingPeer) => peer.leave(),
  'comes back': (peer: ChangingPeer) => peer.comeBack(),
} as const

/** What somebody else does on host1, where the kernel's tables are ours to keep. */
export const KERNEL_EVENTS = {
  'has its route led elsewhere': (host, peer) => host.ip('route', 'replace', peer.subnet, 'dev', 'eth0'),
  'loses its route': (host, peer) => host.ip('route', 'delete', peer.subnet),
  'loses its neighbour entry': (host, peer) => host.ip('neigh', 'delete', peer.overlayAddress, 'dev', DEVICE),
  'has its neighbour entry led elsewhere': (host, peer) =>
    host.ip('neigh', 'replace', peer.overlayAddress, 'lladdr', '0a:00:00:00:00:99', 'dev', DEVICE),
  'loses its FDB entry': (host, peer) => host.bridge('fdb', 'delete', peer.mac, 'dev', DEVICE, 'dst', peer.publicIp),
  'has its FDB entry led elsewhere': (host, peer) =>
    host.bridge('fdb', 'replace', peer.mac, 'dev', DEVICE, 'dst', '192.168.56.99', 'self', 'permanent'),
} satisfies Record<string, (host: Host, peer: ChangingPeer) => void>

/** What somebody does to a device: all peers notice. */
export const DEVICE_EVENTS = {
  'deleted device': (host) => host.ip('link', 'delete', DEVICE),
  'device set down': (host) => host.ip('link', 'set', DEVICE, 'down'),
  'device set down and up': (host) => {
    host.ip('link', 'set', DEVICE, 'down')
    host.ip('link', 'set', DEVICE, 'up')
  },
  'device without its address': (host) => host.ip('address', 'flush', 'dev', DEVICE),
  'device with another MTU': (host) => host.ip('link', 'set', DEVICE, 'mtu', '1200'),
  'device with another MAC': (host) => host.ip('link', 'set', DEVICE, 'address', '0a:00:00:00:00:98'),
  'underlay set down and up': (host) => {
    host.ip('link', 'set', 'eth0', 'down')
    host.ip('link', 'set', 'eth0', 'up')
  },
} satisfies Record<string, (host: Host) => void>

/** A namespace of the lab, by iproute2. */
class Host {
  readonly #namespace: string

  constructor(lab: Lab, name: string) {
    this.#namespace = lab.namespace(name)
  }

  ip(...words: string[]): string {
    return ip('-n', this.#namespace, ...words)
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

export interface EventOptions {
  /** Of the lab. */
  readonly name: string
  readonly peerEvents: readonly (keyof typeof PEER_EVENTS)[]
  readonly kernelEvents: readonly (keyof typeof KERNEL_EVENTS)[]
  readonly deviceEvents: readonly (keyof typeof DEVICE_EVENTS)[]
}

export function describePeerEvents(options: EventOptions): void {
  describe('in a cluster of a kernel, a userspace and a choosing node, the first', () => {
    const lab = labUnderTest({ name: options.name, hosts: 3, pods: 1, kernel: ['host1'], auto: ['host3'] })
    let peer: ChangingPeer | null = null
    const host = (name: string) => new Host(lab(), name)
    const changing = () => {
      if (peer === null) throw new Error('host3 has not been taken over')
      return peer
    }

    test('has the rows of flannel in the kernel’s tables', async () => {
      peer = new ChangingPeer(lab())
      await killDaemon(lab(), 'host3')
      plantForeign(host('host1'))
      expectRows(lab(), host('host1'), changing())
      expectForeign(host('host1'))
    })

    test.each(options.peerEvents)('follows when a peer %s, and nobody else notices', async (event) => {
      const steady = pingSteadily(lab())
      PEER_EVENTS[event](changing())
      await expectConverged(lab(), host('host1'), changing(), ['pod1.1', 'pod2.1'])
      expectForeign(host('host1'))
      expect(await steady).toBe(0)
    })

    test.each(options.kernelEvents)(
      'recovers when a peer %s by somebody else, and nobody else notices',
      async (event) => {
        const steady = pingSteadily(lab())
        KERNEL_EVENTS[event](host('host1'), changing())
        await expectConverged(lab(), host('host1'), changing(), ['pod1.1'])
        expectForeign(host('host1'))
        expect(logOf(lab(), 'host1').map((line) => line.event)).toContain('peers-restored')
        expect(await steady).toBe(0)
      },
    )

    test.each(options.deviceEvents)('recovers from a %s where the kernel forwards', async (event) => {
      const shape = () => shapeOf(host('host1'))
      const before = shape()
      const start = performance.now()
      DEVICE_EVENTS[event](host('host1'))
      await expect.poll(shape, { timeout: LIMIT_MS, interval: 50 }).toEqual(before)
      await expectConverged(lab(), host('host1'), changing(), ['pod1.1'], start)
      expectForeign(host('host1'), 'beside the device')
    })

    test('recovers when the route of the overlay is led elsewhere where our engine forwards', async () => {
      const userspace = host('host2')
      const route = userspace.ip('route', 'show', NETWORK)
      const start = performance.now()
      userspace.ip('route', 'replace', NETWORK, 'dev', 'eth0')
      const shown = () => userspace.ip('route', 'show', NETWORK)
      await expect.poll(shown, { timeout: LIMIT_MS, interval: 50 }).toBe(route)
      await expectConverged(lab(), host('host1'), changing(), ['pod2.1'], start)
    })
  })
}

/** What a device is, but for its number, and for IPv6, which a small MTU takes away and a larger one makes anew. */
function shapeOf(host: Host): unknown {
  const [link] = JSON.parse(host.ip('-json', '-details', '-4', 'address', 'show', DEVICE) || '[]') as object[]
  return { ...link, ifindex: 0, inet6_addr_gen_mode: '' }
}

/** Routes, a neighbour and an FDB entry that are no business of ours. */
function plantForeign(host: Host): void {
  host.ip('route', 'add', '10.9.0.0/16', 'dev', 'cni0', 'proto', 'static')
  host.ip('route', 'add', '10.244.3.0/24', 'dev', 'cni0', 'proto', 'static', 'metric', '50')
  host.ip('neigh', 'add', '10.244.77.0', 'lladdr', '0a:00:00:00:00:77', 'dev', DEVICE, 'nud', 'permanent')
  host.ip('route', 'add', '10.244.77.0/24', 'via', '10.244.77.0', 'dev', DEVICE, 'onlink', 'proto', 'static')
  host.bridge('fdb', 'add', '0a:00:00:00:00:77', 'dev', DEVICE, 'dst', '192.168.56.77', 'self', 'permanent')
}

/** With the device the kernel takes away what stands on it. */
function expectForeign(host: Host, where: 'everywhere' | 'beside the device' = 'everywhere'): void {
  expect(host.ip('route', 'show', 'proto', 'static', 'dev', 'cni0').trim().split(/\s*\n/)).toEqual([
    '10.9.0.0/16 scope link',
    '10.244.3.0/24 scope link metric 50',
  ])
  if (where !== 'everywhere') return
  expect(host.ip('route', 'show', '10.244.77.0/24')).toContain('via 10.244.77.0 dev flannel.1 proto static')
  expect(host.ip('neigh', 'show', '10.244.77.0')).toContain('lladdr 0a:00:00:00:00:77 PERMANENT')
  expect(host.bridge('fdb', 'show', 'dev', DEVICE)).toContain('0a:00:00:00:00:77 dst 192.168.56.77 self permanent')
}

/** Neighbours, FDB entries and routes of host1, but for the foreign ones, are those of its peers and no others. */
function expectRows(lab: Lab, host: Host, peer: ChangingPeer): void {
  const steady = lab.host('host2').status!
  const { subnet, vtepMac, publicIp } = steady.lease!
  const peers = [{ subnet, mac: vtepMac!, publicIp }, ...(peer.present ? [peer] : [])]
  const rows = peers.map((one) => ({ ...one, gateway: one.subnet.split('/')[0]!, mac: one.mac, ip: one.publicIp }))
  const shown = (text: string) => (JSON.parse(text) as Row[]).filter((row) => !JSON.stringify(row).includes('77'))
  const sorted = (list: readonly string[]) => [...list].sort()
  const neighbors = shown(host.ip('-json', '-4', 'neigh', 'show', 'dev', DEVICE, 'nud', 'permanent'))
  expect(sorted(neighbors.map(({ dst, lladdr }) => `${dst} ${lladdr}`))).toEqual(
    sorted(rows.map(({ gateway, mac }) => `${gateway} ${mac}`)),
  )
  const fdb = shown(host.bridge('-json', 'fdb', 'show', 'dev', DEVICE)).filter(({ dst }) => dst !== undefined)
  expect(sorted(fdb.map(({ mac, dst, state, flags }) => `${mac} ${dst} ${state} ${flags}`))).toEqual(
    sorted(rows.map(({ mac, ip: to }) => `${mac} ${to} permanent self`)),
  )
  const routes = shown(host.ip('-json', '-4', 'route', 'show', 'dev', DEVICE))
  expect(sorted(routes.map(({ dst, gateway, flags }) => `${dst} ${gateway} ${flags}`))).toEqual(
    sorted(rows.map((row) => `${row.subnet} ${row.gateway} onlink`)),
  )
  const ours = shown(host.ip('-json', '-4', 'route', 'show', 'proto', '142'))
  expect(sorted(ours.map(({ dst }) => dst!))).toEqual(sorted(rows.map((row) => row.subnet)))
}

/** Waits until the rows are right and the pods reach the peer, or do not where it has left; tells how long that took. */
async function expectConverged(
  lab: Lab,
  host: Host,
  peer: ChangingPeer,
  pods: readonly string[],
  start = performance.now(),
): Promise<void> {
  const check = async () => {
    expectRows(lab, host, peer)
    const known = lab.host('host2').status?.peers.map(({ subnet, publicIp, vtepMac }) => [subnet, publicIp, vtepMac])
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

/** Pings between host1 and host2 that are lost while something happens to host3. */
async function pingSteadily(lab: Lab): Promise<number> {
  const { address } = lab.endpoint('pod2.1')
  const words = ['ping', '-q', '-n', '-i', String(STEADY_SECONDS), '-c', String(STEADY_PINGS), address]
  const { stdout } = await lab.exec('pod1.1', words)
  const received = /(\d+) received/.exec(stdout)?.[1]
  return STEADY_PINGS - Number(received)
}
