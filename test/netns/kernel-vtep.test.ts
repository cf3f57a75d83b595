// The kernel VTEP with the real kernel: two of them talk, tables follow the leases, refusals are clear.
import { execFileSync } from 'node:child_process'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parseIpv4, parseIpv6Prefix, parseMac, parsePrefix } from '../../dataplane/index.ts'
import type { FlanneletteError } from '../../src/errors.ts'
import type { LocalVtep } from '../../src/host/dataplane.ts'
import { KernelVtep } from '../../src/host/kernel-vtep.ts'
import { vxlanObstacle } from '../../src/host/vxlan-probe.ts'
import { silentLog } from '../../src/log.ts'
import { answered } from '../support/answered.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { ip, joinedNamespaces, ownNamespace } from '../support/own-namespace.ts'
import { peerLease } from '../support/peer-lease.ts'

const MAC = (host: number) => `02:00:00:00:00:0${host}`
const lease = (host: number, mac = MAC(host)) => peerLease(`10.244.${host}.0/24`, `192.0.2.${host}`, mac)

function local(host: number, more: Partial<LocalVtep> = {}): LocalVtep {
  const subnet = parsePrefix(`10.244.${host}.0/24`)
  const network = parsePrefix('10.244.0.0/16')
  if (subnet === null || network === null) throw new Error('no prefix')
  return {
    encapsulation: 'vxlan',
    deviceName: 'flannel.1',
    vni: 1,
    port: 8472,
    mac: parseMac(MAC(host)) ?? 0,
    underlayInterface: 'eth0',
    underlayAddress: parseIpv4(`192.0.2.${host}`) ?? 0,
    overlayAddress: subnet.address,
    network,
    ipv6Network: null,
    subnet,
    ipv6Subnet: null,
    mtuBytes: 1450,
    ...more,
  }
}

async function startIn(namespace: string, host: number, more: { udpChecksum?: boolean } = {}): Promise<KernelVtep> {
  const vtep = new KernelVtep({ log: silentLog, namespace, ...more })
  await vtep.start(local(host))
  return vtep
}

const bridge = (namespace: string) =>
  execFileSync('bridge', ['-n', namespace, 'fdb', 'show', 'dev', 'flannel.1'], { encoding: 'utf8' }).trim()
const overlayRoutes = (namespace: string) => ip('-n', namespace, 'route', 'show', 'dev', 'flannel.1').trim()

describe('two kernel VTEPs', () => {
  test('reach each other’s overlay address by their leases', async () => {
    const [first, second] = joinedNamespaces()
    const one = await startIn(first, 1)
    const two = await startIn(second, 2, { udpChecksum: false })
    expect(await one.replacePeers([lease(2)], 'test')).toBe(1)
    await two.replacePeers([lease(1)], 'test')
    expect(one.pendingSubnets().size).toBe(0)
    expect(await answered(first, '10.244.2.0', 1)).toBe(1)
    expect(ip('-n', second, '-d', 'link', 'show', 'flannel.1')).toContain('noudpcsum')
  })
})

