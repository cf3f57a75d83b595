// Nodes with IPv6, beside IPv4 or alone: their routes, filters and forwarding are judged as those of IPv4 are.
import { describe, expect, test } from 'vitest'
import { examine } from '../../../src/doctor/checks/all.ts'
import type { Facts } from '../../../src/doctor/facts.ts'
import { chainsOfIptables } from '../../../src/doctor/firewall-chains.ts'
import type { RouteInfo } from '../../../src/host/ip.ts'
import { IPV6_ROUTES, ip6tables, NOT_SEEN, settings, withIpv6, withIpv6Alone } from '../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../support/expect-finding.ts'

const routes = (...more: RouteInfo[]): Partial<Facts> => ({
  ipv6Routes: { seen: true, value: [...IPV6_ROUTES, ...more] },
})
const NO_NETWORK_ROUTE: Partial<Facts> = {
  ipv6Routes: { seen: true, value: IPV6_ROUTES.filter(({ dst }) => dst !== 'fd00:10:244::/48') },
}
const OFF: Partial<Facts> = { settings: settings(['net/ipv6/conf/all/forwarding', '0']) }
const DROP = '-A INPUT -p udp -m udp --dport 8472 -j DROP'

/** What is found alike beside IPv4 and alone. */
type Node = (facts: Partial<Facts>) => Facts
const routesOf = (node: Node, third: string): readonly Row[] => [
  ['network-route', 'there', node({}), 'ok', /fd00:10:244::\/48 leads into flannel-v6\.1/],
  [
    'network-route',
    'missing',
    node(NO_NETWORK_ROUTE),
    'error',
    /route of fd00:10:244::\/48 into flannel-v6\.1 is missing/,
  ],
  [
    'network-route',
    'of others',
    node(routes({ dst: 'fd00:10:244::/48', dev: 'tun9' })),
    'error',
    /fd00:10:244::\/48 has a route already that is not ours: dev tun9/,
  ],
  [
    'network-route',
    'a part to others',
    node(routes({ dst: 'fd00:10:244:7::/64', dev: 'br-1' })),
    'warning',
    /fd00:10:244:7::\/64 of the pod network leads to br-1, not into flannel-v6\.1/,
  ],
  [
    'network-route',
    "a single pod's, of a peer",
    node(routes({ dst: 'fd00:10:244:3::17', gateway: 'fe80::9', dev: 'eth0' })),
    'error',
    new RegExp(`fd00:10:244:3::17/128 .* via fe80::9 to eth0, .*: pods of ${third} are not reached`),
  ],
  [
    'network-route',
    'its own subnet ends here',
    node(routes({ dst: 'fd00:10:244:1::/64', type: 'blackhole', protocol: '142' })),
    'ok',
    /leads into flannel-v6\.1/,
  ],
  ['network-route', 'not seen', node({ ipv6Routes: NOT_SEEN }), 'unseen', /routes of IPv6: not permitted/],
]

const filtersOf = (node: Node): readonly Row[] => [
  ['ip-forward', 'off', node(OFF), 'error', /net\.ipv6\.conf\.all\.forwarding is 0/],
  [
    'forward-policy',
    'drops',
    node(ip6tables('-P FORWARD DROP', '-A FORWARD -s 10.244.0.0/16 -j ACCEPT')),
    'error',
    /^ip6tables FORWARD drops by default and no rule accepts fd00:10:244::\/48/,
  ],
  [
    'forward-policy',
    'accepts the network',
    node(ip6tables('-P FORWARD DROP', '-A FORWARD -s fd00:10::/32 -j ACCEPT')),
    'ok',
    /no firewall chain .*\(IPv6\)/,
  ],
  ['forward-policy', 'not seen', node({ ipv6Firewall: NOT_SEEN }), 'unseen', /firewall \(IPv6\): not permitted/],
  [
    'firewall-port',
    'closed',
    node(ip6tables('-P INPUT DROP', '-A INPUT -p udp -m udp --dport 4789 -j ACCEPT')),
    'warning',
    /^ip6tables INPUT drops by default and no rule names UDP port 8472/,
  ],
  [
    'firewall-port',
    'dropped',
    node(ip6tables('-P INPUT ACCEPT', DROP)),
    'error',
    /^ip6tables INPUT has a rule that drops/,
  ],
  [
    'firewall-port',
    'a peer dropped',
    node(ip6tables('-P INPUT ACCEPT', '-A INPUT -s 2001:db8::3/128 -j DROP')),
    'error',
    /^ip6tables INPUT has a rule that drops/,
  ],
  [
    'firewall-port',
    'somebody else dropped',
    node(ip6tables('-P INPUT ACCEPT', '-A INPUT -s 2001:db8::3:4/128 -j DROP')),
    'ok',
    /lets UDP 8472 in; needed from 2001:db8::2, 2001:db8::3$/,
  ],
]

describe.each([
  ['beside IPv4', [...routesOf(withIpv6, '192\\.0\\.2\\.3'), ...filtersOf(withIpv6)]],
  ['alone', [...routesOf(withIpv6Alone, '2001:db8::3'), ...filtersOf(withIpv6Alone)]],
] as const)('IPv6 %s', (_, rows) => {
  test.each(rows)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))
})

test.each([
  ['beside IPv4', withIpv6()],
  ['alone', withIpv6Alone()],
])('a healthy host with IPv6 %s has nothing that is bad or unseen', (_, facts) => {
  expect(examine(facts).filter(({ severity }) => severity !== 'ok' && severity !== 'note')).toEqual([])
})

test('what is wrong with IPv6 alone is said of IPv6 alone, and a chain for both families once', () => {
  const bad = (facts: Facts) =>
    examine(facts).flatMap(({ severity, remedy }) => (severity === 'error' || severity === 'warning' ? [remedy] : []))
  expect(bad(withIpv6(OFF))).toEqual([expect.stringContaining('net.ipv6.conf.all.forwarding=1')])
  const value = [{ ...chainsOfIptables(`-P INPUT ACCEPT\n${DROP}`)[0]!, name: 'nft inet filter input' }]
  const both = { firewall: { seen: true, value }, ipv6Firewall: { seen: true, value } } as const
  expect(bad(withIpv6(both))).toEqual([expect.stringContaining('nft -a list chain inet filter input')])
  expect(bad(withIpv6(ip6tables('-P FORWARD DROP')))).toEqual([
    'ip6tables -I FORWARD -s fd00:10:244::/48 -j ACCEPT; ip6tables -I FORWARD -d fd00:10:244::/48 -j ACCEPT',
  ])
})
