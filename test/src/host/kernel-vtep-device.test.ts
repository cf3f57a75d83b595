// The kernel's VXLAN device: made, kept, made anew or refused.
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseIpv6Prefix, parseMac } from '../../../dataplane/index.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import type { LinkInfo } from '../../../src/host/ip.ts'
import {
  deviceDifferences,
  explainDeviceFailure,
  planAddresses,
  planDevice,
} from '../../../src/host/kernel-vtep-device.ts'

const LOCAL: LocalVtep = {
  encapsulation: 'vxlan',
  deviceName: 'flannel.1',
  vni: 1,
  port: 8472,
  mac: parseMac('02:00:00:00:00:01') ?? 0,
  underlayInterface: 'eth0',
  underlayAddress: parseIpv4('192.0.2.1') ?? 0,
  overlayAddress: parseIpv4('10.244.1.0') ?? 0,
  network: { address: parseIpv4('10.244.0.0') ?? 0, length: 16 },
  ipv6Network: null,
  subnet: { address: parseIpv4('10.244.1.0') ?? 0, length: 24 },
  ipv6Subnet: null,
  mtuBytes: 1450,
}
const wholePlan = (local: LocalVtep, found: LinkInfo | null, udpChecksum: boolean, hasIpv6 = true) => [
  ...planDevice(local, found, udpChecksum, hasIpv6),
  ...planAddresses(local, found),
]
const FITTING = { id: 1, port: 8472, local: '192.0.2.1', link: 'eth0', learning: false, udp_csum: true }
const link = (data: object, more: Partial<LinkInfo> = {}): LinkInfo => ({
  ifindex: 5,
  ifname: 'flannel.1',
  flags: ['UP'],
  mtu: 1450,
  address: '02:00:00:00:00:01',
  linkinfo: { info_kind: 'vxlan', info_data: { ...FITTING, ...data } },
  ...more,
})

describe('the VXLAN device', () => {
  test('is made with flannel’s properties, then addressed, then brought up', () => {
    expect(wholePlan(LOCAL, null, true)).toEqual([
      'link add flannel.1 address 02:00:00:00:00:01 mtu 1450 type vxlan id 1 dstport 8472 local 192.0.2.1 dev eth0 nolearning udpcsum',
      'link set dev flannel.1 alias flannelette',
      'link set dev flannel.1 addrgenmode none',
      'address add 10.244.1.0/32 dev flannel.1',
      'link set dev flannel.1 up',
    ])
  })

  test('is made without an IPv6 property on a kernel without IPv6, which would refuse', () => {
    const plan = wholePlan(LOCAL, null, true, false)
    expect(plan.at(-1)).toBe('link set dev flannel.1 up')
    expect(plan.join()).not.toContain('addrgenmode')
  })

  test('gets an IPv6 address as well where IPv6 rides along, and loses those of a former subnet', () => {
    const ipv6Network = parseIpv6Prefix('fd00:10:244::/48')
    const dual = { ...LOCAL, ipv6Network, ipv6Subnet: parseIpv6Prefix('fd00:10:244:1::/64') }
    const inet6 = (local: string) => ({ family: 'inet6' as const, local, prefixlen: 128, scope: 'global' })
    const old = link({}, { addr_info: [inet6('fd00:10:244:9::'), { ...inet6('fe80::1'), scope: 'link' }] })
    expect(planAddresses(dual, old)).toEqual([
      'address add 10.244.1.0/32 dev flannel.1',
      'address add fd00:10:244:1::/128 dev flannel.1 nodad',
      'address delete fd00:10:244:9::/128 dev flannel.1',
      'link set dev flannel.1 up',
    ])
    expect(planAddresses(LOCAL, old)).not.toContain('address delete fe80::1/128 dev flannel.1')
    expect(planAddresses(LOCAL, old)).toContain('address delete fd00:10:244:9::/128 dev flannel.1')
  })

  test('can leave the outer checksum out', () => {
    expect(wholePlan(LOCAL, null, false)[0]).toMatch(/ noudpcsum$/)
  })

  test('that fits is kept, with MAC, MTU and alias put right', () => {
    const old = link({}, { mtu: 1400, address: '02:00:00:00:00:77' })
    expect(deviceDifferences(old, LOCAL, true)).toEqual([])
    expect(wholePlan(LOCAL, old, true)).toEqual([
      'link set dev flannel.1 address 02:00:00:00:00:01',
      'link set dev flannel.1 mtu 1450',
      'link set dev flannel.1 alias flannelette',
      'address add 10.244.1.0/32 dev flannel.1',
      'link set dev flannel.1 up',
    ])
  })

  test.each([
    ['another VNI', { id: 2 }, 'VNI 2, wanted 1'],
    ['another port', { port: 4789 }, 'port 4789, wanted 8472'],
    ['another local address', { local: '192.0.2.9' }, 'local address 192.0.2.9, wanted 192.0.2.1'],
    ['another lower device', { link: 'eth1' }, 'lower device eth1, wanted eth0'],
    ['learning on', { learning: true }, 'learning true, wanted false'],
    ['no outer checksum', { udp_csum: false }, 'UDP checksum false, wanted true'],
  ])('with %s does not fit', (_, data, difference) => {
    expect(deviceDifferences(link(data), LOCAL, true)).toEqual([difference])
  })
})

describe('a refusal of the kernel is put into words', () => {
  const explain = (said: string) => {
    const error = explainDeviceFailure(new FlanneletteError('host-command', `failed: ${said}`), LOCAL)
    return error as FlanneletteError
  }

  test('a busy port names the port and how to find its owner', () => {
    const error = explain('RTNETLINK answers: Address already in use')
    expect(error.code).toBe('port-busy')
    expect(error.oneLine).toContain('ss -lunp')
  })

  test('a second device with the same VNI is somebody else’s', () => {
    expect(explain('A VXLAN device with the specified VNI already exists.').code).toBe('device-foreign')
  })

  test('a kernel without vxlan points to the dataplane that needs none', () => {
    expect(explain('Unknown device type.').remedy).toContain('--dataplane userspace')
  })

  test('anything else is passed on', () => {
    const other = new FlanneletteError('host-command', 'something else')
    expect(explainDeviceFailure(other, LOCAL)).toBe(other)
  })
})
