// A healthy host as doctor's facts, and ways to spoil one thing at a time.
import type { DaemonStatus } from '../../src/daemon/status-file.ts'
import type { Facts } from '../../src/doctor/facts.ts'
import { chainsOfIptables } from '../../src/doctor/firewall-chains.ts'
import type { SizeLook } from '../../src/doctor/large-packets.ts'
import type { PeerView } from '../../src/doctor/node-view.ts'
import type { LinkInfo, RouteInfo } from '../../src/host/ip.ts'

/** When the facts were gathered. */
export const NOW = Date.parse('2026-03-01T12:00:00Z')
const PID = 4711

/** What this user may not look at. */
export const NOT_SEEN = { seen: false, why: 'not permitted' } as const

type Node = NonNullable<DaemonStatus['node']>
type OwnLease = NonNullable<DaemonStatus['lease']>

export function peer(number: number, more: Partial<PeerView> = {}): PeerView {
  return {
    subnet: `10.244.${number}.0/24`,
    ipv6Subnet: null,
    publicIp: `192.0.2.${number}`,
    backendType: 'vxlan',
    vtepMac: `0a:00:00:00:00:0${number}`,
    expiresAt: '2026-03-02T11:00:00.000Z',
    revision: 7,
    ...more,
  }
}

const NODE: Node = {
  device: 'flannel.1',
  vni: 1,
  port: 8472,
  mac: '0a:00:00:00:00:01',
  underlayInterface: 'eth0',
  underlayAddress: '192.0.2.1',
  overlayAddress: '10.244.1.0',
  network: '10.244.0.0/16',
  overlayIpv6: null,
  ipv6Network: null,
  mtu: 1450,
}

const LEASE = { ...peer(1), state: 'held', renewedAt: '2026-03-01T11:00:00.000Z' } as unknown as OwnLease

/** As a healthy daemon writes it, with one difference. Fields that doctor does not read may be missing. */
export function status(more: Partial<DaemonStatus> = {}): DaemonStatus {
  return {
    version: 1,
    since: '2026-03-01T11:59:59.000Z',
    pid: PID,
    state: 'ready',
    dataplane: 'userspace',
    entropy: '16 source ports',
    driver: 'offload',
    features: { 'udp-gso': { on: true, why: 'self-test passed' }, 'tun-gso-udp': { on: true, why: 'tried at work' } },
    store: { name: 'file:/run/store', reachable: true, why: '' },
    node: NODE,
    lease: LEASE,
    generation: 3,
    peers: [peer(2), peer(3)] as unknown as DaemonStatus['peers'],
    pendingPeers: 0,
    leftOut: [],
    conflicts: [],
    unreadableLeases: { count: 0, examples: [] },
    offenders: [],
    counters: { 'outbound.packets.passed': 500, 'inbound.packets.passed': 400, 'inbound.dropped.vni-unknown': 0 },
    ...more,
  } as DaemonStatus
}

export const withNode = (more: Partial<Node>): Facts => withStatus({ node: { ...NODE, ...more } })

/** What a node with IPv6 beside IPv4 carries it by. */
export const IPV6_DEVICE = {
  ...{ device: 'flannel-v6.1', mac: '0a:06:00:00:00:01', underlayAddress: '2001:db8::1', mtu: 1430 },
}

/** The same with IPv6 beside IPv4, by a tunnel of its own. */
export function withIpv6(more: Partial<Facts> = {}, status: Partial<DaemonStatus> = {}): Facts {
  const ipv6Network = 'fd00:10:244::/48'
  const node = { ...NODE, overlayIpv6: 'fd00:10:244:1::', ipv6Network, ipv6Device: IPV6_DEVICE }
  const half = (number: number) => ({
    ipv6Subnet: `fd00:10:244:${number}::/64`,
    publicIpv6: `2001:db8::${number}`,
  })
  const peers = [2, 3].map((number) => peer(number, half(number))) as unknown as DaemonStatus['peers']
  const subnetFile = { seen: true, value: `${SUBNET_FILE}${IPV6_SUBNET_FILE}` } as const
  const facts = { links: links(...IPV6_LINKS), subnetFile, ...more }
  return withStatus({ node, lease: { ...LEASE, ...half(1) }, peers, ...status }, facts)
}

/** What that adds to a place. */
export const IPV6_PLACE = {
  ipv6: true,
  ipv6Tunnel: { device: 'flannel-v6.1', mtuBytes: 1430, overheadBytes: 70 },
} as const