describe('two kernel VTEPs that carry IPv6 as well', () => {
  const dual = (host: number, mac = MAC(host)) =>
    peerLease(`10.244.${host}.0/24`, `192.0.2.${host}`, mac, `fd00:10:244:${host}::/64`)
  const startDual = async (namespace: string, host: number) => {
    const vtep = new KernelVtep({ log: silentLog, namespace })
    await vtep.start(local(host, { ipv6Network: parseIpv6Prefix('fd00:10:244::/48'), ipv6Subnet: half(host) }))
    return vtep
  }
  const half = (host: number) => parseIpv6Prefix(`fd00:10:244:${host}::/64`)
  const ipv6Routes = (namespace: string) =>
    ip('-n', namespace, '-6', 'route', 'show', 'dev', 'flannel.1', 'proto', '142').trim()

  test('reach each other’s IPv6 overlay address', async () => {
    const [first, second] = joinedNamespaces()
    const one = await startDual(first, 1)
    const two = await startDual(second, 2)
    await one.replacePeers([dual(2)], 'test')
    await two.replacePeers([dual(1)], 'test')
    expect(one.pendingSubnets().size).toBe(0)
    expect(await answered(first, 'fd00:10:244:2::', 1)).toBe(1)
  })

  test('follow a peer’s new MAC and the loss of its IPv6 half, and lose what a former run left', async () => {
    const [first] = joinedNamespaces()
    const former = await startDual(first, 1)
    await former.replacePeers([dual(2), dual(3)], 'test')
    await former.stop('keep')
    const vtep = await startDual(first, 1)
    await vtep.replacePeers([dual(3, '02:00:00:00:00:77')], 'test')
    expect(ipv6Routes(first)).toMatch(/^fd00:10:244:3::\/64 via fd00:10:244:3:: metric \d+ onlink[^\n]*$/)
    const permanent = () => ip('-n', first, '-6', 'neigh', 'show', 'dev', 'flannel.1', 'nud', 'permanent').trim()
    expect(permanent()).toBe('fd00:10:244:3:: lladdr 02:00:00:00:00:77 PERMANENT proto 142')
    await vtep.replacePeers([lease(3, '02:00:00:00:00:77')], 'test')
    expect([ipv6Routes(first), permanent()]).toEqual(['', ''])
    expect(overlayRoutes(first)).toContain('10.244.3.0/24 via 10.244.3.0')
  })

  test('have IPv6 also where new devices are made without', async () => {
    const [first] = joinedNamespaces()
    ip('netns', 'exec', first, 'sysctl', '-qw', 'net.ipv6.conf.default.disable_ipv6=1')
    const vtep = await startDual(first, 1)
    await vtep.replacePeers([dual(2)], 'test')
    expect(vtep.pendingSubnets().size).toBe(0)
    expect(ip('-n', first, '-6', 'address', 'show', 'flannel.1')).toContain('fd00:10:244:1::/128')
  })
})

describe('the kernel’s tables', () => {
  test('follow a peer’s new MAC, and the old FDB entry goes', async () => {
    const [first] = joinedNamespaces()
    const vtep = await startIn(first, 1)
    await vtep.replacePeers([lease(2)], 'test')
    expect(bridge(first)).toBe('02:00:00:00:00:02 dst 192.0.2.2 self permanent')
    await vtep.replacePeers([lease(2, '02:00:00:00:00:77')], 'test')
    expect(bridge(first)).toBe('02:00:00:00:00:77 dst 192.0.2.2 self permanent')
    expect(ip('-n', first, 'neigh', 'show', 'dev', 'flannel.1')).toContain('10.244.2.0 lladdr 02:00:00:00:00:77')
  })

  test('lose what a former run left for peers that have gone, and keep what others put there', async () => {
    const [first] = joinedNamespaces()
    const former = await startIn(first, 1)
    await former.replacePeers([lease(2), lease(3)], 'test')
    await former.stop('keep')
    ip('-n', first, 'route', 'add', '10.9.0.0/16', 'dev', 'flannel.1', 'proto', 'static')
    const vtep = await startIn(first, 1)
    await vtep.replacePeers([lease(3)], 'test')
    expect(overlayRoutes(first).split('\n')).toEqual([
      expect.stringMatching(/^10\.9\.0\.0\/16 proto static/),
      expect.stringMatching(/^10\.244\.3\.0\/24 via 10\.244\.3\.0 proto 142 onlink/),
    ])
    expect(bridge(first)).toBe('02:00:00:00:00:03 dst 192.0.2.3 self permanent')
    expect(ip('-n', first, 'neigh', 'show', 'dev', 'flannel.1')).not.toContain('10.244.2.0')
  })

  test('lack a peer that the kernel refuses, and no other; it is there once the kernel takes it', async () => {
    const [first] = joinedNamespaces()
    const vxlan = 'type vxlan id 1 dstport 8472 local 192.0.2.1 dev eth0 nolearning udpcsum maxaddress 2'
    ip('-n', first, 'link', 'add', 'flannel.1', 'address', MAC(1), 'mtu', '1450', ...vxlan.split(' '))
    const vtep = await startIn(first, 1)
    onTestFinished(() => vtep.stop('keep'))
    await vtep.replacePeers([lease(2), lease(3), lease(4)], 'test')
    expect([...vtep.pendingSubnets().keys()]).toEqual(['10.244.4.0/24'])
    expect(overlayRoutes(first)).toMatch(/^10\.244\.2\.0\/24[^\n]*\n10\.244\.3\.0\/24[^\n]*$/)
    await vtep.replacePeers([lease(2), lease(4)], 'test')
    expect(vtep.pendingSubnets().size).toBe(0)
    expect(overlayRoutes(first)).toMatch(/^10\.244\.2\.0\/24[^\n]*\n10\.244\.4\.0\/24[^\n]*$/)
  })

  test('hold a thousand peers after one hand-over', async () => {
    const [first] = joinedNamespaces()
    const vtep = await startIn(first, 1)
    const many = Array.from({ length: 1000 }, (_, n) =>
      peerLease(`10.${100 + (n >> 8)}.${n & 255}.0/24`, '192.0.2.2', `02:00:00:01:0${n >> 8}:${hexByte(n)}`),
    )
    await vtep.replacePeers(many, 'test')
    expect(vtep.pendingSubnets().size).toBe(0)
    expect(overlayRoutes(first).split('\n')).toHaveLength(1000)
    expect(bridge(first).split('\n')).toHaveLength(1000)
  })
})

