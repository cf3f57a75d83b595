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
const FOREIGN = 'a route that is not ours is in the way: 10.244.2.0/24 dev eth1 proto static'

interface Network {
  readonly answers?: readonly string[]
  readonly limitBytes?: number
  readonly device?: string | null
  readonly way?: 'direct' | 'tunnel' | 'none'
  readonly why?: string
  /** Way of an IPv6 half; absent: there is none. */
  readonly ipv6Way?: 'direct' | 'none'
}

async function ladder(network: Network = {}, place = HOST_GW) {
  const { answers = [HOST, BRIDGE], limitBytes = 1500, device = 'eth0', way = 'direct', why = '', ipv6Way } = network
  const ports: number[] = []
  const tools: LadderTools = {
    echo: async (address, { count, packetBytes = 84 }) => {
      const received = answers.includes(address) && packetBytes <= limitBytes ? count : 0
      return { sent: count, received, averageMs: received > 0 ? 0.2 : null, tooBig: null, refusal: '' }
    },
    askUdpPort: async (_, port) => {
      ports.push(port)
      return 'silent'
    },
    deviceTo: async () => device,
    now: () => NOW,
  }
  const ipv6 = 'fd00:0:0:2::/64'
  const half = ipv6Way === undefined ? [] : [{ subnet: ipv6, way: ipv6Way, why: 'no neighbour' }]
  const ipv6Subnet = ipv6Way === undefined ? null : ipv6
  const one = peer(2, { ipv6Subnet, ways: [{ subnet: '10.244.2.0/24', way, why }, ...half] })
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

  test('an IPv6 half has no VTEP to ask, and is told of when no route leads to it', async () => {
    const place = { ...HOST_GW, ipv6: true }
    const well = await ladder({ ipv6Way: 'direct' }, place)
    expect(well.verdicts).toEqual(['store good', 'underlay good', 'route good', 'sizes good', 'pod-side good'])
    expect(well.matrix[0]).not.toHaveProperty('ipv6Ms')
    const lost = await ladder({ ipv6Way: 'none' }, place)
    expect(lost.rungs[2]).toMatchObject({ verdict: 'bad', text: 'fd00:0:0:2::/64 is pending: no neighbour' })
  })

  test('an IPv6 half that is pending beside a subnet that is reached keeps that one from no question', async () => {
    const { verdicts, rungs } = await ladder({ ipv6Way: 'none' }, { ...HOST_GW, ipv6: true })
    expect(verdicts).toEqual(['store good', 'underlay good', 'route bad', 'sizes good', 'pod-side good'])
    expect(rungs[2]?.next).toMatch(/tries it again by itself/)
  })

  test('one that is pending beside a tunnel is told with its reason, and is not asked', async () => {
    const network = { way: 'tunnel', ipv6Way: 'none', answers: [HOST, BRIDGE, '10.244.2.0'] } as const
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
