// What is particular to a way of forwarding: the bytes on the underlay for one packet of a pod, and the rows of the
// kernel's tables.
import { expect } from 'vitest'
import { formatMac, parseMac } from '../../dataplane/index.ts'
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import { hexOf } from '../../dataplane/wire/field.ts'
import * as vxlan from '../../dataplane/wire/vxlan.ts'
import type { DaemonStatus } from '../../src/daemon/status-file.ts'
import { type FdbInfo, type NeighborInfo, type RouteInfo, showJson } from '../../src/host/ip.ts'
import type { Lab } from '../../src/lab/lab.ts'
import type { AddressFamily } from '../../src/lab/ping.ts'
import { Capture } from './capture.ts'
import { NamespaceSocket } from './namespace-socket.ts'
import { countingBytes, type IpOptions, udpPacket, viewOf } from './packets.ts'

export type WayCheck = (lab: Lab, family: AddressFamily) => Promise<void>

const UDP_HEADER = 8
const OUTER_HEADER: Readonly<Record<AddressFamily, number>> = { 4: 20, 6: 40 }
/** Of the pod's packet, to find it again. */
const MARK_PORT = 5077
const TTL = 64

const statusOf = (lab: Lab, host: string): DaemonStatus => lab.host(host).status!

/**
 * One UDP packet of pod1.1 to pod2.1, as it leaves host1. `none`: as it is, but for the hop that host1's kernel counts, and
 * nothing of it in a tunnel. `vxlan`: behind UDP the very header and frame that flannel's kernel writes. `udp`: behind UDP
 * the packet alone, with the hop that flannel's proxy counts. `underlay`: family of the hosts' addresses.
 */
export function onTheWire(encapsulation: 'vxlan' | 'udp' | 'none', underlay: AddressFamily = 4): WayCheck {
  return async (lab, family) => {
    const path = { source: lab.endpoint('pod1.1', family).address, destination: lab.endpoint('pod2.1', family).address }
    const packet = (ttl: number): IpOptions & { payload: Uint8Array } => ({ ...path, ttl, payload: countingBytes(100) })
    const build = (ttl: number) => udpPacket({ ...packet(ttl), destinationPort: MARK_PORT, identification: 0x4d4d })
    const capture = await Capture.start({
      namespace: lab.namespace('host1'),
      device: 'eth0',
      direction: 'out',
      filter: underlay === 4 ? 'ip' : 'ip6',
    })
    const sender = NamespaceSocket[family === 4 ? 'ipv4' : 'ipv6'](lab.namespace('pod1.1'), path.destination)
    await sender.write(build(TTL))
    sender.close()
    const inner = build(encapsulation === 'udp' ? TTL - 2 : TTL - 1)
    const before = encapsulation === 'none' ? 0 : OUTER_HEADER[underlay] + UDP_HEADER
    const payloads = () => capture.frames().map((frame) => frame.subarray(ethernet.HEADER_LEN + before))
    const mine = () => payloads().filter((bytes) => hexOf(bytes, '').includes(hexOf(inner.subarray(-100), '')))
    await expect.poll(() => mine().length).toBe(1)
    await capture.stop()
    const wanted = encapsulation === 'vxlan' ? inVxlan(lab, family, inner) : inner
    expect(hexOf(mine()[0]!, ' ')).toBe(hexOf(wanted, ' '))
  }
}

/** A host's end of the tunnel that carries this family: where IPv6 has a device of its own, that one. */
function endOf(lab: Lab, host: string, family: AddressFamily) {
  const node = statusOf(lab, host).node!
  const { device, mac, underlayAddress } = (family === 6 ? node.ipv6Device : null) ?? node
  return { device, mac: parseMac(mac) ?? 0, underlayAddress, vni: node.vni }
}

/** In the frame from host1 to host2. */
function inVxlan(lab: Lab, family: AddressFamily, inner: Uint8Array): Uint8Array {
  const [from, to] = [endOf(lab, 'host1', family), endOf(lab, 'host2', family)]
  const encap = vxlan.HEADER_LEN + ethernet.HEADER_LEN
  const frame = new Uint8Array(encap + inner.length)
  vxlan.emit({ flags: vxlan.FLAG_VNI_VALID, reserved1: 0, vni: from.vni, reserved2: 0 }, frame, 0)
  const type = family === 4 ? ethernet.ETHERTYPE_IPV4 : ethernet.ETHERTYPE_IPV6
  ethernet.write(viewOf(frame), vxlan.HEADER_LEN, to.mac, from.mac, type)
  frame.set(inner, encap)
  return frame
}

/**
 * The tables of host2 hold for host1 one permanent neighbour, one FDB entry and one route by it, and nothing else of this
 * family on the device.
 */
export function kernelRows(): WayCheck {
  return async (lab, family) => {
    const { device } = endOf(lab, 'host2', family)
    const peer = endOf(lab, 'host1', family)
    const where = { namespace: lab.namespace('host2') }
    const { lease } = statusOf(lab, 'host1')
    const subnet = family === 4 ? lease!.subnet : lease!.ipv6Subnet!
    const [gateway] = subnet.split('/')
    const mac = formatMac(peer.mac)
    const neighbors = await showJson<NeighborInfo>('ip', [`-${family}`, 'neigh', 'show', 'dev', device], where)
    const fdb = await showJson<FdbInfo>('bridge', ['fdb', 'show', 'dev', device], where)
    const routes = await showJson<RouteInfo>('ip', [`-${family}`, 'route', 'show', 'dev', device], where)
    expect(neighbors).toMatchObject([{ dst: gateway, lladdr: mac, state: ['PERMANENT'] }])
    expect(fdb).toMatchObject([{ mac, dst: peer.underlayAddress, flags: ['self'], state: 'permanent' }])
    const toPeers = routes.filter((route) => route.gateway !== undefined)
    expect(toPeers).toMatchObject([{ dst: subnet, gateway, flags: expect.arrayContaining(['onlink']) }])
  }
}
