// What doctor says of a daemon by its own status, each on a host where one thing is wrong.
import { expect, test } from 'vitest'
import type { DaemonStatus } from '../../../../src/daemon/status-file.ts'
import { unseenInWords } from '../../../../src/daemon/unseen-host.ts'
import { examine } from '../../../../src/doctor/checks/all.ts'
import type { Facts } from '../../../../src/doctor/facts.ts'
import {
  healthy,
  link,
  links,
  NOT_SEEN,
  neverRun,
  peer,
  withNode,
  withoutDaemon,
  withStatus,
} from '../../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../../support/expect-finding.ts'

/** Packets that have gone out and come in. */
const crossed = (sent: number, received: number) => ({
  'outbound.packets.passed': sent,
  'inbound.packets.passed': received,
})

const later = (name: string, before: number, now: number): Facts =>
  withStatus({ counters: { [name]: before, 'inbound.packets.passed': 9 } }, { laterCounters: { [name]: now } })
const traffic = (sentPackets: number, lastReceived: string | null) =>
  ({ sentPackets, receivedPackets: 0, lastSent: '2026-03-01T12:00:00Z', lastReceived }) as const
const withPeers = (...peers: ReturnType<typeof peer>[]): Facts => withStatus({ peers: peers as never })
const offender = (reason: string) =>
  withStatus({
    offenders: [{ outerSource: '192.0.2.9', innerSource: '10.9.0.1', reason, packets: 5, lastSeen: 'now' }],
  })
const blind = (why: string) =>
  withStatus({ state: 'degraded', health: { live: true, ready: true, checks: [], notes: [unseenInWords(why)] } })
const ended = (last: Partial<DaemonStatus>) => {
  const facts = withoutDaemon()
  return { ...facts, view: { ...facts.view, status: { ...facts.view.status!, ...last } } }
}
const NO_MAC = '00:00:00:00:00:00'

const ROWS: readonly Row[] = [
  ['daemon', 'no status', neverRun(), 'warning', /no daemon has left a status/],
  ['daemon', 'gone', withoutDaemon(), 'error', /is gone; its last status is of 2026/],
  ['daemon', 'stopped', ended({ state: 'stopping' }), 'error', /the daemon was stopped; its last/],
  [
    'daemon',
    'not started',
    ended({ state: 'stopping', lease: null }),
    'error',
    /ended before it had a lease; its last/,
  ],
  ['daemon', 'at its end', ended({ state: 'lost' }), 'error', /lost its lease and ended; its last/],
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
  ['daemon', 'blind', blind('why'), 'warning', /is degraded: it cannot look at its host$/],
  ['host-view', 'unhindered', healthy(), 'ok', /nothing keeps/],
  [
    'host-view',
    'a reason',
    blind('`ip -json route show` failed: x'),
    'warning',
    /pid 4711\) cannot .*: `ip -json.* failed: x$/,
  ],
  ['daemon', 'lost', withStatus({ state: 'lost' }), 'error', /is lost/],
  ['api-socket', 'silent', healthy({ apiAnswers: { seen: true, value: false } }), 'warning', /does not answer/],
  ['api-socket', 'not for users', healthy({ apiAnswers: NOT_SEEN }), 'unseen', /not permitted/],
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
  [
    'duplicate-identity',
    'our MAC on another device',
    healthy({ links: links(link('eth1', { address: '0a:00:00:00:00:01' })) }),
    'error',
    /eth1 has the VTEP's MAC/,
  ],
  [
    'duplicate-identity',
    'a tunnel without MACs',
    { ...withNode({ mac: NO_MAC, vni: 0 }), links: links(link('lo', { address: NO_MAC })) },
    'ok',
    /are unique/,
  ],
]

test.each(ROWS)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))

test.each([
  ['the program `ip` is missing', /Debian: iproute2.*\/proc\/4711\/environ/],
  ['`ip -json route show` could not run: spawn ip EACCES', /may the daemon run it\?/],
  ['EMFILE: too many open files, open /proc/thread-self/net/route', /raise LimitNOFILE=/],
  ['`ip -json route show` failed: Dump terminated', /nsenter -t 4711 -n ip -json route show/],
])('a daemon that cannot look at its host is told with what helps: %s', (why, remedy) => {
  const [finding] = examine(blind(why)).filter(({ check }) => check === 'host-view')
  expect(finding?.remedy).toMatch(remedy)
})

test('each cause of silence comes with a test to tell it apart (firewall, hypervisor, port, MTU)', () => {
  const [finding] = examine(withStatus({ counters: crossed(200, 0) })).filter(({ check }) => check === 'silence')
  expect(finding?.remedy).toMatch(
    /firewall: .*tcpdump.*; hypervisor .*nc -u 192\.0\.2\.2 8472.*; another port.*; MTU: flannelette ping/,
  )
})
