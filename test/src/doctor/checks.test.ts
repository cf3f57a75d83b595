// Doctor's judgements, each on a host where one thing is wrong. What a healthy host looks like is in the support file.
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { DROP_REASON_NAMES } from '../../../dataplane/index.ts'
import { CHECKS, examine } from '../../../src/doctor/checks/all.ts'
import { dropRemedy } from '../../../src/doctor/checks/drop-remedies.ts'
import type { Facts } from '../../../src/doctor/facts.ts'
import {
  healthy,
  NOW,
  neverRun,
  peer,
  SUBNET_FILE,
  status,
  withLease,
  withNode,
  withoutDaemon,
  withStatus,
} from '../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../support/expect-finding.ts'

/** Packets that have gone out and come in. */
const crossed = (sent: number, received: number) => ({
  'outbound.packets.passed': sent,
  'inbound.packets.passed': received,
})

const unseen = { seen: false, why: 'not permitted' } as const
const feature = (name: string, on: boolean): Facts['view']['status'] =>
  status({ features: { [name]: { on, why: 'because' } } as never })
const withFeature = (name: string, on: boolean, kernelRelease: string, more: Partial<Facts> = {}): Facts =>
  withStatus(feature(name, on) ?? {}, { kernelRelease, ...more })
const later = (name: string, before: number, now: number): Facts =>
  withStatus({ counters: { [name]: before, 'inbound.packets.passed': 9 } }, { laterCounters: { [name]: now } })
const file = (text: string | null, facts: Facts = healthy()): Facts => ({
  ...facts,
  subnetFile: { seen: true, value: text },
})
const traffic = (sentPackets: number, lastReceived: string | null) =>
  ({ sentPackets, receivedPackets: 0, lastSent: '2026-03-01T12:00:00Z', lastReceived }) as const
const withPeers = (...peers: ReturnType<typeof peer>[]): Facts => withStatus({ peers: peers as never })
const offender = (reason: string) =>
  withStatus({
    offenders: [{ outerSource: '192.0.2.9', innerSource: '10.9.0.1', reason, packets: 5, lastSeen: 'now' }],
  })

const SYSTEM: readonly Row[] = [
  ['node-version', 'an old Node', healthy({ nodeVersion: '18.20.1' }), 'error', /18\.20\.1 is older than 20\.19/],
  [
    'koffi',
    'no binary of koffi',
    healthy({ koffiProblem: 'Error: no koffi' }),
    'error',
    /does not load: Error: no koffi/,
  ],
  ['tun-device', 'no /dev/net/tun', healthy({ tunProblem: 'ENOENT' }), 'error', /cannot be opened \(ENOENT\)/],
  ['tun-device', 'no permission as root', healthy({ tunProblem: 'EPERM' }), 'error', /may not be opened/],
  ['tun-device', 'no permission as a user', healthy({ tunProblem: 'EACCES', root: false }), 'unseen', /as root/],
  ['vxlan-module', 'no vxlan, userspace', healthy({ vxlan: 'absent' }), 'note', /userspace dataplane needs none/],
  [
    'vxlan-module',
    'no vxlan, kernel dataplane wanted',
    withStatus({ dataplane: 'kernel' }, { vxlan: 'absent' }),
    'error',
    /"operation not supported"/,
  ],
  ['vxlan-module', 'no vxlan, no daemon yet', neverRun({ vxlan: 'absent' }), 'note', /"operation not supported"/],
  [
    'dataplane',
    'auto took the kernel',
    withStatus({ dataplane: 'kernel', dataplaneWhy: 'auto: this kernel has vxlan devices' }),
    'ok',
    /^kernel dataplane \(auto: this kernel has vxlan devices\)$/,
  ],
  [
    'dataplane',
    'auto took the engine, and vxlan is there by now',
    withStatus({ dataplaneWhy: 'auto: this kernel has no vxlan devices' }, { vxlan: 'present' }),
    'note',
    /by now the kernel can make VXLAN devices/,
  ],
  ['vxlan-module', 'modules out of sight', neverRun({ vxlan: 'unknown' }), 'unseen', /out of sight/],
  ['capability', 'none', healthy({ mayConfigure: { seen: true, value: false } }), 'error', /no CAP_NET_ADMIN/],
  [
    'capability',
    'a user looks, no daemon runs',
    withoutDaemon({ mayConfigure: { seen: true, value: false }, root: false }),
    'unseen',
    /not root/,
  ],
  ['capability', 'unreadable', healthy({ mayConfigure: unseen }), 'unseen', /not permitted/],
  ['file-limit', 'a low limit', healthy({ openFileLimit: { seen: true, value: 256 } }), 'warning', /only 256/],
  ['file-limit', 'unreadable', healthy({ openFileLimit: unseen }), 'unseen', /not permitted/],
  ['udp-segments', 'a bad kernel, on', withFeature('udp-gso', true, '7.0.3'), 'error', /damages segmented/],
  ['udp-segments', 'a bad kernel, off', withFeature('udp-gso', false, '7.1.4'), 'note', /off by default/],
  ['udp-segments', 'a mended kernel', withFeature('udp-gso', true, '7.1.5'), 'ok', /not known/],
  [
    'udp-segments',
    'bad checksums that rise',
    withFeature('udp-gso', true, '6.12.1', { laterCounters: { 'inbound.dropped.bad-checksum': 4 } }),
    'warning',
    /4 packets arrived with a bad checksum/,
  ],
  ['udp-merging', 'an old kernel, on', withFeature('tun-gso-udp', true, '6.8.4'), 'warning', /loses merged UDP/],
  ['udp-merging', 'an old kernel, off', withFeature('tun-gso-udp', false, '6.1.0'), 'note', /is not merged/],
  ['udp-merging', 'a new kernel', withFeature('tun-gso-udp', true, '6.8.5'), 'ok', /safe/],
  [
    'features',
    'one given up',
    withStatus({ ...feature('udp-gro', false), counters: { 'downgrade.udp-gro': 1 } }),
    'note',
    /udp-gro is given up: because/,
  ],
  ['features', 'one that works', withFeature('udp-gro', true, '6.12.1'), 'ok', /udp-gro is on: because/],
  ['features', "Node's own sockets", withStatus({ driver: 'dgram' }), 'note', /outer ECN is neither sent nor seen/],
]

