// The ladder over a network that is only described: which rung fails, and what it says to do.
import { describe, expect, test } from 'vitest'
import { climb } from '../../../src/doctor/ladder.ts'
import type { NodeView } from '../../../src/doctor/node-view.ts'
import type { Rung } from '../../../src/doctor/rung.ts'
import { findTarget } from '../../../src/doctor/target.ts'
import { type Network, PLACE, tools } from '../../support/described-network.ts'
import { healthy, neverRun, peer, withoutDaemon, withStatus } from '../../support/doctor-facts.ts'

const ALL = ['192.0.2.2', '10.244.2.0', '10.244.2.1']

async function ladder(network: Network, word = '192.0.2.2', view: NodeView = healthy().view, place = PLACE) {
  const target = findTarget(word, view)
  const told: Rung[] = []
  const rungs = await climb(target!, view, {
    count: 3,
    place,
    tools: tools(network),
    onRung: (rung) => told.push(rung),
  })
  expect(told).toEqual(rungs)
  return rungs
}

const verdicts = (rungs: readonly Rung[]): string => rungs.map(({ verdict }) => verdict).join(' ')
const rungOf = (rungs: readonly Rung[], name: Rung['name']): Rung => rungs.find((rung) => rung.name === name)!

describe('the ladder', () => {
  test('holds on every rung', async () => {
    const rungs = await ladder({ answers: ALL, limits: { '10.244.2.0': 1450, '192.0.2.2': 1500 } })
    expect(verdicts(rungs)).toBe('good good good good good')
    expect(rungs.map(({ text }) => text)).toEqual([
      'lease 10.244.2.0/24, 192.0.2.2, for 23h more',
      'ICMP 192.0.2.2: answers',
      'ICMP 10.244.2.0 through the tunnel: answers',
      '1450 passes, 1451 too big for the tunnel (1500 − 50); underlay passes 1500',
      '10.244.2.1, the bridge of 10.244.2.0/24: answers',
    ])
  })

  test.each([
    ['nothing answers', { answers: [] }, 'good bad bad skipped skipped', 'underlay', /neither ICMP nor the tunnel/],
    ['ICMP is blocked, the tunnel works', { answers: ALL.slice(1) }, 'good unproven good good good', 'underlay', null],
    [
      'the tunnel is blocked',
      { answers: ALL.slice(0, 1) },
      'good good bad skipped skipped',
      'vtep',
      /firewall or a hypervisor/,
    ],
    [
      'a route leads past the tunnel',
      { answers: ALL.slice(0, 1), device: 'eth0' },
      'good good bad skipped skipped',
      'vtep',
      /a route takes it to eth0, not into flannel\.1: ip route get 10\.244\.2\.0/,
    ],
    [
      'no route at all',
      { answers: ALL.slice(0, 1), device: null },
      'good good bad skipped skipped',
      'vtep',
      /no route to 10\.244\.2\.0/,
    ],
    [
      'nobody listens',
      { answers: ALL.slice(0, 1), refused: true },
      'good bad bad skipped skipped',
      'underlay',
      /ss -lunp/,
    ],
    [
      'a router says no',
      { answers: [], refusal: 'Destination Host Unreachable from 192.0.2.9' },
      'good bad bad skipped skipped',
      'underlay',
      /^is it up\? ip neigh show to 192\.0\.2\.2; ip route get/,
    ],
    [
      'the bridge is missing',
      { answers: ALL.slice(0, 2) },
      'good good good good bad',
      'pod-side',
      /ip address show to 10\.244\.2\.1/,
    ],
    [
      'packets are lost',
      { answers: ALL, received: 2 },
      'good warning warning good warning',
      'vtep',
      /packets are lost/,
    ],
    [
      'a hole in the MTU',
      { answers: ALL, limits: { '10.244.2.0': 1350, '192.0.2.2': 1400 } },
      'good good good bad good',
      'sizes',
      /takes 1400 of 1500 bytes: set Backend\.MTU to 1400 \(overlay 1350\)/,
    ],
  ] as const)('%s', async (_, network, expected, name, next) => {
    const rungs = await ladder({ limits: { '10.244.2.0': 1450, '192.0.2.2': 1500 }, ...network })
    expect(verdicts(rungs)).toBe(expected)
    const rung = rungOf(rungs, name)
    if (next === null) expect(rung.next).toBeNull()
    else expect(rung.next).toMatch(next)
  })

  test('names the hole', async () => {
    const rungs = await ladder({ answers: ALL, limits: { '10.244.2.0': 1350, '192.0.2.2': 1400 } })
    expect(rungOf(rungs, 'sizes').text).toBe('1350 passes, 1351 to 1450 vanish; expected 1450 (1500 − 50)')
  })

  test('stops at the time limit, with the rungs so far', async () => {
    const signal = AbortSignal.abort(new Error('over'))
    const view = healthy().view
    const options = { count: 1, place: PLACE, tools: tools({ answers: ALL }), signal }
    await expect(climb(findTarget('192.0.2.2', view)!, view, options)).rejects.toThrow('over')
  })
})

