// What doctor says of store, lease and subnet.env, each on a host where one thing is wrong.
import { test } from 'vitest'
import type { Facts } from '../../../../src/doctor/facts.ts'
import {
  healthy,
  NOT_SEEN,
  NOW,
  neverRun,
  SUBNET_FILE,
  withLease,
  withNode,
  withStatus,
} from '../../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../../support/expect-finding.ts'

const file = (text: string | null, facts: Facts = healthy()): Facts => ({
  ...facts,
  subnetFile: { seen: true, value: text },
})

const ROWS: readonly Row[] = [
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
  ['subnet-file', 'unreadable', healthy({ subnetFile: NOT_SEEN }), 'unseen', /not permitted/],
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

test.each(ROWS)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))