const DAEMON: readonly Row[] = [
  ['daemon', 'no status', neverRun(), 'warning', /no daemon has left a status/],
  ['daemon', 'gone', withoutDaemon(), 'error', /is gone; its last status is of 2026/],
  ['daemon', 'degraded', withStatus({ state: 'degraded' }), 'warning', /is degraded/],
  [
    'daemon',
    'degraded, with the reasons that it gives',
    withStatus({
      state: 'degraded',
      health: {
        ...{ live: true, ready: false, notes: ['no masquerading'] },
        checks: [{ name: 'device', ok: false, about: 'the underlay address is gone' }],
      },
    }),
    'warning',
    /is degraded: the underlay address is gone; no masquerading$/,
  ],
  ['daemon', 'lost', withStatus({ state: 'lost' }), 'error', /is lost/],
  ['api-socket', 'silent', healthy({ apiAnswers: { seen: true, value: false } }), 'warning', /does not answer/],
  ['api-socket', 'not for users', healthy({ apiAnswers: unseen }), 'unseen', /not permitted/],
  ['network-namespace', 'another one', healthy({ elsewhere: true }), 'error', /pid 4711\) lives in another network/],
  ['state-directory', 'full', healthy({ stateProblem: 'its disk is full' }), 'error', /its disk is full: .* remember/],
  ['drops', 'growing', later('inbound.dropped.unknown-peer', 3, 9), 'warning', /unknown-peer, 6 in .* 9 in all/],
  ['drops', 'of the past', later('inbound.dropped.unknown-peer', 3, 3), 'note', /3 packets were dropped earlier/],
  ['drops', 'not counted', withStatus({ counters: {} }), 'unseen', /does not count/],
  ['drops', 'by the kernel', later('outbound.dropped', 3, 9), 'warning', /outbound kernel, 6 in .* 9 in all/],
  ['drops', 'none by the kernel', withStatus({ counters: { 'inbound.errors': 0 } }), 'ok', /no packets/],
  ['drops', 'not seen again', withStatus({ counters: { 'inbound.dropped': 3 } }), 'note', /3 .* was not seen/],
  ['drops', 'mere noise', later('outbound.dropped.link-local-or-multicast', 3, 9), 'ok', /no packets/],
  [
    'silence',
    'one peer',
    withPeers(peer(2), peer(3, { traffic: traffic(101, null) })),
    'warning',
    /packets go to 192\.0\.2\.3 .* 101 so far/,
  ],
  [
    'silence',
    'since half a minute',
    withPeers(peer(3, { traffic: traffic(900, '2026-03-01T11:59:29Z') })),
    'warning',
    /since 2026-03-01T11:59:29Z/,
  ],
  ['silence', 'as the daemon sees it', withPeers(peer(3, { state: 'no-answer' })), 'warning', /192\.0\.2\.3/],
  ['silence', 'not for long', withPeers(peer(3, { traffic: traffic(900, '2026-03-01T11:59:31Z') })), 'ok', /come in/],
  ['silence', 'hardly anything sent', withPeers(peer(3, { traffic: traffic(100, null) })), 'ok', /come in/],
  ['silence', 'all of them', withStatus({ counters: crossed(200, 0) }), 'warning', /200 packets/],
  ['silence', 'nothing yet', withStatus({ counters: crossed(2, 0) }), 'ok', /nothing has come in yet; 2 packets/],
  ['silence', 'not counted', withStatus({ counters: {} }), 'unseen', /does not count/],
  [
    'peers',
    'one left out',
    withStatus({ leftOut: [{ subnet: '10.244.5.0/24', publicIp: '192.0.2.5', reason: 'no-mac', detail: 'none' }] }),
    'warning',
    /192\.0\.2\.5 .* is not used: no-mac/,
  ],
  [
    'peers',
    'thousands in conflict',
    withStatus({ conflicts: Array.from({ length: 3000 }, (_, index) => `a and ${index}`) }),
    'warning',
    /and 2992 more of this kind/,
  ],
  ['peers', 'leases in conflict', withStatus({ conflicts: ['a and b'] }), 'warning', /contradict each other: a and b/],
  ['peers', 'pending', withStatus({ pendingPeers: 2 }), 'warning', /2 peers are pending/],
  ['offenders', 'a stranger', offender('unknown-peer'), 'warning', /5 packets from 192\.0\.2\.9/],
  ['offenders', 'a node that forwards', offender('inner-source-spoofed'), 'warning', /inner-source-spoofed/],
  ['offenders', 'nobody looks', withStatus({ dataplane: 'kernel' }), 'note', /kernel dataplane checks no source/],
  ['duplicate-identity', 'a cloned MAC', withPeers(peer(2, { vtepMac: '0a:00:00:00:00:01' })), 'error', /MAC 0a/],
  [
    'duplicate-identity',
    'one address twice',
    withPeers(peer(2), peer(3, { publicIp: '192.0.2.2' })),
    'error',
    /has the leases/,
  ],
]

