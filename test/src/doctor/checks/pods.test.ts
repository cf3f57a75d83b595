// What doctor says of what stands between subnet.env and the pods: bridges, CNI, a container engine, and rules of others that
// give packets from pod to pod another source, told from those that do not.
import { describe, expect, test } from 'vitest'
import { POD_CHECKS } from '../../../../src/doctor/checks/pods.ts'
import { bridge, healthy, links, withNode } from '../../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../../support/expect-finding.ts'

const ROWS: readonly Row[] = [
  [
    'bridge-address',
    'of a former subnet',
    healthy({ links: links(bridge('cni0', '10.244.8.1/24')) }),
    'error',
    /cni0 has 10\.244\.8\.1\/24, but the subnet of this node is 10\.244\.1\.0\/24/,
  ],
  [
    'subnet-twice',
    'two bridges',
    healthy({ links: links(bridge('docker0', '10.244.1.1/24')) }),
    'error',
    /two interfaces cover .* cni0 .* docker0/,
  ],
  [
    'cni-order',
    'another first',
    healthy({
      cniConfigs: [
        { file: '05-other.conf', types: ['bridge'] },
        { file: '10-flannel.conflist', types: ['flannel'] },
      ],
    }),
    'error',
    /05-other\.conf \(bridge\), then 10-flannel/,
  ],
  [
    'cni-order',
    'none of ours',
    healthy({ cniConfigs: [{ file: 'x.conf', types: ['ptp'] }] }),
    'note',
    /no CNI config names/,
  ],
  ['cni-order', 'empty', healthy({ cniConfigs: [] }), 'note', /no config/],
  [
    'engine-options',
    'old',
    healthy({ engineOptions: { path: '/run/o', text: 'DOCKER_OPTS="--bip=10.244.8.1/24"' } }),
    'error',
    /--bip=10\.244\.8\.1\/24, but the subnet of this node is 10\.244\.1\.0/,
  ],
  [
    'engine-options',
    'an engine started before',
    healthy({ links: links(bridge('docker0', '172.17.0.1/16')) }),
    'warning',
    /docker0 has 172\.17\.0\.1\/16/,
  ],
]

test.each(ROWS)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))

const ID = 'pods-masqueraded'
const rules = (...lines: string[]) => ({ seen: true, value: lines.map((line) => `-A POSTROUTING ${line}`) }) as const
const host = (...lines: string[]) => healthy({ natRules: rules(...lines) })

test.each([
  ['that of a container engine on our subnet', '-s 10.244.1.0/24 ! -o cni0 -j MASQUERADE'],
  ['one for all pods', '-s 10.244.0.0/16 -j MASQUERADE'],
  ['one for everybody', '-j MASQUERADE'],
  ['one for all that is not the bridge', '! -o docker0 -j MASQUERADE'],
  ['one on the way into the tunnel', '-o flannel.1 -j SNAT --to-source 192.0.2.1'],
  ['one that spares this host’s pods alone', '-s 10.244.1.0/24 ! -d 10.244.1.0/24 -j MASQUERADE'],
  ['one with a word of its own', '-s 10.244.1.0/24 -m comment --comment "my own" -j MASQUERADE'],
])('%s is told of, with the way out', (_, rule) => {
  expectFinding(ID, host(rule), 'warning', /which see the host's address: /)
  const [found] = POD_CHECKS.find(({ id }) => id === ID)!.judge(host(rule))
  expect(found?.message).toContain(rule)
  expect(found?.remedy).toContain(`iptables -t nat -D POSTROUTING ${rule}`)
})

test.each([
  ['of others’ containers', '-s 172.17.0.0/16 ! -o docker0 -j MASQUERADE'],
  ['that spares pods', '-s 10.244.1.0/24 ! -d 10.244.0.0/16 -j MASQUERADE'],
  ['on the way to the world', '-s 10.244.0.0/16 -o eth0 -j MASQUERADE'],
  ['on every way but the tunnel', '! -o flannel.1 -j MASQUERADE'],
  ['towards this host’s pods', '-d 10.244.1.0/24 -j MASQUERADE'],
  ['towards others', '-d 198.51.100.0/24 -j MASQUERADE'],
  ['by a mark, which nobody may set', '-m mark --mark 0x4000/0x4000 -j MASQUERADE'],
  ['of our own', '-s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE'],
  ['that translates nothing', '-s 10.244.0.0/16 -j ACCEPT'],
  ['that leads to others’ rules', '-j KUBE-POSTROUTING'],
])('a rule %s is not', (_, rule) => {
  expectFinding(ID, host(rule), 'ok', /no rule of others/)
})

describe('without a tunnel', () => {
  test('packets to other hosts leave by the underlay', () => {
    const facts = { ...withNode({ device: '', vni: 0, port: 0 }), natRules: rules('-o eth0 -j MASQUERADE') }
    expectFinding(ID, facts, 'warning', /-o eth0 -j MASQUERADE/)
  })
})

test('rules that cannot be read are not judged', () => {
  expectFinding(ID, healthy({ natRules: { seen: false, why: 'not permitted' } }), 'unseen', /nat: not permitted/)
})
