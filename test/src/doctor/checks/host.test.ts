// What doctor says of device, routes and filters of the overlay, each on a host where one thing is wrong.
import { expect, test } from 'vitest'
import { examine } from '../../../../src/doctor/checks/all.ts'
import type { Facts } from '../../../../src/doctor/facts.ts'
import type { RouteInfo } from '../../../../src/host/ip.ts'
import {
  healthy,
  IPV6_DEVICE,
  iptables,
  link,
  links,
  NOT_SEEN,
  neverRun,
  peer,
  ROUTES,
  settings,
  tun,
  withNode,
  without,
  withoutDaemon,
  withStatus,
} from '../../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../../support/expect-finding.ts'

const routes = (...more: RouteInfo[]): Facts['routes'] => ({ seen: true, value: [...ROUTES, ...more] })
const noNetworkRoute = { seen: true, value: ROUTES.filter(({ dst }) => dst !== '10.244.0.0/16') } as const
const vtep = (ifname: string, port = 8472) =>
  link(ifname, { linkinfo: { info_kind: 'vxlan', info_data: { id: 1, port } } })

const withWay = (way: 'direct' | 'tunnel' | 'none', why = '') =>
  withStatus({ peers: [peer(2, { ways: [{ subnet: '10.244.2.0/24', way, why }] })] as never })

const pendingOfExtension = (why: string) =>
  withStatus({
    dataplane: 'commands',
    peers: [peer(2, { ways: [{ subnet: '10.244.2.0/24', way: 'none', why }] })] as never,
  })

