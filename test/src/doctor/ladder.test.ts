// The ladder over a network that is only described: which rung fails, and what it says to do.
import { describe, expect, test } from 'vitest'
import { climb } from '../../../src/doctor/ladder.ts'
import { judgeSizes } from '../../../src/doctor/ladder-sizes.ts'
import type { NodeView } from '../../../src/doctor/node-view.ts'
import { askPeers, judgePeers } from '../../../src/doctor/peer-matrix.ts'
import type { LadderPlace, Rung } from '../../../src/doctor/rung.ts'
import { findTarget } from '../../../src/doctor/target.ts'
import { type Network, PLACE, tools } from '../../support/described-network.ts'
import { healthy, neverRun, peer, status, withoutDaemon, withStatus } from '../../support/doctor-facts.ts'

/** As PLACE, with DF set. */
const TELLING: LadderPlace = { ...PLACE, outerDf: 'set' }

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

  test('a node is found by public address, subnet, any address in it, and by name', () => {
    const { view } = healthy()
    const names = new Map([['host2', '192.0.2.2']])
    for (const word of ['192.0.2.2', '10.244.2.0/24', '10.244.2.99', 'host2']) {
      expect(findTarget(word, view, names)).toMatchObject({ kind: 'peer', lease: { publicIp: '192.0.2.2' } })
    }
    const dual = withPeers6()
    for (const word of ['fd00:0:0:2::/64', 'fd00:0:0:2::17']) {
      expect(findTarget(word, dual)).toMatchObject({ kind: 'peer', lease: { publicIp: '192.0.2.2' } })
    }
    expect(findTarget('fd00:0:0:9::1', dual)).toMatchObject({ kind: 'unknown' })
    expect(findTarget('host3', view, names)).toBeNull()
    expect(findTarget('10.244.2.0/25', view)).toMatchObject({ kind: 'unknown' })
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

describe('sizes', () => {
  const ruler = (largestBytes: number | null, namedBytes: number | null = null) => ({ largestBytes, namedBytes })
  const refused = { passes: false, limitBytes: 1450 }

  test.each([
    ['measured below', ruler(1400)],
    ['not proven below', null],
  ])('a hole is mended by the MTU; with DF set also by letting ICMP through, or by DF clear: %s', (_, underlay) => {
    const nextOf = (place: LadderPlace) => judgeSizes(place, ruler(1350), refused, underlay).next
    expect(nextOf(PLACE)).toMatch(/set Backend\.MTU to 1400/)
    expect(nextOf(PLACE)).not.toMatch(/ICMP|outer-df/)
    expect(nextOf(TELLING)).toMatch(
      /set Backend\.MTU to 1400 .*; or let ICMP .* reach the nodes; or .* --outer-df clear$/,
    )
  })

  test.each([
    ['cut on the way', PLACE, ruler(1450), ruler(1400, 1400), 'warning', /passes 1400 of 1500: large packets are cut/],
    ['not proven below', PLACE, ruler(1450), null, 'good', /underlay not proven/],
    ['a limit that a router names', PLACE, ruler(1350, 1350), ruler(1400), 'bad', /are refused \(limit named: 1350\)/],
    [
      'an MTU that never fitted, and large packets are lost',
      { ...PLACE, underlayMtuBytes: 1400 },
      ruler(1350),
      ruler(1400),
      'bad',
      /expected 1450 \(1450 \+ 50 is more than the underlay's 1400\)$/,
    ],
    [
      'a way that pods are told of',
      TELLING,
      ruler(1350, 1350),
      ruler(1400),
      'warning',
      /1350\); .*pods are told and adapt/,
    ],
    ['a way that nobody tells of, with DF set', TELLING, ruler(1350), null, 'bad', /1351 to 1450 vanish/],
    ['a limit named that is not what passes', TELLING, ruler(1300, 1350), null, 'bad', /1300 passes/],
    ['nothing large', PLACE, ruler(null), null, 'bad', /nothing large passes, 576 to 1450 vanish/],
    [
      'an MTU that does not fit',
      { ...PLACE, underlayMtuBytes: 1480 },
      ruler(1450),
      ruler(1480),
      'warning',
      /1450 passes/,
    ],
  ] as const)('%s', (_, place, tunnel, underlay, verdict, text) => {
    expect(judgeSizes(place, tunnel, refused, underlay)).toMatchObject({ verdict, text: expect.stringMatching(text) })
  })
})

describe('the peer matrix', () => {
  const ask = (network: Network) => askPeers(withStatus({ peers: [peer(2)] as never }).view, TELLING, tools(network))

  test.each([
    ['all well', { answers: ALL }, null, /./],
    ['dead', { answers: [] }, 'error', /answers neither/],
    ['no daemon', { answers: ALL.slice(0, 1), refused: true }, 'error', /refuses UDP/],
    ['blocked', { answers: ALL.slice(0, 1) }, 'error', /nothing comes back through the tunnel/],
    [
      'a hole',
      { answers: ALL, limits: { '10.244.2.0': 1400 } },
      'error',
      /up to 1400 bytes, those of 1401 to 1450 vanish: there is a hole in the MTU/,
    ],
    [
      'a small way, told',
      { answers: ALL, limits: { '10.244.2.0': 1400 }, tells: true },
      'note',
      /up to 1400 of 1450 bytes; pods are told/,
    ],
    ['ICMP blocked', { answers: ALL.slice(1) }, 'note', /does not answer ICMP/],
  ] as const)('%s', async (_, network, severity, message) => {
    const findings = judgePeers(await ask(network), status().node, TELLING)
    if (severity === null) expect(findings).toEqual([])
    else expect(findings).toMatchObject([{ check: 'peer-matrix', severity, message: expect.stringMatching(message) }])
  })
})
