// Nodes with a tunnel between IPv6 addresses of hosts beside that over IPv4: ping and doctor ask by both, each with its own
// underlay, device, sizes and remedies.
import { describe, expect, test } from 'vitest'
import { doctorText } from '../../../src/cli/doctor-output.ts'
import { ipv6WayTo } from '../../../src/doctor/ipv6-way.ts'
import { climb } from '../../../src/doctor/ladder.ts'
import { askPeers, judgePeers } from '../../../src/doctor/peer-matrix.ts'
import type { LadderPlace, Rung } from '../../../src/doctor/rung.ts'
import { findTarget } from '../../../src/doctor/target.ts'
import { type Network, PLACE, tools } from '../../support/described-network.ts'
import { IPV6_PLACE, peer, withIpv6, withStatus } from '../../support/doctor-facts.ts'

const DUAL: LadderPlace = { ...PLACE, ...IPV6_PLACE }
const TELLING: LadderPlace = { ...DUAL, outerDf: 'set' }
const IPV4 = { host: '192.0.2.2', vtep: '10.244.2.0', bridge: '10.244.2.1' }
const IPV6 = { host: '2001:db8::2', vtep: 'fd00:10:244:2::' }
const ALL = [...Object.values(IPV4), ...Object.values(IPV6)]
/** As all should be: the VTEPs by their devices, the hosts by the link. */
const WHOLE = { [IPV4.vtep]: 1450, [IPV6.vtep]: 1430, [IPV4.host]: 1500, [IPV6.host]: 1500 }

