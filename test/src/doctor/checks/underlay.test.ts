// What doctor says of the interface below the tunnel: sizes, offloads, port, and who may reach it.
import { expect, test } from 'vitest'
import { examine } from '../../../../src/doctor/checks/all.ts'
import type { Facts } from '../../../../src/doctor/facts.ts'
import {
  address,
  bridge,
  healthy,
  iptables,
  link,
  links,
  look,
  NOT_SEEN,
  neverRun,
  tun,
  withIpv6,
  withNode,
  without,
  withStatus,
} from '../../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../../support/expect-finding.ts'
import { HEALTHY } from '../../../support/status-example.ts'

const offload = (name: string, on: boolean): Facts => healthy({ offloads: { seen: true, value: { [name]: on } } })
const socket = (...holders: { pid: number; program: string }[]) => ({ port: 8472, address: '0.0.0.0', holders })
const holder = (pid: number, program: string) => ({ pid, program })
const ports = (...value: ReturnType<typeof socket>[]): Partial<Facts> => ({ udpPorts: { seen: true, value } })
const eth0 = (more: Parameters<typeof link>[1]) =>
  links(link('eth0', { addr_info: [address('192.0.2.1/24')], ...more }))
const looked = (...value: ReturnType<typeof look>[]) => ({ seen: true, value }) as const
const hole = look(2, { largePasses: false })

