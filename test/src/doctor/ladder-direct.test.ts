// The way to a peer that is reached without a tunnel, over a network that is only described.
import { describe, expect, test } from 'vitest'
import { climb } from '../../../src/doctor/ladder.ts'
import { askPeers } from '../../../src/doctor/peer-matrix.ts'
import type { LadderPlace, LadderTools } from '../../../src/doctor/rung.ts'
import { findTarget } from '../../../src/doctor/target.ts'
import { NOW, peer, withStatus } from '../../support/doctor-facts.ts'

const HOST_GW: LadderPlace = {
  ...{ underlayFamily: 'IPv4', underlayInterface: 'eth0', underlayMtuBytes: 1500 },
  ...{ overlayDevice: '', overlayMtuBytes: 1500 },
  ...{ overheadBytes: 0, port: 0, ipv6: false, ipv6Tunnel: null, outerDf: 'clear' },
}
const DIRECT: LadderPlace = {
  ...HOST_GW,
  overlayDevice: 'flannel.1',
  overlayMtuBytes: 1450,
  overheadBytes: 50,
  port: 8472,
}
const HOST = '192.0.2.2'
const BRIDGE = '10.244.2.1'
const IPV6 = { host: '2001:db8::2', bridge: 'fd00:0:0:2::1', subnet: 'fd00:0:0:2::/64' }
const ALL = [HOST, BRIDGE, IPV6.host, IPV6.bridge]
/** What is asked by each family where neither takes a tunnel. */
const IPV4_WELL = ['store good', 'underlay good', 'route good', 'sizes good', 'pod-side good']
const IPV6_WELL = ['underlay-ipv6 good', 'route-ipv6 good', 'sizes-ipv6 good', 'pod-side-ipv6 good']
const FOREIGN = 'a route that is not ours is in the way: 10.244.2.0/24 dev eth1 proto static'

interface Network {
  readonly answers?: readonly string[]
  readonly limitBytes?: number
  /** The same for the IPv6 address of the host. */
  readonly ipv6LimitBytes?: number
  readonly device?: string | null
  /** The same for the IPv6 subnet. */
  readonly ipv6Device?: string | null
  readonly refusal?: string
  /** By which each family's subnet is reached; absent: the peer. */
  readonly gateway?: string | null
  readonly ipv6Gateway?: string
  readonly way?: 'direct' | 'tunnel' | 'none'
  readonly why?: string
  /** Way of an IPv6 half; absent: there is none. */
  readonly ipv6Way?: 'direct' | 'tunnel' | 'none'
  readonly ipv6Why?: string
  /** Of the peer; `null`: its lease names none. */
  readonly ipv6Host?: string | null
}

async function ladder(network: Network = {}, place = HOST_GW) {
  const { answers = ALL, limitBytes = 1500, device = 'eth0', way = 'direct', why = '', ipv6Way } = network
  const { ipv6LimitBytes = limitBytes, ipv6Device = device, ipv6Why = '', ipv6Host = IPV6.host, refusal = '' } = network
  const { gateway, ipv6Gateway } = network
  const ports: number[] = []
  const tools: LadderTools = {
    echo: async (address, { count, packetBytes = 84 }) => {
      const limit = address === IPV6.host ? ipv6LimitBytes : limitBytes
      const received = answers.includes(address) && packetBytes <= limit ? count : 0
      const said = answers.includes(address) ? '' : refusal
      return { sent: count, received, averageMs: received > 0 ? 0.2 : null, tooBig: null, refusal: said }
    },
    askUdpPort: async (_, port) => {
      ports.push(port)
      return 'silent'
    },
    hopTo: async (address) => {
      const [name, host, via] = address.includes(':') ? [ipv6Device, IPV6.host, ipv6Gateway] : [device, HOST, gateway]
      const byHost = via === undefined && name === 'eth0' ? host : (via ?? null)
      return name === null ? null : { device: name, gateway: byHost }
    },
    now: () => NOW,
  }
  const half = ipv6Way === undefined ? [] : [{ subnet: IPV6.subnet, way: ipv6Way, why: ipv6Why }]
  const [ipv6Subnet, publicIpv6] = ipv6Way === undefined ? [null, null] : [IPV6.subnet, ipv6Host]
  const one = peer(2, { ipv6Subnet, publicIpv6, ways: [{ subnet: '10.244.2.0/24', way, why }, ...half] })
  const { view } = withStatus({ peers: [one] as never })
  const rungs = await climb(findTarget(HOST, view)!, view, { count: 2, place, tools })
  const matrix = await askPeers(view, place, tools)
  return { rungs, ports, matrix, verdicts: rungs.map(({ name, verdict }) => `${name} ${verdict}`) }
}