const ROWS: readonly Row[] = [
  ['overlay-device', 'gone', healthy({ links: without('flannel.1') }), 'error', /is gone/],
  ['overlay-device', 'not made yet', withoutDaemon({ links: without('flannel.1') }), 'note', /makes it at its start/],
  ['overlay-device', 'of IPv6 gone', withNode({ ipv6Device: IPV6_DEVICE }), 'error', /flannel-v6\.1 is gone/],
  ['overlay-device', 'down', healthy({ links: tun({ flags: [] }) }), 'error', /is down/],
  ['overlay-device', 'held by nobody', withoutDaemon({ links: tun({ flags: ['UP'] }) }), 'error', /no process holds/],
  ['kernel-vtep', 'beside ours', healthy({ links: links(vtep('flannel.2')) }), 'error', /flannel\.2 is a kernel VTEP/],
  [
    'kernel-vtep',
    'under our name',
    neverRun({ links: links(vtep('flannel.1', 4789)) }),
    'warning',
    /flannel\.1 is a kernel/,
  ],
  [
    'kernel-vtep',
    'of IPv6, our own',
    withStatus(
      { dataplane: 'kernel', node: withNode({ ipv6Device: IPV6_DEVICE }).view.status!.node },
      { links: links(vtep('flannel-v6.1')) },
    ),
    'ok',
    /no VTEP/,
  ],
  ['kernel-vtep', 'on another port', healthy({ links: links(vtep('vxlan9', 4789)) }), 'ok', /no VTEP/],
  ['kernel-vtep', 'our own', withStatus({ dataplane: 'kernel' }, { links: links(vtep('flannel.1')) }), 'ok', /no VTEP/],
  [
    'network-route',
    'missing',
    healthy({ routes: noNetworkRoute }),
    'error',
    /route of 10\.244\.0\.0\/16 into flannel\.1 is missing/,
  ],
  [
    'network-route',
    'of others',
    healthy({ routes: routes({ dst: '10.244.0.0/16', dev: 'tun9' }) }),
    'error',
    /has a route already/,
  ],
  [
    'network-route',
    'a part to others',
    healthy({ routes: routes({ dst: '10.244.7.0/24', dev: 'br-1' }) }),
    'warning',
    /10\.244\.7\.0\/24 of the pod network leads to br-1/,
  ],
  [
    'network-route',
    "a peer's part to others",
    healthy({ routes: routes({ dst: '10.244.3.0/24', gateway: '192.0.2.2', dev: 'eth0' }) }),
    'error',
    /10\.244\.3\.0\/24 .* leads via 192\.0\.2\.2 to eth0, not into flannel\.1: pods of 192\.0\.2\.3 are not reached/,
  ],
  [
    'network-route',
    "a peer's part nowhere",
    healthy({ routes: routes({ dst: '10.244.3.0/24', type: 'blackhole' }) }),
    'error',
    /leads nowhere \(blackhole\)/,
  ],
  [
    'network-route',
    "a neighbour's part by our own route",
    healthy({ routes: routes({ dst: '10.244.3.0/24', gateway: '192.0.2.3', dev: 'eth0', protocol: '142' }) }),
    'ok',
    /leads into flannel\.1/,
  ],
  ['peer-routes', 'all there', withWay('direct'), 'ok', /1 of 1 subnets of peers are reached by routes/],
  [
    'peer-routes',
    'no neighbour',
    withWay('none', '192.0.2.2 is no neighbour on eth0'),
    'error',
    /10\.244\.2\.0\/24 \(192\.0\.2\.2\) is pending: 192\.0\.2\.2 is no neighbour/,
  ],
  [
    'peer-routes',
    "somebody else's",
    withWay('tunnel', 'a route that is not ours is in the way: 10.244.2.0/24 dev br-1'),
    'warning',
    /is not reached past the tunnel: a route that is not ours/,
  ],
  [
    'peer-routes',
    "a part is somebody else's",
    withWay('tunnel', 'a route that is not ours takes a part of it: 10.244.2.128/25 dev br-1'),
    'warning',
    /10\.244\.2\.0\/24 \(192\.0\.2\.2\): a route that is not ours takes a part of it/,
  ],
  [
    'peer-routes',
    'an extension’s command that fails',
    pendingOfExtension('SubnetAddCommand failed: exit code 2: no such device'),
    'warning',
    /10\.244\.2\.0\/24 \(192\.0\.2\.2\) is pending: SubnetAddCommand failed: exit code 2/,
  ],
  ['network-route', 'over the underlay', withNode({ network: '192.0.0.0/16' }), 'error', /own address/],
  [
    'rp-filter',
    'strict, no route',
    healthy({ routes: noNetworkRoute, settings: settings(['net/ipv4/conf/all/rp_filter', '1']) }),
    'error',
    /strict rp_filter \(all=1 flannel\.1=1 eth0=2 cni0=0\)/,
  ],
  ['rp-filter', 'strict, with the route', healthy(), 'ok', /all=0 flannel\.1=1 eth0=2 cni0=0 \(strict, and/],
  [
    'rp-filter',
    'loose, no route',
    healthy({ routes: noNetworkRoute, settings: settings(['net/ipv4/conf/all/rp_filter', '2']) }),
    'ok',
    /all=2/,
  ],
  ['ip-forward', 'off', healthy({ settings: settings(['net/ipv4/ip_forward', '0']) }), 'error', /ip_forward is 0/],
  [
    'ip-forward',
    'off on the bridge',
    healthy({ settings: settings(['net/ipv4/conf/cni0/forwarding', '0']) }),
    'error',
    /cni0 does not forward/,
  ],
  ['ip-forward', 'not seen', healthy({ settings: new Map() }), 'unseen', /not readable/],
  ['forward-policy', 'drops', healthy(iptables('-P FORWARD DROP')), 'error', /no rule accepts 10\.244\.0\.0\/16/],
  ['forward-policy', 'drops before the start', neverRun(iptables('-P FORWARD DROP')), 'warning', /drops by default/],
  [
    'forward-policy',
    'accepts the network',
    healthy(iptables('-P FORWARD DROP', '-A FORWARD -s 10.244.0.0/16 -j ACCEPT')),
    'ok',
    /no firewall chain/,
  ],
  ['forward-policy', 'not seen', healthy({ firewall: NOT_SEEN }), 'unseen', /not permitted/],
  [
    'br-netfilter',
    'off, with CNI',
    healthy({ settings: settings(['net/bridge/bridge-nf-call-iptables', '0']) }),
    'warning',
    /is 0/,
  ],
  ['br-netfilter', 'no module, no CNI', healthy({ settings: new Map(), cniConfigs: null }), 'note', /not loaded/],
  [
    'managed-device',
    'NetworkManager',
    healthy({ managed: { seen: true, value: [{ device: 'flannel.1', by: 'NetworkManager' }] } }),
    'warning',
    /NetworkManager manages flannel\.1/,
  ],
  [
    'managed-device',
    'a device of theirs',
    healthy({ managed: { seen: true, value: [{ device: 'eth0', by: 'systemd-networkd' }] } }),
    'ok',
    /no network manager/,
  ],
]

test.each(ROWS)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))

test('of many routes that take parts of a subnet one is named, the others are counted, and how to see them is said', () => {
  const why = 'a route that is not ours takes a part of it: 10.244.2.128/25 dev br-1, and 300 others'
  const found = examine(withWay('tunnel', why)).find(({ check }) => check === 'peer-routes')
  expect(found?.message).toBe(`10.244.2.0/24 (192.0.2.2): ${why}`)
  expect(found?.remedy).toMatch(/ip route delete 10\.244\.2\.128\/25 dev br-1, and ours/)
  expect(found?.remedy).toMatch(/; all of them: ip route show root 10\.244\.2\.0\/24$/)
})