const ROWS: readonly Row[] = [
  ['underlay-interface', 'gone', healthy({ links: without('eth0') }), 'error', /eth0 is gone/],
  ['underlay-interface', 'down', healthy({ links: eth0({ flags: [] }) }), 'error', /is down/],
  ['underlay-interface', 'no carrier', healthy({ links: eth0({ flags: ['UP'] }) }), 'error', /no carrier/],
  ['underlay-interface', 'another address', healthy({ links: eth0({ addr_info: [] }) }), 'error', /no longer has/],
  ['underlay-interface', 'not seen', healthy({ links: NOT_SEEN }), 'unseen', /not permitted/],
  ['underlay-interface', 'not chosen yet', neverRun(), 'ok', /would be eth0 \(192\.0\.2\.1, by default route\)/],
  [
    'underlay-interface',
    'none to choose',
    neverRun({ routes: { seen: true, value: [] } }),
    'warning',
    /no IPv4 default route/,
  ],
  [
    'mtu',
    'larger than fits',
    healthy({ links: eth0({ mtu: 1400 }) }),
    'error',
    /more than underlay 1400 − overhead 50 = 1350/,
  ],
  [
    'mtu',
    'changed by somebody',
    healthy({ links: tun({ mtu: 1500 }) }),
    'warning',
    /has MTU 1500, the daemon set 1450/,
  ],
  [
    'mtu',
    'a way that takes less',
    withStatus({ peers: [{ ...HEALTHY.peers[0]!, pathMtu: 1350 }] }),
    'note',
    /the way to 192\.0\.2\.2 takes packets of pods up to 1350 of 1450 bytes/,
  ],
  ['mtu', 'smaller than it could be', healthy({ links: eth0({ mtu: 9000 }) }), 'note', /less than underlay 9000/],
  [
    'mtu',
    'a bridge that takes more',
    healthy({ links: links(bridge('cni0', '10.244.1.1/24', 1500)) }),
    'warning',
    /cni0 has MTU 1500/,
  ],
  ['offloads', 'LRO', offload('large-receive-offload', true), 'warning', /large-receive-offload/],
  ['offloads', 'no GRO', offload('generic-receive-offload', false), 'note', /one by one/],
  ['offloads', 'no USO', offload('tx-udp-segmentation', false), 'note', /cuts trains/],
  ['offloads', 'not seen', healthy({ offloads: NOT_SEEN }), 'unseen', /not permitted/],
  [
    'port-owner',
    'shared',
    healthy(ports(socket(holder(4711, 'node')), socket(holder(9, 'flanneld')))),
    'error',
    /also held by flanneld \(pid 9\)/,
  ],
  [
    'port-owner',
    'inherited by what the daemon starts',
    healthy(ports(socket(holder(4711, 'node'), holder(808, 'ip')))),
    'ok',
    /is the daemon's/,
  ],
  ['port-owner', 'the kernel', healthy(ports(socket())), 'error', /held by the kernel/],
  ['port-owner', 'only root may know', healthy({ ...ports(socket()), root: false }), 'unseen', /only root/],
  ['port-owner', 'its own kernel VTEP', withStatus({ dataplane: 'kernel' }, ports(socket())), 'ok', /kernel's VTEP/],
  ['port-owner', 'nobody', healthy(ports()), 'error', /nobody listens/],
  [
    'port-owner',
    'taken before the start',
    neverRun(ports(socket(holder(9, 'flanneld')))),
    'warning',
    /held by flanneld/,
  ],
  ['port-owner', 'free before the start', neverRun(ports()), 'ok', /is free/],
  [
    'firewall-port',
    'closed',
    healthy(iptables('-P INPUT DROP')),
    'warning',
    /iptables INPUT drops by default and no rule names UDP port 8472/,
  ],
  [
    'firewall-port',
    'open, with port and peers',
    healthy(iptables('-P INPUT DROP', '-A INPUT -p udp -m udp --dport 8472 -j ACCEPT')),
    'ok',
    /UDP 8472 in; needed from 192\.0\.2\.2, 192\.0\.2\.3/,
  ],
  [
    'firewall-port',
    'dropped by a rule',
    healthy(iptables('-P INPUT ACCEPT', '-A INPUT -p udp -m udp --dport 8472 -j DROP')),
    'error',
    /iptables INPUT has a rule that drops the tunnel \(UDP port 8472\)/,
  ],
  [
    'firewall-port',
    'a peer shut out',
    healthy(iptables('-P INPUT ACCEPT', '-A INPUT -s 192.0.2.3/32 -j REJECT --reject-with icmp-port-unreachable')),
    'error',
    /drops the tunnel/,
  ],
  ['firewall-port', 'not seen', healthy({ firewall: NOT_SEEN }), 'unseen', /not permitted/],
  [
    'mtu',
    'less overhead',
    { ...withNode({ vni: 0, mtu: 1472 }), links: tun({ mtu: 1472 }) },
    'ok',
    /1500 − overhead 28/,
  ],
  ['large-packets', 'all arrive', healthy(), 'ok', /vanish on the way to 192\.0\.2\.2, 192\.0\.2\.3/],
  [
    'large-packets',
    'some vanish',
    healthy({ largePackets: looked(hole, look(3)) }),
    'error',
    /^large packets to 192\.0\.2\.2 \(10\.244\.2\.0\/24\) vanish: .* those of 1450 bytes are not/,
  ],
  ['large-packets', 'told', healthy({ largePackets: looked({ ...hole, limitBytes: 1350 }) }), 'ok', /no large packets/],
  [
    'large-packets',
    'nobody answers',
    healthy({ largePackets: looked({ ...hole, smallPasses: false }) }),
    'note',
    /no peer that was asked answers/,
  ],
  ['large-packets', 'ping is missing', healthy({ largePackets: { seen: false, why: 'no ping' } }), 'unseen', /no ping/],
]

test.each(ROWS)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))

test('a hole over IPv6 is measured by the same commands, and not mended by cutting', () => {
  const wide = { ...hole, publicIp: '2001:db8::2', subnet: 'fd00:10:244:2::/64', bytes: 1430 }
  const [finding] = examine(withIpv6({ largePackets: looked(wide) })).filter(({ check }) => check === 'large-packets')
  expect(finding?.message).toMatch(/^large packets to 2001:db8::2 .* those of 1430 bytes are not/)
  expect(finding?.remedy).toMatch(/let ICMPv6 "packet too big" .*; flannelette ping 2001:db8::2 measures it/)
  expect(finding?.remedy).not.toMatch(/outer-df/)
})