describe('the first rung', () => {
  const expired = withStatus({ peers: [peer(2, { expiresAt: '2026-03-01T11:58:00Z' })] as never }).view
  const leftOut = [{ subnet: '10.244.2.0/24', publicIp: '192.0.2.2', reason: 'no-mac', detail: 'no VTEP MAC' }]
  const kept = { ...neverRun().view, peers: [peer(2)] }

  test.each([
    ['expired', '192.0.2.2', expired, 'bad', /expired 2m ago/],
    ['not used', '192.0.2.2', withStatus({ peers: [], leftOut }).view, 'bad', /is not used: no-mac: no VTEP MAC/],
    ['of a daemon that is gone', '192.0.2.2', withoutDaemon().view, 'warning', /the daemon does not run/],
    ['kept by a former daemon', '192.0.2.2', kept, 'warning', /as a former daemon kept it/],
    ['its own', '10.244.1.7', healthy().view, 'bad', /this node's own/],
    [
      'in nobody’s subnet',
      '10.244.9.7',
      healthy().view,
      'bad',
      /no lease covers it; nearest: 10\.244\.3\.0\/24 of 192\.0\.2\.3/,
    ],
    [
      'known from a daemon that hangs',
      '192.0.2.2',
      { ...healthy().view, answers: false },
      'warning',
      /the daemon runs, but does not answer/,
    ],
    ['a host without a lease', '192.0.2.77', healthy().view, 'bad', /no lease covers it/],
    ['unknown, as all are', '192.0.2.2', neverRun().view, 'bad', /nothing is known of any peer/],
  ] as const)('a lease that is %s', async (_, word, view, verdict, text) => {
    const [store] = await ladder({ answers: ALL }, word, view)
    expect(store).toMatchObject({ name: 'store', verdict, text: expect.stringMatching(text) })
  })

  test('a rung that is not tried says why', async () => {
    const skipped = async (word: string) => (await ladder({ answers: ALL }, word)).at(-1)?.text
    expect(await skipped('10.244.1.7')).toBe('this node itself')
    expect(await skipped('192.0.2.77')).toBe('no lease')
  })
})

const withPeers6 = (): NodeView => {
  const peers = [peer(2, { ipv6Subnet: 'fd00:0:0:2::/64' })]
  return withStatus({ peers: peers as never }).view
}

describe('with IPv6 on both ends', () => {
  const climbed = (answers: readonly string[], place = { ...PLACE, ipv6: true }) =>
    ladder({ answers, limits: { '10.244.2.0': 1450, '192.0.2.2': 1500 } }, '192.0.2.2', withPeers6(), place)

  test('the IPv6 half of the VTEP is a rung of its own', async () => {
    const rungs = await climbed([...ALL, 'fd00:0:0:2::'])
    expect(verdicts(rungs)).toBe('good good good good good good')
    expect(rungOf(rungs, 'vtep-ipv6').text).toBe('ICMP fd00:0:0:2:: through the tunnel: answers')
  })

  test('silence there is a failure that leaves the others their verdicts', async () => {
    const rungs = await climbed(ALL)
    expect(verdicts(rungs)).toBe('good good good bad good good')
    expect(rungOf(rungs, 'vtep-ipv6').next).toMatch(/IPv4 passes, so look at IPv6 on 192\.0\.2\.2/)
  })

  test('a node without IPv6 does not ask', async () => {
    expect((await climbed(ALL, PLACE)).map(({ name }) => name)).not.toContain('vtep-ipv6')
  })
})
