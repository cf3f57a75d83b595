// What a lab will consist of, from its options alone.
import { describe, expect, test } from 'vitest'
import { formatPrefix } from '../../../dataplane/wire/prefix.ts'
import type { FlanneletteError } from '../../../src/errors.ts'
import { belongsToLab, LAB_DEFAULTS, networkConfigJson, planLab, podAddress } from '../../../src/lab/plan.ts'
import { linkCommands } from '../../../src/lab/underlay.ts'

const plan = (options: Partial<typeof LAB_DEFAULTS> = {}) => planLab({ ...LAB_DEFAULTS, ...options })
const complaint = (options: Partial<typeof LAB_DEFAULTS>) => {
  try {
    plan(options)
  } catch (error) {
    return error as FlanneletteError
  }
  throw new Error('nothing was refused')
}

describe('a planned lab', () => {
  test('has hosts and pods whose names and addresses tell where they belong', () => {
    const { hosts, pods } = plan({ hosts: 2, pods: 2 })
    expect(hosts.map(({ name, underlayAddress }) => [name, underlayAddress])).toEqual([
      ['host1', '192.168.56.11'],
      ['host2', '192.168.56.12'],
    ])
    expect(pods.map(({ name, host }) => [name, host])).toEqual([
      ['pod1.1', 'host1'],
      ['pod1.2', 'host1'],
      ['pod2.1', 'host2'],
      ['pod2.2', 'host2'],
    ])
    const [first] = hosts
    expect(first === undefined ? '' : podAddress(first.subnet!, 1)).toBe('10.244.1.2')
  })

  test('keeps all its names inside its own prefix, without two alike', () => {
    const { hosts, pods, switchNamespace } = plan({ hosts: 100, pods: 50, name: 'big' })
    const names = [switchNamespace ?? '', ...hosts.map((host) => host.namespace), ...pods.map((pod) => pod.namespace)]
    expect(new Set(names).size).toBe(1 + 100 + 5000)
    expect(names.every((name) => belongsToLab(name, 'big'))).toBe(true)
    // IFNAMSIZ: the longest name of a port still fits an interface name.
    expect(Math.max(...pods.map((pod) => pod.name.length))).toBeLessThan(16)
  })

  test('makes the named hosts kernel hosts', () => {
    const { hosts } = plan({ kernel: ['host3', 'host1'] })
    expect(hosts.map(({ dataplane }) => dataplane)).toEqual(['kernel', 'userspace', 'kernel'])
  })

  test('lets the named hosts choose for themselves', () => {
    const { hosts } = plan({ auto: ['host3'], kernel: ['host1'] })
    expect(hosts.map(({ dataplane }) => dataplane)).toEqual(['kernel', 'userspace', 'auto'])
  })

  test('has no switch when two hosts are joined directly', () => {
    const direct = plan({ hosts: 2, direct: true })
    expect(direct.switchNamespace).toBeNull()
    expect(linkCommands(direct)).toEqual(['link add eth0 type veth peer name eth0 netns flannelette-lab-host2'])
  })

  test('connects every host to the switch otherwise', () => {
    const ports = linkCommands(plan({ hosts: 3 })).filter((command) => command.startsWith('link add host'))
    expect(ports).toHaveLength(3)
    expect(ports[1]).toBe('link add host2 type veth peer name eth0 netns flannelette-lab-host2')
  })

  test('has a second link, and a router between both, for hosts that are to be behind one', () => {
    const routed = plan({ hosts: 3, routed: ['host3'] })
    expect(routed.hosts.map(({ underlayAddress, router }) => [underlayAddress, router])).toEqual([
      ['192.168.56.11', '192.168.56.1'],
      ['192.168.56.12', '192.168.56.1'],
      ['192.168.57.13', '192.168.57.1'],
    ])
    const commands = linkCommands(routed)
    expect(commands).toEqual(expect.arrayContaining(['address add 192.168.57.1/24 dev switch2']))
    expect(commands.filter((command) => / master /.test(command))).toEqual([
      'link set dev host1 master switch up',
      'link set dev host2 master switch up',
      'link set dev host3 master switch2 up',
    ])
    expect(linkCommands(plan()).join()).not.toMatch(/switch2|address add/)
  })

  test.each([
    [{ directRouting: true }, { Type: 'vxlan', VNI: 1, DirectRouting: true }],
    [{ backend: 'host-gw' as const }, { Type: 'host-gw' }],
  ])('with %o asks its daemons for that', (options, Backend) => {
    expect(JSON.parse(networkConfigJson(plan(options), { ...LAB_DEFAULTS, ...options }))).toMatchObject({ Backend })
  })

  test('hands its daemons a config that flannel understands', () => {
    expect(JSON.parse(networkConfigJson(plan(), LAB_DEFAULTS))).toEqual({
      Network: '10.244.0.0/16',
      Backend: { Type: 'vxlan', VNI: 1 },
    })
  })
})