const LEASE: readonly Row[] = [
  ['store', 'away', withStatus({ store: { name: 'etcd', reachable: false, why: 'refused' } }), 'warning', /refused/],
  [
    'store',
    'away at a start',
    withStatus({ lease: null, store: { name: 'etcd', reachable: false, why: 'refused' } }),
    'warning',
    /refused; the start waits for it/,
  ],
  ['lease', 'none', withStatus({ lease: null }), 'error', /no lease/],
  ['lease', 'over', withLease({ expiresAt: new Date(NOW - 61_000).toISOString() }), 'error', /expired 1m1s ago/],
  ['lease', 'late', withLease({ expiresAt: new Date(NOW + 60_000).toISOString() }), 'warning', /was not renewed/],
  ['lease', 'reserved', withLease({ expiresAt: null }), 'ok', /never expires/],
  ['lease', 'outside the network', withNode({ network: '10.0.0.0/16' }), 'error', /outside the network/],
  ['lease', 'behind NAT', withLease({ publicIp: '203.0.113.1' }), 'note', /no address of this host/],
  ['subnet-file', 'unreadable', healthy({ subnetFile: unseen }), 'unseen', /not permitted/],
  ['subnet-file', 'no daemon', file(null, neverRun()), 'warning', /no daemon runs/],
  [
    'subnet-file',
    'another path',
    file(null, healthy({ daemonWords: { seen: true, value: ['run', '-subnet-file=/run/x.env'] } })),
    'warning',
    /the daemon writes \/run\/x\.env/,
  ],
  [
    'subnet-file',
    'no config in the store',
    file(null, withStatus({ lease: null, store: { name: 's', reachable: true, why: 'no network config' } })),
    'error',
    /has no lease \(no network config\)/,
  ],
  ['subnet-file', 'removed', file(null), 'error', /although this node has the lease/],
  ['subnet-file', 'nonsense', file('x'), 'error', /names no FLANNEL_SUBNET/],
  [
    'subnet-file',
    'another subnet',
    file(SUBNET_FILE.replace('244.1.1', '244.9.1')),
    'error',
    /10\.244\.9\.1\/24, the daemon 10\.244\.1\.0/,
  ],
  ['subnet-file', 'another network', file(SUBNET_FILE.replace('0.0/16', '0.0/20')), 'error', /FLANNEL_NETWORK/],
  [
    'subnet-file',
    'another MTU',
    file(SUBNET_FILE.replace('1450', '1500')),
    'warning',
    /FLANNEL_MTU 1500, the daemon 1450/,
  ],
]

