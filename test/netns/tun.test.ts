// The TUN on the real kernel, in a namespace of its own: the compliance suite, opening, and which virtio-net headers
// the kernel takes.
import { describe, expect, onTestFinished, test } from 'vitest'
import { HeaderlessDevice } from '../../dataplane/engine/headerless-device.ts'
import { EBADFD, EBUSY, EINVAL } from '../../dataplane/io/errno.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import {
  type OpenTun,
  openTun,
  setPersistent,
  Tun,
  type TunFailure,
  type TunOptions,
} from '../../dataplane/io/linux/tun.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import {
  type DeviceHarness,
  HOST,
  HOST_PORT,
  packetDeviceCompliance,
  REMOTE,
  writePieces,
} from '../compliance/packet-device.ts'
import { inNetwork, NamespaceSocket } from '../support/namespace-socket.ts'
import { ip, ownNamespace } from '../support/own-namespace.ts'
import { countingBytes, fromTun, tcpPacket, udpPacket, type VnetOptions } from '../support/packets.ts'

const NAME = 'flannel.1'
const MEMORY_BYTES = 4 * 1024 * 1024
const EBADF = 9
/** linux/if_tun.h; Linux 4.19 uses memory after it was freed with the second and third. */
const [IFF_TUN, IFF_NAPI, IFF_NAPI_FRAGS] = [0x0001, 0x0010, 0x0020]

const opened = (result: OpenTun | TunFailure): OpenTun => {
  if ('errno' in result) throw new Error(`${result.step}: errno ${result.errno}`)
  return result
}

/** A TUN that is up, with an address, a route, and a UDP socket of the host behind it. */
function tunHarness(options: TunOptions = {}): DeviceHarness & { readonly namespace: string; readonly tun: OpenTun } {
  const namespace = ownNamespace()
  const tun = opened(inNetwork(namespace, () => openTun(NAME, options)))
  onTestFinished(() => void libc.close(tun.fd))
  // Neighbour discovery and the like would be read by the tests.
  ip('netns', 'exec', namespace, 'sysctl', '-qw', `net.ipv6.conf.all.disable_ipv6=1`)
  ip('-n', namespace, 'link', 'set', NAME, 'up', 'mtu', '1450')
  ip('-n', namespace, 'address', 'add', `${HOST}/32`, 'dev', NAME)
  ip('-n', namespace, 'route', 'add', '10.244.0.0/16', 'dev', NAME)
  const receiver = NamespaceSocket.udp(namespace, { from: [HOST, HOST_PORT] })
  const sender = NamespaceSocket.ipv4(namespace, REMOTE)
  onTestFinished(() => {
    receiver.close()
    sender.close()
  })
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  return {
    namespace,
    tun,
    memory,
    device: options.header === false ? new HeaderlessDevice(memory, new Tun(memory, tun.fd)) : new Tun(memory, tun.fd),
    hostSends: (packet) => sender.write(packet),
    hostReceives: (count) => receiver.readMany(count),
    setUp: (up) => {
      ip('-n', namespace, 'link', 'set', NAME, up ? 'up' : 'down')
      if (up) ip('-n', namespace, 'route', 'replace', '10.244.0.0/16', 'dev', NAME)
    },
  }
}

describe('a TUN', () => packetDeviceCompliance(() => tunHarness()))
describe('a TUN without offloads', () => packetDeviceCompliance(() => tunHarness({ offloads: false })))
describe('a TUN without virtio-net headers', () => packetDeviceCompliance(() => tunHarness({ header: false })))