/** The same with nothing but IPv6. */
export function withIpv6Alone(more: Partial<Facts> = {}): Facts {
  const network = 'fd00:10:244::/48'
  const own = { device: 'flannel-v6.1', underlayAddress: '2001:db8::1', overlayAddress: 'fd00:10:244:1::', mtu: 1430 }
  const node = { ...NODE, ...own, network, overlayIpv6: 'fd00:10:244:1::', ipv6Network: network }
  const lease = (number: number) => {
    const [subnet, publicIp] = [`fd00:10:244:${number}::/64`, `2001:db8::${number}`]
    return { subnet, ipv6Subnet: subnet, publicIp, publicIpv6: publicIp }
  }
  const peers = [2, 3].map((number) => peer(number, lease(number))) as unknown as DaemonStatus['peers']
  const tooMuch = ['flannel.1', 'cni0']
  const value = [...LINKS.filter(({ ifname }) => !['eth0', ...tooMuch].includes(ifname)), ...IPV6_LINKS]
  const facts: Partial<Facts> = {
    links: { seen: true, value },
    subnetFile: { seen: true, value: `${IPV6_SUBNET_FILE}FLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n` },
    ...more,
  }
  return withStatus({ node, lease: { ...LEASE, ...lease(1) }, peers }, facts)
}

export const withLease = (more: Partial<OwnLease>): Facts => withStatus({ lease: { ...LEASE, ...more } })

/** What came of a small packet and a large one to a peer, with one difference. */
export function look(number: number, more: Partial<SizeLook> = {}): SizeLook {
  const way = {
    publicIp: `192.0.2.${number}`,
    subnet: `10.244.${number}.0/24`,
    address: `10.244.${number}.0`,
    bytes: 1450,
  }
  return { ...way, smallPasses: true, largePasses: true, limitBytes: null, ...more }
}

/** Facts of a host whose running daemon says something else. */
export function withStatus(more: Partial<DaemonStatus>, facts: Partial<Facts> = {}): Facts {
  const changed = status(more)
  return healthy({ view: { ...healthy().view, status: changed, peers: changed.peers }, ...facts })
}

/** Facts of a host whose daemon has gone. */
export function withoutDaemon(facts: Partial<Facts> = {}): Facts {
  const { view } = healthy()
  return healthy({
    view: { ...view, alive: false },
    daemonWords: { seen: false, why: 'the daemon does not run' },
    largePackets: null,
    ...facts,
  })
}

/** Facts of a host that no daemon has run on. */
export function neverRun(facts: Partial<Facts> = {}): Facts {
  const view = { ...healthy().view, status: null, statusProblem: 'it does not exist', alive: false, peers: [] }
  return withoutDaemon({ view, ...facts })
}

export function link(ifname: string, more: Partial<LinkInfo> = {}): LinkInfo {
  return { ifindex: 1, ifname, flags: ['UP', 'LOWER_UP'], mtu: 1500, ...more }
}

export function address(text: string): NonNullable<LinkInfo['addr_info']>[number] {
  const [local = '', length = '32'] = text.split('/')
  return { family: local.includes(':') ? 'inet6' : 'inet', local, prefixlen: Number(length), scope: 'global' }
}

export const LINKS: readonly LinkInfo[] = [
  link('lo', { mtu: 65536, addr_info: [address('127.0.0.1/8')] }),
  link('eth0', { address: '52:54:00:00:00:01', addr_info: [address('192.0.2.1/24')] }),
  link('flannel.1', {
    mtu: 1450,
    ifalias: 'flannelette',
    linkinfo: { info_kind: 'tun', info_data: { type: 'tun' } },
    addr_info: [address('10.244.1.0/32')],
  }),
  link('cni0', { mtu: 1450, linkinfo: { info_kind: 'bridge' }, addr_info: [address('10.244.1.1/24')] }),
]

/** What is other, or more, where IPv6 has a device of its own. */
const IPV6_LINKS: readonly LinkInfo[] = [
  link('eth0', { addr_info: [address('192.0.2.1/24'), address('2001:db8::1/64')] }),
  link('flannel-v6.1', { ...LINKS[2], ifname: 'flannel-v6.1', mtu: 1430, addr_info: [address('fd00:10:244:1::/128')] }),
]

/** The links, with some of them changed or added. */
export function links(...changed: readonly LinkInfo[]): Facts['links'] {
  const names = changed.map(({ ifname }) => ifname)
  return { seen: true, value: [...LINKS.filter(({ ifname }) => !names.includes(ifname)), ...changed] }
}

/** The links but for one. */
export function without(name: string): Facts['links'] {
  return { seen: true, value: LINKS.filter(({ ifname }) => ifname !== name) }
}

/** The links, with another overlay device. */
export function tun(more: Partial<LinkInfo>): Facts['links'] {
  return links({ ...LINKS[2]!, ...more })
}

export function bridge(ifname: string, cidr: string, mtu = 1450): LinkInfo {
  return link(ifname, { mtu, linkinfo: { info_kind: 'bridge' }, addr_info: [address(cidr)] })
}

