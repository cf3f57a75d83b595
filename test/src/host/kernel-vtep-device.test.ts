// The kernel's VXLAN device: made, kept, made anew or refused.
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseIpv6, parseIpv6Prefix, parseMac } from '../../../dataplane/index.ts'
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
    ])
  })

  test('that is as it should be needs no command', () => {
    const address = { family: 'inet' as const, local: '10.244.1.0', prefixlen: 32, scope: 'global' }
    expect(wholePlan(LOCAL, link({}, { ifalias: 'flannelette', addr_info: [address] }), true)).toEqual([])
    const down = link({}, { ifalias: 'flannelette', addr_info: [address], flags: [] })
    expect(wholePlan(LOCAL, down, true)).toEqual(['link set dev flannel.1 up'])
  })

  test('learns MACs and carries marks where the config says so, and fits then', () => {
    const wishes = { ...LOCAL, learning: true, groupPolicy: true }
    expect(wholePlan(wishes, null, true)[0]).toMatch(/ learning udpcsum gbp$/)
    expect(deviceDifferences(link({ learning: true, gbp: true }), wishes, true)).toEqual([])
    expect(deviceDifferences(link({}), wishes, true)).toEqual([
      'learning false, wanted true',
      'group policy false, wanted true',
    ])
  })

  test.each([
    ['another VNI', { id: 2 }, 'VNI 2, wanted 1'],
    ['another port', { port: 4789 }, 'port 4789, wanted 8472'],
    ['another local address', { local: '192.0.2.9' }, 'local address 192.0.2.9, wanted 192.0.2.1'],
    ['another lower device', { link: 'eth1' }, 'lower device eth1, wanted eth0'],
    ['learning on', { learning: true }, 'learning true, wanted false'],
    ['marks on', { gbp: true }, 'group policy true, wanted false'],
    ['a multicast group', { group: '239.1.1.1' }, 'default destination 239.1.1.1, wanted none'],
    ['a default peer', { remote: '192.0.2.7' }, 'default destination 192.0.2.7, wanted none'],
    ['questions for MACs', { l2miss: true }, 'asking for unknown MACs true, wanted false'],
    ['no outer checksum', { udp_csum: false }, 'UDP checksum false, wanted true'],
  ])('with %s does not fit', (_, data, difference) => {
    expect(deviceDifferences(link(data), LOCAL, true)).toEqual([difference])
  })

  test.each([
    [{ info_kind: 'bridge', info_data: { forward_delay: 1500 } }, 'kind bridge, wanted vxlan'],
    [{ info_kind: 'tun', info_data: { type: 'tun' } }, 'kind tun, wanted vxlan'],
    [{}, 'kind none, wanted vxlan'],
  ])('of another kind, as %j, is told to be that, and not what it lacks of a VXLAN device', (linkinfo, difference) => {
    expect(deviceDifferences({ ...link({}), linkinfo }, LOCAL, true)).toEqual([difference])
  })

  test('without a local address or a lower device is told to have none', () => {
    const { local: _local, link: _link, ...rest } = FITTING
    const bare = { ...link({}), linkinfo: { info_kind: 'vxlan', info_data: rest } }
    expect(deviceDifferences(bare, LOCAL, true)).toEqual([
      'local address none, wanted 192.0.2.1',
      'lower device none, wanted eth0',
    ])
  })
})

describe('the VXLAN device between IPv6 addresses', () => {
  const OVER_IPV6: LocalVtep = {
    ...{ ...LOCAL, deviceName: 'flannel-v6.1', mtuBytes: 1430, network: null, subnet: null },
    ...{ underlayAddress: parseIpv6('2001:db8::1')!, overlayAddress: parseIpv6('fd00:10:244:1::')! },
    ...{ ipv6Network: parseIpv6Prefix('fd00:10:244::/48'), ipv6Subnet: parseIpv6Prefix('fd00:10:244:1::/64') },
  }
  const fitting = { id: 1, port: 8472, local6: '2001:db8::1', link: 'eth0', learning: false }
  const zero = { udp_zero_csum6_tx: false, udp_zero_csum6_rx: false }
  const found = (data: object): LinkInfo => ({
    ...link({}),
    linkinfo: { info_kind: 'vxlan', info_data: { ...fitting, ...zero, ...data } },
  })

  test('has a checksum in every datagram, and takes none without', () => {
    for (const udpChecksum of [true, false]) {
      expect(wholePlan(OVER_IPV6, null, udpChecksum)).toEqual([
        'link add flannel-v6.1 address 02:00:00:00:00:01 mtu 1430 type vxlan id 1 dstport 8472 local 2001:db8::1 dev eth0 nolearning noudp6zerocsumtx noudp6zerocsumrx',
        'link set dev flannel-v6.1 alias flannelette',
        'link set dev flannel-v6.1 addrgenmode none',
        'address add fd00:10:244:1::/128 dev flannel-v6.1 nodad',
        'link set dev flannel-v6.1 up',
      ])
    }
  })

  test('that fits is kept, and one that differs in this is not', () => {
    expect(deviceDifferences(found({}), OVER_IPV6, true)).toEqual([])
    expect(deviceDifferences(found({ local6: '2001:db8::9' }), OVER_IPV6, true)).toEqual([
      'local address 2001:db8::9, wanted 2001:db8::1',
    ])
    expect(deviceDifferences(found({ udp_zero_csum6_rx: true }), OVER_IPV6, true)).toEqual([
      'zero checksums accepted true, wanted false',
    ])
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