describe('a lab that cannot be is refused as wrong usage, with what can be', () => {
  test.each([
    [{ name: 'My Lab' }, 'lower-case letters and digits'],
    [{ name: 'a-b' }, 'lower-case letters and digits'],
    [{ name: '' }, 'a letter first'],
    [{ hosts: 0 }, 'use 1 to 100'],
    [{ hosts: 101 }, 'use 1 to 100'],
    [{ pods: 51 }, 'use 0 to 50'],
    [{ pods: 1.5 }, 'use 0 to 50'],
    [{ kernel: ['host4'] }, 'hosts are host1 to host3'],
    [{ kernel: ['pod1.1'] }, 'hosts are host1 to host3'],
    [{ auto: ['host4'] }, 'hosts are host1 to host3'],
    [{ kernel: ['host1'], auto: ['host2', 'host1'] }, 'name it in one of them'],
    [{ kernel: ['host1', 'host2', 'host1'] }, 'name each host once'],
    [{ auto: ['host1', 'host1'] }, 'name each host once'],
    [{ routed: ['host3', 'host3'] }, 'name each host once'],
    [{ udpChecksum: false }, 'name one, or leave it out'],
    [{ family: 'ipv6' as const, routed: ['host3'] }, 'leave one out'],
    [{ family: 'dual' as const, routed: ['host3'] }, 'leave one out'],
    [{ direct: true }, '--hosts 2'],
    [{ routed: ['host4'] }, 'hosts are host1 to host3'],
    [{ hosts: 2, direct: true, routed: ['host2'] }, 'leave one out'],
    [{ backend: 'host-gw' as const, routed: ['host3'] }, 'leave one out'],
    [{ backend: 'udp' as const, directRouting: true }, 'leave one out'],
  ])('%o', (options, remedy) => {
    const error = complaint(options)
    expect(error.code).toBe('usage')
    expect(error.remedy).toContain(remedy)
  })
})

describe('a namespace', () => {
  test.each([
    ['flannelette-lab-host1', true],
    ['flannelette-lab-pod12.3', true],
    ['flannelette-lab-switch', true],
    ['flannelette-lab2-host1', false],
    ['flannelette-lab-2-host1', false],
    ['flannelette-lab-host', false],
    ['other-lab-host1', false],
  ])('%s belongs to "lab": %s', (namespace, belongs) => {
    expect(belongsToLab(namespace, 'lab')).toBe(belongs)
  })
})

describe('a lab with tunnels over IPv6', () => {
  test('has hosts with addresses of both families', () => {
    const { hosts, network } = plan({ family: 'dual', hosts: 2 })
    expect(hosts.map(({ underlayAddress, underlayIpv6 }) => [underlayAddress, underlayIpv6])).toEqual([
      ['192.168.56.11', 'fd00:192:168:56::11'],
      ['192.168.56.12', 'fd00:192:168:56::12'],
    ])
    expect([network === null, hosts[0]!.subnet === null, hosts[0]!.ipv6Subnet === null]).toEqual([false, false, false])
    expect(JSON.parse(networkConfigJson(plan({ family: 'dual' }), { ...LAB_DEFAULTS, family: 'dual' }))).toEqual({
      Network: '10.244.0.0/16',
      EnableIPv6: true,
      IPv6Network: 'fd00:10:244::/48',
      Backend: { Type: 'vxlan', VNI: 1 },
    })
  })

  test('or of IPv6 alone', () => {
    const { hosts, network } = plan({ family: 'ipv6' })
    expect([hosts[0]!.underlayAddress, hosts[0]!.subnet, network]).toEqual(['fd00:192:168:56::11', null, null])
    expect(JSON.parse(networkConfigJson(plan({ family: 'ipv6' }), { ...LAB_DEFAULTS, family: 'ipv6' }))).toEqual({
      EnableIPv4: false,
      EnableIPv6: true,
      IPv6Network: 'fd00:10:244::/48',
      Backend: { Type: 'vxlan', VNI: 1 },
    })
  })

  test('needs the vxlan backend, and has no use for IPv6 over IPv4', () => {
    expect(complaint({ family: 'dual', backend: 'udp' }).message).toContain('--family dual')
    expect(complaint({ family: 'ipv6', ipv6: true }).message).toContain('--ipv6')
  })
})

describe('a lab with IPv6', () => {
  test('has an IPv6 subnet for each host that tells where it belongs', () => {
    const { hosts, ipv6Network } = plan({ ipv6: true, hosts: 11 })
    expect(ipv6Network === null ? '' : formatPrefix(ipv6Network)).toBe('fd00:10:244::/48')
    const subnets = hosts.map(({ ipv6Subnet }) => (ipv6Subnet === null ? '' : formatPrefix(ipv6Subnet)))
    expect([subnets[0], subnets[10]]).toEqual(['fd00:10:244:1::/64', 'fd00:10:244:b::/64'])
    expect(podAddress(hosts[0]!.ipv6Subnet!, 1)).toBe('fd00:10:244:1::2')
  })

  test('hands its daemons a config that says how IPv6 crosses', () => {
    expect(JSON.parse(networkConfigJson(plan({ ipv6: true }), LAB_DEFAULTS))).toEqual({
      Network: '10.244.0.0/16',
      EnableIPv6: true,
      IPv6Network: 'fd00:10:244::/48',
      Backend: { Type: 'vxlan', VNI: 1, IPv6OverIPv4: true },
    })
  })

  test('needs the vxlan backend', () => {
    expect(complaint({ ipv6: true, backend: 'udp' }).message).toContain('--ipv6')
  })
})