describe('without a tunnel', () => {
  test('a way that holds has a route in the place of a VTEP, the link’s sizes, and asks for no port', async () => {
    const { rungs, verdicts, ports, matrix } = await ladder()
    expect(verdicts).toEqual(['store good', 'underlay good', 'route good', 'sizes good', 'pod-side good'])
    expect(rungs.slice(2, 4).map(({ text }) => text)).toEqual([
      '10.244.2.0/24 by way of 192.0.2.2 on eth0, without a tunnel',
      '1500 passes, all that the link should take; pods send up to 1500',
    ])
    expect(ports).toEqual([])
    expect(matrix[0]).toMatchObject({ refused: false, whole: true, vtepMs: 0.2 })
  })

  test('one that is pending beside a tunnel is told with its reason, and is not asked', async () => {
    const network = {
      way: 'tunnel',
      ipv6Way: 'none',
      ipv6Why: 'no neighbour',
      answers: [HOST, BRIDGE, '10.244.2.0'],
    } as const
    const { verdicts, rungs } = await ladder({ ...network, device: 'flannel.1' }, { ...DIRECT, ipv6: true })
    expect(verdicts).toEqual([
      'store good',
      'underlay good',
      'vtep good',
      'vtep-ipv6 bad',
      'sizes good',
      'pod-side good',
    ])
    expect(rungs[3]).toMatchObject({
      text: 'fd00:0:0:2::/64 is pending: no neighbour',
      next: expect.stringMatching(/tries it again by itself/),
    })
  })

  test('a neighbour past the tunnel is asked in the same way', async () => {
    const { verdicts } = await ladder({}, DIRECT)
    expect(verdicts).toEqual(['store good', 'underlay good', 'route good', 'sizes good', 'pod-side good'])
  })

  test('a peer that takes the tunnel is asked through it', async () => {
    const { verdicts } = await ladder(
      { way: 'tunnel', answers: [HOST, BRIDGE, '10.244.2.0'], device: 'flannel.1' },
      DIRECT,
    )
    expect(verdicts[2]).toBe('vtep good')
  })

  test.each([
    ['is in the way', FOREIGN, /not ours is in the way/, /ip route delete 10\.244\.2\.0\/24/],
    [
      'has no neighbour',
      '192.0.2.2 is no neighbour on eth0',
      /no neighbour/,
      /on the same link\? ip route get 192\.0\.2\.2/,
    ],
    ['cannot start', 'the underlay address is gone', /is pending: the underlay address is gone/, /ip address show/],
    ['the host refuses', 'No buffer space available', /is pending: No buffer space/, /tries it again by itself/],
  ])('a route that %s is told with its remedy, and nothing is asked by it', async (_what, why, text, next) => {
    const { rungs, verdicts } = await ladder({ way: 'none', why })
    expect(verdicts.slice(2)).toEqual(['route bad', 'sizes skipped', 'pod-side skipped'])
    expect(rungs[2]).toMatchObject({ text: expect.stringMatching(text), next: expect.stringMatching(next) })
  })

  test('a tunnel that somebody else’s route keeps from a peer is not asked: the route is told', async () => {
    const { rungs, verdicts } = await ladder({ way: 'none', why: FOREIGN }, DIRECT)
    expect(verdicts).toEqual(['store good', 'underlay good', 'route bad', 'sizes skipped', 'pod-side skipped'])
    expect(rungs[2]?.next).toMatch(/ip route delete 10\.244\.2\.0\/24/)
  })

  test.each([
    [null, /there is no route to 10\.244\.2\.1/],
    ['tun9', /a route takes 10\.244\.2\.1 to tun9/],
  ])('a route to %s is seen although the daemon does not know yet', async (device, text) => {
    const { rungs, verdicts } = await ladder({ device })
    expect([verdicts[2], rungs[2]?.text]).toEqual(['route bad', expect.stringMatching(text)])
  })

  test.each([
    ['192.0.2.9', 'a route takes 10.244.2.1 to 192.0.2.9 on eth0, not by way of 192.0.2.2 on eth0'],
    [null, 'a route takes 10.244.2.1 to eth0, not by way of 192.0.2.2 on eth0'],
  ])('a route on the same link by way of %s is seen as well', async (gateway, text) => {
    const { rungs, verdicts } = await ladder({ gateway })
    expect([verdicts[2], rungs[2]?.text]).toEqual(['route bad', text])
  })

  test.each([
    [HOST_GW, 'bad', /^1400 passes of the link's 1500; pods send up to 1500$/],
    [{ ...DIRECT, overlayMtuBytes: 1380 }, 'warning', /^1400 passes of the link's 1500; pods send up to 1380$/],
  ])('a link that takes less is measured', async (place, verdict, text) => {
    const { rungs } = await ladder({ limitBytes: 1400 }, place)
    expect(rungs[3]).toMatchObject({
      verdict,
      text: expect.stringMatching(text),
      next: expect.stringMatching(/tracepath/),
    })
  })

  test('a host that answers no ICMP is not measured, and its pods are asked all the same', async () => {
    const { verdicts } = await ladder({ answers: [BRIDGE] })
    expect(verdicts.slice(1)).toEqual(['underlay unproven', 'route good', 'sizes skipped', 'pod-side good'])
  })
})

describe('IPv6 beside IPv4, both without a tunnel', () => {
  const DUAL: LadderPlace = { ...HOST_GW, ipv6: true }
  const DUAL_DIRECT: LadderPlace = {
    ...DIRECT,
    ipv6: true,
    ipv6Tunnel: { device: 'flannel-v6.1', mtuBytes: 1430, overheadBytes: 70 },
  }
  const without = (...silent: string[]) => ALL.filter((one) => !silent.includes(one))

  test.each([
    ['a backend without one', DUAL, 1500],
    ['neighbours past theirs', DUAL_DIRECT, 1430],
  ])('has the same rungs as IPv4, with %s', async (_, place, pods) => {
    const { rungs, verdicts, matrix } = await ladder({ ipv6Way: 'direct' }, place)
    expect(verdicts).toEqual([...IPV4_WELL, ...IPV6_WELL])
    expect(rungs.slice(-4).map(({ text }) => text)).toEqual([
      'ICMP 2001:db8::2: answers',
      'fd00:0:0:2::/64 by way of 2001:db8::2 on eth0, without a tunnel',
      `1500 passes, all that the link should take; pods send up to ${pods}`,
      'fd00:0:0:2::1, the bridge of fd00:0:0:2::/64: answers',
    ])
    if (place === DUAL) expect(matrix[0]).not.toHaveProperty('ipv6Ms')
  })

  test.each<[string, Network, string[], number, RegExp]>([
    [
      'the host’s address is no neighbour’s',
      { answers: without(IPV6.host, IPV6.bridge), refusal: 'Destination unreachable: Address unreachable' },
      ['underlay-ipv6 bad', 'route-ipv6 good', 'sizes-ipv6 skipped', 'pod-side-ipv6 bad'],
      0,
      /is it up\? ip neigh show to 2001:db8::2/,
    ],
    [
      'ICMPv6 is dropped there',
      { answers: without(IPV6.host, IPV6.bridge) },
      ['underlay-ipv6 unproven', 'route-ipv6 good', 'sizes-ipv6 skipped', 'pod-side-ipv6 bad'],
      3,
      /ip neigh show to 2001:db8::2; .*host 2001:db8::2 and icmp6'; ip6tables -S INPUT there; on 2001:db8::2: has a pod run/,
    ],
    [
      'only the pods are silent',
      { answers: without(IPV6.bridge) },
      ['underlay-ipv6 good', 'route-ipv6 good', 'sizes-ipv6 good', 'pod-side-ipv6 bad'],
      3,
      /^on 2001:db8::2: has a pod run there yet\? .*net\.ipv6\.conf\.all\.forwarding/,
    ],
    [
      'a route leads elsewhere',
      { ipv6Device: 'tun9' },
      ['underlay-ipv6 good', 'route-ipv6 bad', 'sizes-ipv6 skipped', 'pod-side-ipv6 skipped'],
      1,
      /^ip route get fd00:0:0:2::1/,
    ],
    [
      'a route with a lower metric leads to another host',
      { ipv6Gateway: '2001:db8::9' },
      ['underlay-ipv6 good', 'route-ipv6 bad', 'sizes-ipv6 skipped', 'pod-side-ipv6 skipped'],
      1,
      /^ip route get fd00:0:0:2::1/,
    ],
    [
      'it is pending',
      { ipv6Way: 'none', ipv6Why: '2001:db8::2 is no neighbour on eth0 (No route to host)' },
      ['underlay-ipv6 good', 'route-ipv6 bad', 'sizes-ipv6 skipped', 'pod-side-ipv6 skipped'],
      1,
      /is 2001:db8::2 on the same link\? ip route get 2001:db8::2/,
    ],
    [
      'the link takes less',
      { ipv6LimitBytes: 1400 },
      ['underlay-ipv6 good', 'route-ipv6 good', 'sizes-ipv6 bad', 'pod-side-ipv6 good'],
      2,
      /tracepath -n -l 1500 2001:db8::2/,
    ],
  ])('is told by the rung that fails, and IPv4 is well: %s', async (_, network, expected, bad, next) => {
    const { rungs, verdicts } = await ladder({ ipv6Way: 'direct', ...network }, DUAL)
    expect(verdicts).toEqual([...IPV4_WELL, ...expected])
    expect(rungs[IPV4_WELL.length + bad]?.next).toMatch(next)
  })

  test('of a peer that names no IPv6 address there is only what is pending', async () => {
    const network = { ipv6Host: null, ipv6Why: 'no more memory' }
    const { verdicts, rungs } = await ladder({ ...network, ipv6Way: 'none' }, DUAL)
    expect(verdicts).toEqual([...IPV4_WELL, 'route-ipv6 bad'])
    expect(rungs.at(-1)?.text).toBe('fd00:0:0:2::/64 is pending: no more memory')
    expect((await ladder({ ...network, ipv6Way: 'direct' }, DUAL)).verdicts).toEqual(IPV4_WELL)
  })

  test('has the route that it should, however its gateway is written', async () => {
    const { verdicts } = await ladder({ ipv6Way: 'direct', ipv6Gateway: '2001:DB8:0::2' }, DUAL)
    expect(verdicts).toEqual([...IPV4_WELL, ...IPV6_WELL])
  })

  test('is asked where IPv4 is not reached', async () => {
    const { verdicts } = await ladder({ ipv6Way: 'direct', way: 'none', why: FOREIGN }, DUAL)
    expect(verdicts.slice(2)).toEqual(['route bad', 'sizes skipped', 'pod-side skipped', ...IPV6_WELL])
  })

  test('is asked past the tunnel where IPv4 alone takes it', async () => {
    const answers = [...ALL, '10.244.2.0']
    const network = { way: 'tunnel', ipv6Way: 'direct', answers, device: 'flannel.1', ipv6Device: 'eth0' } as const
    const { verdicts } = await ladder(network, DUAL_DIRECT)
    expect(verdicts).toEqual([
      ...['store good', 'underlay good', 'vtep good', 'sizes good', 'pod-side good'],
      ...IPV6_WELL,
    ])
  })
})