describe('ping', () => {
  const ladder = (network: Network, place = DUAL, word = IPV4.host, { view } = withIpv6()) => {
    return climb(findTarget(word, view)!, view, { count: 3, place, tools: tools(network) })
  }
  const rungOf = (rungs: readonly Rung[], name: Rung['name']): Rung => rungs.find((rung) => rung.name === name)!
  const verdicts = (rungs: readonly Rung[]): string => rungs.map(({ verdict }) => verdict).join(' ')

  test.each([
    ['all answer', ALL, 'good good good good', null],
    ['ICMP is blocked, the tunnel works', ALL.filter((one) => one !== IPV6.host), 'unproven good good good', null],
    ['the tunnel is blocked', ALL.filter((one) => one !== IPV6.vtep), 'good bad good skipped', null],
    [
      'nothing answers',
      Object.values(IPV4),
      'bad bad good skipped',
      /neither ICMP nor the tunnel answers: is 2001:db8::2 up\? .*\(icmp6 or udp/,
    ],
  ] as const)('its underlay, its VTEP and its sizes are rungs: %s', async (_, answers, expected, next) => {
    const rungs = await ladder({ answers, limits: WHOLE })
    const names = ['store', 'underlay', 'vtep', 'underlay-ipv6', 'vtep-ipv6', 'sizes', 'sizes-ipv6', 'pod-side']
    expect(rungs.map(({ name }) => name)).toEqual(names)
    expect(verdicts(rungs.slice(3, 7))).toBe(expected)
    if (next !== null) expect(rungOf(rungs, 'underlay-ipv6').next).toMatch(next)
  })

  test('each tunnel has its sizes, and says which it is', async () => {
    const rungs = await ladder({ answers: ALL, limits: WHOLE }, DUAL, IPV6.host)
    expect([rungOf(rungs, 'sizes').text, rungOf(rungs, 'sizes-ipv6').text]).toEqual([
      'over IPv4: 1450 passes, 1451 too big for the tunnel (1500 − 50); underlay passes 1500',
      'over IPv6: 1430 passes, 1431 too big for the tunnel (1500 − 70); underlay passes 1500',
    ])
  })

  const direct = (ipv6Way: 'tunnel' | 'direct') => {
    const peers = withIpv6().view.peers.map((one) => {
      const [ipv4, ipv6] = [one.subnet, one.ipv6Subnet!].map((subnet, index) => {
        return { subnet, way: index === 0 ? ('direct' as const) : ipv6Way, why: '' }
      })
      return { ...one, ways: [ipv4, ipv6] }
    })
    return withIpv6({}, { peers: peers as never })
  }
  const device = (address: string) => (address.includes(':') ? 'flannel-v6.1' : 'eth0')
  const past = ['store', 'underlay', 'route', 'sizes', 'pod-side']

  test('the tunnel of a peer that is reached past it by IPv4 is asked and measured', async () => {
    const rungs = await ladder({ answers: ALL, limits: WHOLE, device }, DUAL, IPV4.host, direct('tunnel'))
    expect(rungs.map(({ name }) => name)).toEqual([...past, 'underlay-ipv6', 'vtep-ipv6', 'sizes-ipv6'])
    expect(verdicts(rungs)).toBe('good good good good good good good good')
    expect(rungOf(rungs, 'sizes-ipv6').text).toMatch(/^over IPv6: 1430 passes, 1431 too big for the tunnel/)
  })

  test.each([
    [
      'passes nothing',
      { answers: ALL.filter((one) => one !== IPV6.vtep) },
      'bad',
      'skipped',
      /^IPv4 goes past its tunnel/,
    ],
    ['has a hole', { answers: ALL, limits: { ...WHOLE, [IPV6.vtep]: 1330 } }, 'good', 'bad', null],
  ] as const)('one that %s is told beside a direct way', async (_, network, vtep, sizes, next) => {
    const rungs = await ladder({ limits: WHOLE, device, ...network }, DUAL, IPV4.host, direct('tunnel'))
    expect([rungOf(rungs, 'vtep-ipv6').verdict, rungOf(rungs, 'sizes-ipv6').verdict]).toEqual([vtep, sizes])
    if (next !== null) expect(rungOf(rungs, 'vtep-ipv6').next).toMatch(next)
    expect(rungOf(rungs, 'pod-side').verdict).toBe('good')
  })

  test('beside a direct way by IPv4, IPv6 that rides over IPv4 is measured through that tunnel', async () => {
    const place = { ...DUAL, ipv6Tunnel: null }
    const riding = (limits: Network['limits'], answers = ALL) => {
      const by = (address: string) => (address.includes(':') ? 'flannel.1' : 'eth0')
      return ladder({ answers, limits: { ...WHOLE, ...limits }, device: by }, place, IPV4.host, direct('tunnel'))
    }
    const rungs = await riding({ [IPV6.vtep]: 1350 })
    expect(rungs.map(({ name }) => name)).toEqual([...past, 'vtep-ipv6', 'sizes-ipv6'])
    expect(rungOf(rungs, 'sizes-ipv6')).toMatchObject({
      verdict: 'bad',
      text: expect.stringMatching(/^over IPv4: 1350/),
    })
    const silent = rungOf(await riding({}, Object.values(IPV4)), 'vtep-ipv6')
    expect(silent.next).toBe(
      'IPv4 goes past the tunnel, and IPv6 needs it: on 192.0.2.2: tcpdump -ni any udp port 8472',
    )
  })

  test('nothing is asked through a tunnel that both families go past', async () => {
    const silent = { answers: [IPV4.host, IPV4.bridge, IPV6.host, 'fd00:10:244:2::1'], limits: WHOLE }
    const rungs = await ladder({ ...silent, device: 'eth0' }, DUAL, IPV4.host, direct('direct'))
    expect(rungs.map(({ name }) => name)).toEqual([
      ...past,
      ...['underlay-ipv6', 'route-ipv6', 'sizes-ipv6', 'pod-side-ipv6'],
    ])
    expect(verdicts(rungs)).toBe(Array(9).fill('good').join(' '))
  })

  const told = 'let ICMPv6 "packet too big" of the routers reach the nodes'
  const small = { ...WHOLE, [IPV6.vtep]: 1330, [IPV6.host]: 1400 }
  test.each<[string, LadderPlace, Partial<Network>, Rung['verdict'], string, string]>([
    [
      'a hole',
      DUAL,
      { limits: small },
      'bad',
      'over IPv6: 1330 passes, 1331 to 1430 vanish; expected 1430 (1500 − 70)',
      `takes 1400 of 1500 bytes: set Backend.MTU to 1400 (overlay 1330) on all nodes, or raise the MTU of the path; or ${told}`,
    ],
    [
      'a hole, the underlay not proven',
      TELLING,
      { limits: small, answers: ALL.filter((one) => one !== IPV6.host) },
      'bad',
      'over IPv6: 1330 passes, 1331 to 1430 vanish; expected 1430 (1500 − 70)',
      `pass 1400: set Backend.MTU to 1400 on all nodes, or find what drops larger UDP; or ${told}`,
    ],
    [
      'a path that is too small for IPv6 of pods',
      DUAL,
      { limits: { ...small, [IPV6.vtep]: 1230, [IPV6.host]: 1300 } },
      'bad',
      'over IPv6: 1230 passes, 1231 to 1430 vanish; expected 1430 (1500 − 70)',
      `the path takes 1300 of 1500 bytes, and packets of pods need 1350 there: raise the MTU of the path; or ${told}`,
    ],
    [
      'a way that pods are told of',
      TELLING,
      { limits: small, tells: true },
      'warning',
      'over IPv6: 1330 passes, 1331 to 1430 are refused (limit named: 1330); expected 1430 (1500 − 70); pods are told and adapt',
      'set Backend.MTU to 1400 (overlay 1330)',
    ],
    [
      'packets that this host cuts',
      DUAL,
      { limits: { ...small, [IPV6.vtep]: 1430 } },
      'warning',
      'underlay passes 1400 of 1500: large packets are cut before they leave',
      'set Backend.MTU to 1400 (overlay 1330)',
    ],
  ])(
    '%s of the IPv6 tunnel is measured, and that over IPv4 is good',
    async (_, place, network, verdict, text, next) => {
      const rungs = await ladder({ answers: ALL, ...network }, place)
      expect(rungOf(rungs, 'sizes').verdict).toBe('good')
      const rung = rungOf(rungs, 'sizes-ipv6')
      expect(rung).toMatchObject({ verdict, text: expect.stringContaining(text), next: expect.stringContaining(next) })
      expect(rung.next).not.toMatch(/outer-df/)
    },
  )

  test('Backend.MTU is one for both: over IPv4 it is not advised to be too small for the other', async () => {
    const rungs = await ladder({ answers: ALL, limits: { ...WHOLE, [IPV4.vtep]: 1290, [IPV4.host]: 1340 } })
    expect(rungOf(rungs, 'sizes').next).toMatch(/takes 1340 of 1500 bytes, and packets of pods need 1350 there/)
  })
})

describe('there is no second way', () => {
  const [withHalf] = withIpv6().view.peers

  test.each([
    ['where this node has no tunnel of its own for IPv6', withHalf!, { ...DUAL, ipv6Tunnel: null }],
    ['where this node has no IPv6', withHalf!, { ...DUAL, ipv6: false }],
    ['to a peer without an IPv6 half', peer(2), DUAL],
    ['to a peer without an IPv6 address of its host', { ...withHalf!, publicIpv6: null }, DUAL],
  ])('%s', (_, one, place) => {
    expect(ipv6WayTo(withHalf!, DUAL)).toMatchObject({ vtep: IPV6.vtep, publicIp: IPV6.host })
    expect(ipv6WayTo(one, place)).toBeNull()
  })
})

describe('the peer matrix', () => {
  const { view } = withStatus({ peers: withIpv6().view.peers.slice(0, 1) as never })
  const ask = (network: Network, place = DUAL) => askPeers(view, place, tools(network))
  const judged = async (network: Network, place = DUAL) => {
    return judgePeers(await ask({ limits: WHOLE, ...network }, place), withIpv6().view.status!.node, place)
  }
  const without = (...gone: string[]) => ({ answers: ALL.filter((one) => !gone.includes(one)) })

  test('has a row for each tunnel, and nothing to say where all is well', async () => {
    expect(await judged({ answers: ALL })).toEqual([])
    const peers = await ask({ answers: ALL, limits: WHOLE })
    const good = { refused: false, underlayMs: 0.25, vtepMs: 0.25, whole: true, fragmented: true }
    const ipv6Tunnel = { publicIp: IPV6.host, subnet: 'fd00:10:244:2::/64', ...good }
    expect(peers).toEqual([{ publicIp: IPV4.host, subnet: '10.244.2.0/24', ...good, ipv6Ms: 0.25, ipv6Tunnel }])
    const report = { at: '', findings: [], peers, strict: false }
    expect(doctorText(report, { colour: false, unicode: true }, false).split('\n').slice(0, 3)).toEqual([
      'PEER         SUBNET              UNDERLAY  TUNNEL   FULL SIZE  FRAGMENTS',
      '192.0.2.2    10.244.2.0/24       0.25 ms   0.25 ms  ✓          ✓',
      '2001:db8::2  fd00:10:244:2::/64  0.25 ms   0.25 ms  ✓          ✓',
    ])
  })

  test.each<[string, Network, LadderPlace, 'error' | 'note', RegExp, RegExp]>([
    [
      'a hole',
      { answers: ALL, limits: { ...WHOLE, [IPV6.vtep]: 1330 } },
      DUAL,
      'error',
      /^2001:db8::2 \(fd00:10:244:2::\/64\) gets packets of pods up to 1330 bytes, those of 1331 to 1430 vanish/,
      /seems to pass 1400: set Backend\.MTU to 1400 .*; or let ICMPv6 .*; flannelette ping 2001:db8::2$/,
    ],
    [
      'a small way, told',
      { answers: ALL, limits: { ...WHOLE, [IPV6.vtep]: 1330 }, tells: true },
      TELLING,
      'note',
      /up to 1330 of 1430 bytes; pods are told/,
      /flannelette ping 2001:db8::2$/,
    ],
    ['a tunnel that is blocked', without(IPV6.vtep), DUAL, 'error', /^2001:db8::2 .* nothing comes back/, /firewall/],
    ['an underlay that breaks', without(IPV6.vtep, IPV6.host), DUAL, 'error', /^2001:db8::2 .* neither/, /is it up\?/],
  ])('%s over IPv6 is said of that tunnel alone', async (_, network, place, severity, message, remedy) => {
    expect(await judged(network, place)).toMatchObject([
      { severity, message: expect.stringMatching(message), remedy: expect.stringMatching(remedy) },
    ])
  })

  test('a peer that is gone altogether is said once', async () => {
    expect(await judged({ answers: [] })).toMatchObject([
      { message: expect.stringMatching(/^192\.0\.2\.2 .* neither/) },
    ])
  })

  test('IPv6 by the tunnel of IPv4 is a column of the row, and told of where it fails', async () => {
    const place = { ...DUAL, ipv6Tunnel: null }
    const peers = await ask(without(IPV6.vtep), place)
    expect(peers[0]).toMatchObject({ ipv6Ms: null, vtepMs: 0.25 })
    expect(peers[0]).not.toHaveProperty('ipv6Tunnel')
    const report = { at: '', findings: [], peers, strict: false }
    expect(doctorText(report, { colour: false, unicode: true }, false)).toMatch(
      /TUNNEL +IPV6 +FULL.*\n.* 0\.25 ms +✗ +✓/,
    )
    expect(await judged(without(IPV6.vtep), place)).toMatchObject([
      { message: expect.stringMatching(/^192\.0\.2\.2 .* is reached by IPv4, but not by IPv6$/) },
    ])
  })
})