describe('opening a TUN', () => {
  const open = (namespace: string, name = NAME) => inNetwork(namespace, () => openTun(name))

  test('makes the device, with all offloads that the kernel knows', () => {
    const namespace = ownNamespace()
    const { fd, offloads } = opened(open(namespace))
    expect([0x67, 0x07]).toContain(offloads)
    expect(ip('-n', namespace, 'link', 'show', NAME)).toContain(NAME)
    const flags = Number(ip('netns', 'exec', namespace, 'cat', `/sys/class/net/${NAME}/tun_flags`))
    expect([flags & IFF_TUN, flags & (IFF_NAPI | IFF_NAPI_FRAGS)]).toEqual([IFF_TUN, 0])
    libc.close(fd)
    expect(() => ip('-n', namespace, 'link', 'show', NAME)).toThrow()
  })

  test('says of each offload whether the kernel granted it, and of none that it is lost when none was asked for', () => {
    const namespace = ownNamespace()
    const all = opened(open(namespace))
    libc.close(all.fd)
    expect(all.features).toContainEqual(expect.objectContaining({ name: 'tun-tso', on: true }))
    for (const options of [{ offloads: false }, { header: false }]) {
      const none = opened(inNetwork(namespace, () => openTun(NAME, options)))
      libc.close(none.fd)
      expect(none.offloads).toBe(0)
      expect(none.features.map(({ on, downgrade }) => on || downgrade)).toEqual([false, false])
    }
  })

  test('takes the offloads and the header away from a device that had them', async () => {
    const namespace = ownNamespace()
    const first = opened(open(namespace))
    setPersistent(first.fd, true)
    libc.close(first.fd)
    const { fd } = opened(inNetwork(namespace, () => openTun(NAME, { header: false })))
    onTestFinished(() => void libc.close(fd))
    const features = ip('netns', 'exec', namespace, 'ethtool', '-k', NAME)
    expect(features).toMatch(/tcp-segmentation-offload: off/)
    expect(features).toMatch(/tx-checksumming: off/)
  })

  test('leaves a persistent device behind, and finds it again', () => {
    const namespace = ownNamespace()
    const first = opened(open(namespace))
    expect(setPersistent(first.fd, true)).toBe(0)
    ip('-n', namespace, 'address', 'add', `${HOST}/32`, 'dev', NAME)
    libc.close(first.fd)
    const second = opened(open(namespace))
    expect(second.offloads).toBe(first.offloads)
    expect(ip('-n', namespace, 'address', 'show', NAME)).toContain(HOST)
    expect(setPersistent(second.fd, false)).toBe(0)
    libc.close(second.fd)
    expect(() => ip('-n', namespace, 'link', 'show', NAME)).toThrow()
  })

  test('that somebody else holds fails with EBUSY', () => {
    const namespace = ownNamespace()
    const { fd } = opened(open(namespace))
    expect(open(namespace)).toEqual({ step: 'attach', errno: EBUSY })
    libc.close(fd)
  })

  test('under the name of another kind of device fails with EINVAL', () => {
    const namespace = ownNamespace()
    ip('-n', namespace, 'link', 'add', NAME, 'type', 'bridge')
    expect(open(namespace)).toEqual({ step: 'attach', errno: EINVAL })
    expect(ip('-n', namespace, '-d', 'link', 'show', NAME)).toContain('bridge')
  })
})

describe('a descriptor that is no good', () => {
  test('gives errors by value', () => {
    const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
    const device = new Tun(memory, 987_654)
    expect(device.read(memory.reserve(100), 100)).toBe(-EBADF)
    expect(device.write(memory.reserve(16), 1)).toBe(-EBADF)
  })

  test('whose device was deleted gives EBADFD, until another takes its place', async () => {
    const harness = tunHarness()
    const { memory, namespace } = harness
    const device = harness.device as Tun
    const at = memory.reserve(2048)
    ip('-n', namespace, 'link', 'delete', NAME)
    expect(device.read(at, 2048)).toBe(-EBADFD)
    expect(writePieces(harness, fromTun(udpPacket()))).toBe(-EBADFD)
    const again = opened(inNetwork(namespace, () => openTun(NAME)))
    onTestFinished(() => void libc.close(again.fd))
    device.replaceDescriptor(again.fd)
    harness.setUp(true)
    expect(device.read(at, 2048)).toBe(0)
    await harness.hostSends(udpPacket({ source: HOST, destination: REMOTE }))
    expect(device.read(at, 2048)).toBe(virtioNet.HEADER_LEN + 28)
  })
})

