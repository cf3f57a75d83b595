// Doctor's judgements of underlay, routes, filters and what stands between subnet.env and the pods.
import { describe, test } from 'vitest'
import type { Facts } from '../../../src/doctor/facts.ts'
import { chainsOfIptables } from '../../../src/doctor/firewall-chains.ts'
import type { RouteInfo } from '../../../src/host/ip.ts'
import {
  address,
  healthy,
  LINKS,
  link,
  links,
  neverRun,
  peer,
  ROUTES,
  settings,
  withNode,
  withoutDaemon,
  withStatus,
} from '../../support/doctor-facts.ts'
import { expectFinding, type Row } from '../../support/expect-finding.ts'
import { HEALTHY } from '../../support/status-example.ts'

const unseen = { seen: false, why: 'not permitted' } as const
const without = (name: string) => ({ seen: true, value: LINKS.filter(({ ifname }) => ifname !== name) }) as const
const routes = (...more: RouteInfo[]): Facts['routes'] => ({ seen: true, value: [...ROUTES, ...more] })
const noNetworkRoute = { seen: true, value: ROUTES.filter(({ dst }) => dst !== '10.244.0.0/16') } as const
const offload = (name: string, on: boolean): Facts => healthy({ offloads: { seen: true, value: { [name]: on } } })
const socket = (...holders: { pid: number; program: string }[]) => ({ port: 8472, address: '0.0.0.0', holders })
const holder = (pid: number, program: string) => ({ pid, program })
const ports = (...value: ReturnType<typeof socket>[]): Partial<Facts> => ({ udpPorts: { seen: true, value } })
const iptables = (...lines: string[]): Partial<Facts> => ({
  firewall: { seen: true, value: chainsOfIptables(lines.join('\n')) },
})
const vtep = (ifname: string, port = 8472) =>
  link(ifname, { linkinfo: { info_kind: 'vxlan', info_data: { id: 1, port } } })
const bridge = (ifname: string, cidr: string, mtu = 1450) =>
  link(ifname, { mtu, linkinfo: { info_kind: 'bridge' }, addr_info: [address(cidr)] })
const eth0 = (more: Parameters<typeof link>[1]) =>
  links(link('eth0', { addr_info: [address('192.0.2.1/24')], ...more }))
const IPV6_DEVICE = {
  ...{ device: 'flannel-v6.1', mac: '0a:06:00:00:00:01', underlayAddress: '2001:db8::1', mtu: 1430 },
}
const tun = (more: Parameters<typeof link>[1]) => links({ ...LINKS[2]!, ...more })

const withWay = (way: 'direct' | 'tunnel' | 'none', why = '') =>
  withStatus({ peers: [peer(2, { ways: [{ subnet: '10.244.2.0/24', way, why }] })] as never })

const pendingOfExtension = (why: string) =>
  withStatus({
    dataplane: 'commands',
    peers: [peer(2, { ways: [{ subnet: '10.244.2.0/24', way: 'none', why }] })] as never,
  })

const UNDERLAY: readonly Row[] = [
  ['underlay-interface', 'gone', healthy({ links: without('eth0') }), 'error', /eth0 is gone/],
  ['underlay-interface', 'down', healthy({ links: eth0({ flags: [] }) }), 'error', /is down/],
  ['underlay-interface', 'no carrier', healthy({ links: eth0({ flags: ['UP'] }) }), 'error', /no carrier/],
  ['underlay-interface', 'another address', healthy({ links: eth0({ addr_info: [] }) }), 'error', /no longer has/],
  ['underlay-interface', 'not seen', healthy({ links: unseen }), 'unseen', /not permitted/],
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
  ['offloads', 'not seen', healthy({ offloads: unseen }), 'unseen', /not permitted/],
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
  ['firewall-port', 'not seen', healthy({ firewall: unseen }), 'unseen', /not permitted/],
]

const HOST: readonly Row[] = [
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
  ['forward-policy', 'not seen', healthy({ firewall: unseen }), 'unseen', /not permitted/],
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
  [
    'duplicate-identity',
    'our MAC on another device',
    healthy({ links: links(link('eth1', { address: '0a:00:00:00:00:01' })) }),
    'error',
    /eth1 has the VTEP's MAC/,
  ],
]

const NO_MAC = '00:00:00:00:00:00'
const PLAIN_UDP: readonly Row[] = [
  [
    'duplicate-identity',
    'a tunnel without MACs',
    { ...withNode({ mac: NO_MAC, vni: 0 }), links: links(link('lo', { address: NO_MAC })) },
    'ok',
    /are unique/,
  ],
  [
    'mtu',
    'less overhead',
    { ...withNode({ vni: 0, mtu: 1472 }), links: tun({ mtu: 1472 }) },
    'ok',
    /1500 − overhead 28/,
  ],
]

const PODS: readonly Row[] = [
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

describe.each([
  ['underlay', UNDERLAY],
  ['host', HOST],
  ['plain UDP', PLAIN_UDP],
  ['pods', PODS],
] as const)('%s', (_, rows) => {
  test.each(rows)('%s: %s', (id, _what, facts, severity, message) => expectFinding(id, facts, severity, message))
})
