// What doctor says of kernel, Node and the features that were found to work, each on a host where one thing is wrong.
import { test } from 'vitest'
import type { Facts } from '../../../../src/doctor/facts.ts'
import { healthy, NOT_SEEN, neverRun, status, withoutDaemon, withStatus } from '../../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../../support/expect-finding.ts'

const feature = (name: string, on: boolean): Facts['view']['status'] =>
  status({ features: { [name]: { on, why: 'because' } } as never })
const withFeature = (name: string, on: boolean, kernelRelease: string, more: Partial<Facts> = {}): Facts =>
  withStatus(feature(name, on) ?? {}, { kernelRelease, ...more })

const ROWS: readonly Row[] = [
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
  ['capability', 'unreadable', healthy({ mayConfigure: NOT_SEEN }), 'unseen', /not permitted/],
  ['file-limit', 'a low limit', healthy({ openFileLimit: { seen: true, value: 256 } }), 'warning', /only 256/],
  ['file-limit', 'unreadable', healthy({ openFileLimit: NOT_SEEN }), 'unseen', /not permitted/],
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

test.each(ROWS)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))