export const ROUTES: readonly RouteInfo[] = [
  { dst: 'default', gateway: '192.0.2.254', dev: 'eth0' },
  { dst: '192.0.2.0/24', dev: 'eth0', protocol: 'kernel' },
  { dst: '10.244.0.0/16', dev: 'flannel.1', protocol: '142' },
  { dst: '10.244.1.0/24', dev: 'cni0', protocol: 'kernel' },
]

/** As a node with IPv6 on a device of its own has them. */
export const IPV6_ROUTES: readonly RouteInfo[] = [
  { dst: 'default', gateway: 'fe80::1', dev: 'eth0' },
  { dst: '2001:db8::/64', dev: 'eth0', protocol: 'kernel' },
  { dst: 'fd00:10:244::/48', dev: 'flannel-v6.1', protocol: '142' },
  { dst: 'fd00:10:244:1::/64', dev: 'cni0', protocol: 'kernel' },
  { dst: 'fe80::/64', dev: 'eth0', protocol: 'kernel' },
]

export const SETTINGS: readonly (readonly [string, string])[] = [
  ['net/ipv4/ip_forward', '1'],
  ['net/ipv6/conf/all/forwarding', '1'],
  ['net/bridge/bridge-nf-call-iptables', '1'],
  ['net/ipv4/conf/all/rp_filter', '0'],
  ['net/ipv4/conf/flannel.1/rp_filter', '1'],
  ['net/ipv4/conf/flannel.1/forwarding', '1'],
  ['net/ipv4/conf/eth0/rp_filter', '2'],
  ['net/ipv4/conf/cni0/rp_filter', '0'],
  ['net/ipv4/conf/cni0/forwarding', '1'],
]

export function settings(...changed: readonly (readonly [string, string])[]): Facts['settings'] {
  return new Map([...SETTINGS, ...changed])
}

/** A firewall by the lines that its program lists. */
export function iptables(...lines: string[]): Partial<Facts> {
  return { firewall: { seen: true, value: chainsOfIptables(lines.join('\n')) } }
}

export function ip6tables(...lines: string[]): Partial<Facts> {
  return { ipv6Firewall: { seen: true, value: chainsOfIptables(lines.join('\n'), 'ip6tables') } }
}

export const SUBNET_FILE = [
  'FLANNEL_NETWORK=10.244.0.0/16',
  'FLANNEL_SUBNET=10.244.1.1/24',
  'FLANNEL_MTU=1450',
  'FLANNEL_IPMASQ=false',
  '',
].join('\n')

const IPV6_SUBNET_FILE = 'FLANNEL_IPV6_NETWORK=fd00:10:244::/48\nFLANNEL_IPV6_SUBNET=fd00:10:244:1::1/64\n'

/** A host on which nothing is wrong, with one difference. */
export function healthy(more: Partial<Facts> = {}): Facts {
  const daemon = status()
  return {
    now: NOW,
    root: true,
    kernelRelease: '6.12.30',
    nodeVersion: '20.19.4',
    koffiProblem: '',
    tunProblem: null,
    vxlan: 'present',
    mayConfigure: { seen: true, value: true },
    openFileLimit: { seen: true, value: 65536 },
    elsewhere: false,
    apiSocket: '/var/lib/flannelette/api.sock',
    stateProblem: null,
    view: {
      stateDirectory: '/var/lib/flannelette',
      status: daemon,
      statusProblem: '',
      alive: true,
      peers: daemon.peers,
    },
    daemonWords: { seen: true, value: ['node', 'launcher.cjs', 'run', '--store', 'file:/run/store'] },
    apiAnswers: { seen: true, value: true },
    laterCounters: null,
    links: { seen: true, value: LINKS },
    routes: { seen: true, value: ROUTES },
    ipv6Routes: { seen: true, value: IPV6_ROUTES },
    settings: settings(),
    offloads: { seen: true, value: { 'generic-receive-offload': true, 'tx-udp-segmentation': true } },
    udpPorts: { seen: true, value: [{ port: 8472, address: '192.0.2.1', holders: [{ pid: PID, program: 'node' }] }] },
    firewall: { seen: true, value: [{ name: 'iptables FORWARD', hook: 'forward', policy: 'accept', rules: [] }] },
    ipv6Firewall: { seen: true, value: [{ name: 'ip6tables FORWARD', hook: 'forward', policy: 'accept', rules: [] }] },
    natRules: { seen: true, value: ['-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE'] },
    largePackets: { seen: true, value: [look(2), look(3)] },
    managed: { seen: true, value: [] },
    subnetFilePath: '/run/flannel/subnet.env',
    subnetFile: { seen: true, value: SUBNET_FILE },
    engineOptions: { path: '/run/docker_opts.env', text: 'DOCKER_OPTS=" --bip=10.244.1.1/24 --mtu=1450"\n' },
    cniConfigs: [{ file: '10-flannel.conflist', types: ['flannel', 'portmap'] }],
    ...more,
  }
}
