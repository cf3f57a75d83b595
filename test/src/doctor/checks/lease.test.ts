// What doctor says of store, lease and subnet.env, each on a host where one thing is wrong.
import { expect, test } from 'vitest'
import { examine } from '../../../../src/doctor/checks/all.ts'
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

const unreadable = (...keys: string[]) => unreadableIn('etcd:https://192.0.2.9:2379', ...keys)
const unreadableIn = (store: string, ...keys: string[]) =>
  withStatus({
    store: { name: store, reachable: true, why: '' },
    unreadableLeases: { count: keys.length, examples: keys.map((key) => ({ key, why: 'it is no lease' })) },
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
  ['unreadable-leases', 'none', unreadable(), 'ok', /all leases in the store can be read/],
  [
    'unreadable-leases',
    'one',
    unreadable('/net/subnets/10.244.2.0-24'),
    'warning',
    /10\.244\.2\.0-24 .* no lease; who/,
  ],
  [
    'unreadable-leases',
    'some',
    unreadable('/net/subnets/a', '/net/subnets/b'),
    'warning',
    /^2 leases .* such as .*\/a:/,
  ],
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

test.each([
  ['etcd', '/net/subnets/10.244.2.0-24&fd00::-64', "etcdctl get -w fields '/net/subnets/10.244.2.0-24&fd00::-64' ("],
  ['etcd', "/net/subnets/x'; reboot '", 'etcdctl get -w fields --prefix PREFIX/subnets/ ('],
  ['etcd', '/net/subnets/x\\x1b[2J', 'etcdctl get -w fields --prefix PREFIX/subnets/ ('],
  ['file:/store', '/store/subnets/10.244.2.0-24', "cat -v '/store/subnets/10.244.2.0-24';"],
  ['file:/store', '/store/subnets/$(reboot)', 'look at it with cat -v;'],
])(
  'a lease in %s that cannot be read, at %s, is looked at with a command that is safe to paste',
  (store, key, command) => {
    const [finding] = examine(unreadableIn(store, key)).filter(({ check }) => check === 'unreadable-leases')
    expect(finding?.remedy).toContain(command)
    expect(finding?.remedy).not.toContain('reboot')
  },
)