const hexByte = (n: number) => (n & 255).toString(16).padStart(2, '0')

describe('the device', () => {
  test('can be asked for without being made', async () => {
    const namespace = ownNamespace()
    const links = () => ip('-n', namespace, '-br', 'link', 'show')
    const before = links()
    expect(await vxlanObstacle({ namespace })).toBeNull()
    expect(links()).toBe(before)
  })

  test('of a former run is kept, with its index, when it fits', async () => {
    const [first] = joinedNamespaces()
    const index = () => ip('-n', first, '-o', 'link', 'show', 'flannel.1').split(':')[0]
    await startIn(first, 1)
    const before = index()
    await startIn(first, 1)
    expect(index()).toBe(before)
    expect(ip('-n', first, '-4', 'address', 'show', 'flannel.1')).toContain('10.244.1.0/32')
  })

  test('of ours that no longer fits is made anew', async () => {
    const [first] = joinedNamespaces()
    await startIn(first, 1, { udpChecksum: true })
    await startIn(first, 1, { udpChecksum: false })
    expect(ip('-n', first, '-d', 'link', 'show', 'flannel.1')).toContain('noudpcsum')
  })

  test('is removed on request', async () => {
    const [first] = joinedNamespaces()
    const vtep = await startIn(first, 1)
    await vtep.stop('remove')
    expect(ip('-n', first, '-o', 'link', 'show')).not.toContain('flannel.1')
  })

  const refusal = async (namespace: string) => {
    const error = await startIn(namespace, 1).catch((reason: unknown) => reason)
    return error as FlanneletteError
  }

  test('of somebody else is refused with the command that removes it, and stays', async () => {
    const [first] = joinedNamespaces()
    ip('-n', first, 'link', 'add', 'flannel.1', 'type', 'bridge')
    const error = await refusal(first)
    expect(error.code).toBe('device-foreign')
    expect(error.oneLine).toContain('ip link delete dev flannel.1')
    expect(ip('-n', first, '-d', 'link', 'show', 'flannel.1')).toContain('bridge')
  })

  test('is not left half-made when the port is taken', async () => {
    const [first] = joinedNamespaces()
    const owner = NamespaceSocket.udp(first, { from: ['0.0.0.0', 8472] })
    onTestFinished(() => owner.close())
    const error = await refusal(first)
    expect(error.code).toBe('port-busy')
    expect(ip('-n', first, '-o', 'link', 'show')).not.toContain('flannel.1')
  })

  test('needs the underlay interface', async () => {
    const error = await refusal(ownNamespace())
    expect(error.message).toContain('eth0')
  })
})