describe('reading what the host left open', () => {
  test('gives a UDP super-packet with the size of its segments', async () => {
    const { namespace, tun, memory, device } = tunHarness()
    const socket = NamespaceSocket.udp(namespace, { to: [REMOTE, 5000], segmentBytes: 1000 })
    onTestFinished(() => socket.close())
    await socket.write(countingBytes(3500))
    const at = memory.reserve(65545)
    const read = device.read(at, 65545)
    const vnet = virtioNet.parse(memory.bytes, at, at + read)
    // Without USO (before Linux 6.2) the kernel cuts by itself.
    const whole = (tun.offloads & 0x20) !== 0
    expect(read).toBe(virtioNet.HEADER_LEN + 28 + (whole ? 3500 : 1000))
    const size = whole ? { gsoType: virtioNet.GSO_UDP_L4, gsoSize: 1000 } : { gsoType: 0, gsoSize: 0 }
    expect(vnet).toMatchObject({ flags: virtioNet.FLAG_NEEDS_CSUM, checksumStart: 20, checksumOffset: 6, ...size })
  })
})

describe('a virtio-net header', () => {
  const to = { source: REMOTE, destination: HOST }
  const payload = countingBytes(3000)
  const tcpSuper = tcpPacket({ ...to, payload, checksum: 'partial' })
  const udpSuper = udpPacket({ ...to, payload, checksum: 'partial' })
  const largest = tcpPacket({ ...to, payload: countingBytes(65495), checksum: 'partial' })
  const sixty = udpPacket({ ...to, payload: countingBytes(64), checksum: 'partial' })
  const many = udpPacket({ ...to, payload: countingBytes(129), checksum: 'partial' })
  const TCP: VnetOptions = {
    ...{ flags: virtioNet.FLAG_NEEDS_CSUM, gsoType: virtioNet.GSO_TCPV4, headerLength: 40, gsoSize: 1400 },
    ...{ checksumStart: 20, checksumOffset: 16 },
  }
  const UDP: VnetOptions = { ...TCP, gsoType: virtioNet.GSO_UDP_L4, headerLength: 28, checksumOffset: 6 }

  test.each<[string, Uint8Array, VnetOptions]>([
    ['a TCP super-packet', tcpSuper, TCP],
    ['the largest TCP super-packet', largest, TCP],
    ['a header length of 0', tcpSuper, { ...TCP, headerLength: 0 }],
    ['a TCP super-packet of one segment', tcpSuper, { ...TCP, gsoSize: 3000 }],
    ['a UDP super-packet', udpSuper, UDP],
    ['a UDP super-packet of 64 segments', sixty, { ...UDP, gsoSize: 1 }],
    ['an open checksum', udpSuper, { ...UDP, gsoType: 0, gsoSize: 0 }],
    ['a packet larger than the MTU', udpPacket({ ...to, payload }), {}],
  ])('is taken: %s', (_, packet, vnet) => {
    expect(writePieces(tunHarness(), fromTun(packet, vnet))).toBe(virtioNet.HEADER_LEN + packet.length)
  })

  test.each<[string, Uint8Array, VnetOptions]>([
    ['TCP without a segment size', tcpSuper, { ...TCP, gsoSize: 0 }],
    ['a header length beyond the packet', tcpSuper, { ...TCP, headerLength: 3100 }],
    ['a checksum in another place', tcpSuper, { ...TCP, checksumOffset: 18 }],
    ['a checksum that starts inside the IP header', tcpSuper, { ...TCP, checksumStart: 16 }],
    ['TCPv6 on an IPv4 packet', tcpSuper, { ...TCP, gsoType: virtioNet.GSO_TCPV6 }],
    ['UDP without an open checksum', udpSuper, { ...UDP, flags: 0 }],
    ['UDP with the ECN bit', udpSuper, { ...UDP, gsoType: virtioNet.GSO_UDP_L4 | virtioNet.GSO_ECN }],
    ['UDP of 129 segments', many, { ...UDP, gsoSize: 1 }],
    ['a packet that is not IP', new Uint8Array(40), {}],
  ])('is refused with EINVAL: %s', (_, packet, vnet) => {
    expect(writePieces(tunHarness(), fromTun(packet, vnet))).toBe(-EINVAL)
  })
})