describe.each([
  ['system', SYSTEM],
  ['daemon', DAEMON],
  ['lease', LEASE],
] as const)('%s', (_, rows) => {
  test.each(rows)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))
})

describe('doctor as a whole', () => {
  test('finds nothing on a healthy host, and looks at everything', () => {
    const findings = examine(healthy())
    expect(findings.filter(({ severity }) => severity !== 'ok')).toEqual([])
    expect(CHECKS.map(({ id }) => id).filter((id) => !findings.some(({ check }) => check === id))).toEqual([])
  })

  test('asks a node whose backend has no device for none, nor for a port', () => {
    const { node } = status()
    const facts = withStatus({
      dataplane: 'none',
      driver: 'none',
      node: { ...node!, device: '', vni: 0, port: 0 },
    })
    const findings = examine({ ...facts, tunProblem: 'ENOENT', udpPorts: { seen: true, value: [] }, vxlan: 'absent' })
    expect(findings.filter(({ severity }) => severity === 'error' || severity === 'warning')).toEqual([])
    expect(findings.map(({ check }) => check)).not.toContain('overlay-device')
    expect(findings.map(({ check }) => check)).toContain('lease')
  })

  test('works on a host that no daemon has run on, without root: unseen, never thrown', () => {
    const blind = neverRun({
      root: false,
      links: unseen,
      routes: unseen,
      udpPorts: unseen,
      firewall: unseen,
      managed: unseen,
      subnetFile: unseen,
      settings: new Map(),
    })
    expect(examine(blind).some(({ severity }) => severity === 'error')).toBe(false)
    expect(examine(blind).filter(({ severity }) => severity === 'unseen').length).toBeGreaterThan(5)
  })

  test('every check has its anchor in the docs, and every anchor its check', () => {
    const page = readFileSync('docs/troubleshooting.md', 'utf8')
    const anchors = [...page.matchAll(/<a id="doctor-([\w-]+)">/g)].map(([, id]) => id)
    expect(anchors.sort()).toEqual([...CHECKS.map(({ id }) => id), 'peer-matrix'].sort())
    for (const finding of examine(healthy())) expect(page).toContain(`<a id="${finding.docs.split('#')[1]}">`)
  })

  test('each reason of drops leads to its row in the docs, those with a cause outside the daemon also to what to do', () => {
    const page = readFileSync('docs/troubleshooting.md', 'utf8')
    for (const reason of DROP_REASON_NAMES) {
      const anchor = /docs\/troubleshooting\.md#([\w-]+) says what it means$/.exec(dropRemedy(reason))?.[1]
      expect(page).toContain(`<a id="${anchor}">`)
    }
    expect(dropRemedy('inner-destination-mac')).toMatch(
      /^peers know another MAC of this node: .*restart the daemon; docs/,
    )
  })

  test('each cause of silence comes with a test to tell it apart (firewall, hypervisor, port, MTU)', () => {
    const [finding] = examine(withStatus({ counters: crossed(200, 0) })).filter(({ check }) => check === 'silence')
    expect(finding?.remedy).toMatch(
      /firewall: .*tcpdump.*; hypervisor .*nc -u 192\.0\.2\.2 8472.*; another port.*; MTU: flannelette ping/,
    )
  })
})
