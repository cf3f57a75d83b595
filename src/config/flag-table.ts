// Every flag of `flannelette run`, once: the command line, the environment, `config show` and docs/configuration.md are
// made of this table. flannel's flags keep flannel's names and defaults.
import type { WorkerDriver } from '../../dataplane/index.ts'
import { DEFAULT_ETCD_ENDPOINTS, DEFAULT_ETCD_PREFIX } from './etcd-options.ts'
import { DEFAULT_SUBNET_FILE } from './subnet-file.ts'

/** Of the only daemon of a host; several need one each. */
export const DEFAULT_STATE_DIRECTORY = '/var/lib/flannelette'

/** What may move packets of the userspace dataplane; the first one is the default. */
export const DRIVERS: [WorkerDriver, ...WorkerDriver[]] = ['offload', 'plain', 'dgram', 'raw']

export type FlagKind = 'text' | 'list' | 'boolean' | 'integer' | 'choice'

export interface Flag {
  readonly name: string
  readonly kind: FlagKind
  /** `flannel`: also read from `FLANNELD_*`. */
  readonly from: 'flannel' | 'own'
  /** What the value is, for the help. */
  readonly value: string
  /** As text; empty for none. */
  readonly default: string
  readonly about: string
  /** For `choice`. */
  readonly choices: readonly string[]
  /** For `integer`: limits, and what is counted. */
  readonly least: number
  readonly most: number
  readonly counts: string
  readonly secret: boolean
  /**
   * `none`: taken with a warning and ignored. `kubernetes`: refused unless it says what is the default anyway, until
   * there is that store.
   */
  readonly effect: 'full' | 'none' | 'kubernetes'
  /** The only dataplane that looks at it. */
  readonly dataplane: 'userspace' | 'kernel' | 'both'
}

type Details = Partial<Flag>

function flag(name: string, kind: FlagKind, value: string, standard: string, about: string, more: Details = {}): Flag {
  const rest = {
    from: 'own',
    choices: [],
    least: 0,
    most: 0,
    counts: 'a number',
    secret: false,
    effect: 'full',
    dataplane: 'both',
  } as const
  return { name, kind, value, default: standard, about, ...rest, ...more }
}

const flannel = (name: string, kind: FlagKind, value: string, standard: string, about: string, more: Details = {}) =>
  flag(name, kind, value, standard, about, { from: 'flannel', ...more })

const text = (name: string, value: string, standard: string, about: string, more: Details = {}) =>
  flannel(name, 'text', value, standard, about, more)

const toggle = (name: string, standard: boolean, about: string, more: Details = {}) =>
  flannel(name, 'boolean', 'true|false', String(standard), about, more)

/** The first choice is the default. */
const choice = (
  name: string,
  value: string,
  choices: readonly [string, ...string[]],
  about: string,
  more: Details = {},
) => flag(name, 'choice', value, choices[0], about, { choices, ...more })

const USERSPACE = { dataplane: 'userspace' } as const
const KERNEL = { dataplane: 'kernel' } as const
const KUBERNETES = { effect: 'kubernetes' } as const
const IGNORED = { effect: 'none' } as const

export const FLAGS: readonly Flag[] = [
  flag('store', 'text', 'store', 'etcd', 'where leases live: etcd, or file:DIR'),
  text(
    'etcd-endpoints',
    'urls',
    DEFAULT_ETCD_ENDPOINTS,
    'etcd servers as http://HOST:PORT or https://HOST:PORT, separated by commas',
  ),
  text('etcd-prefix', 'key', DEFAULT_ETCD_PREFIX, 'key below which etcd holds config and leases'),
  text('etcd-keyfile', 'path', '', 'key of the client certificate, PEM'),
  text('etcd-certfile', 'path', '', 'client certificate, PEM'),
  text('etcd-cafile', 'path', '', "CA of etcd's certificate, PEM (default: those of the system)"),
  text('etcd-username', 'name', '', 'user in etcd'),
  text(
    'etcd-password',
    'word',
    '',
    'its password; seen by everybody on this host who lists processes: better in the environment',
    { secret: true },
  ),
  flannel('iface', 'list', 'name|address', '', 'underlay interface (repeatable: the first that will do)'),
  flannel('iface-regex', 'list', 'pattern', '', 'the same by a pattern for its address, else its name (repeatable)'),
  text('iface-can-reach', 'address', '', 'the interface by which this address is reached'),
  text('public-ip', 'address', '', 'address that peers send to (default: that of the interface)'),
  text('public-ipv6', 'address', '', 'the same for a tunnel between IPv6 addresses'),
  text('subnet-file', 'path', DEFAULT_SUBNET_FILE, "this node's subnet and MTU, for CNI plugins"),
  flag(
    'docker-opts-file',
    'text',
    'path',
    '',
    'options of a Docker daemon made from it, as docker-opts writes them (default: nowhere)',
  ),
  flag(
    'state-dir',
    'text',
    'path',
    DEFAULT_STATE_DIRECTORY,
    'what the node remembers: MAC, lease, last peers, status.json',
  ),
  flannel('subnet-lease-renew-margin', 'integer', 'minutes', '60', 'renew so long before expiry (1-1439)', {
    least: 1,
    most: 1439,
    counts: 'minutes',
  }),
  toggle('ip-masq', false, 'masquerade what pods say to addresses outside the network'),
  flag(
    'ip-masq-exclude',
    'list',
    'cidr',
    '',
    'addresses outside the network to which pods keep their own, of machines that know the way back (repeatable)',
  ),
  toggle('ip-masq-fully-random-disable', false, 'masqueraded ports in order, not at random'),
  flannel('iptables-resync', 'integer', 'seconds', '5', 'look so often at rules and blackhole route (1-86400)', {
    least: 1,
    most: 86_400,
    counts: 'seconds',
  }),
  toggle('iptables-forward-rules', true, 'accept pod packets that the host forwards'),
  toggle('ip-blackhole-route', false, "end packets to this node's absent pods here"),
  text('healthz-ip', 'address', '0.0.0.0', 'where /healthz and /readyz are answered'),
  flannel('healthz-port', 'integer', 'port', '0', 'their TCP port; 0: nowhere', { most: 65_535 }),
  flag(
    'metrics-address',
    'text',
    'address:port',
    '',
    'where /metrics is answered, and health too; :PORT is on loopback (default: nowhere)',
  ),
  choice('metrics-peers', 'mode', ['on', 'off'], 'a metric for each peer'),
  flag('api-socket', 'text', 'path', '', 'local socket for other commands (default: api.sock in the state directory)'),
  choice('dataplane', 'kind', ['userspace', 'kernel', 'auto'], 'who moves packets; auto: the kernel where it can'),
  choice('driver', 'kind', DRIVERS, 'how the userspace dataplane moves them', USERSPACE),
  choice('udp-gso', 'mode', ['auto', 'on', 'off'], 'trains of datagrams sent as one', USERSPACE),
  choice('tun-offload', 'mode', ['on', 'off'], 'super-packets and open checksums on the device', USERSPACE),
  choice('outer-df', 'mode', ['clear', 'set'], 'DF of tunnel packets; set: pods are told of smaller MTUs on the way'),
  choice('source-check', 'mode', ['strict', 'peer', 'off'], 'whom to accept packets from', USERSPACE),
  flag(
    'source-allow',
    'list',
    'cidr',
    '',
    'inner sources that any peer may forward for others (repeatable)',
    USERSPACE,
  ),
  flag('workers', 'integer', 'n', '1', 'threads that move packets, each with a queue of the device (1-16)', {
    least: 1,
    most: 16,
    ...USERSPACE,
  }),
  flag(
    'source-ports',
    'integer',
    'n',
    '16',
    'UDP ports that flows are spread over; 1: the service port alone (1-256); more: all local ports with --driver raw',
    { least: 1, most: 256, ...USERSPACE },
  ),
  choice('udp-checksum', 'mode', ['on', 'off'], 'outer checksum of the kernel dataplane', KERNEL),
  choice('on-exit', 'mode', ['keep', 'remove'], 'what becomes of device, routes, rules and subnet.env'),
  choice(
    'log-format',
    'format',
    ['auto', 'text', 'json', 'klog'],
    'form of log lines; auto: text on a terminal, with priorities and without time under systemd, JSON elsewhere',
  ),
  flannel('v', 'integer', 'level', '0', 'log more (0: what matters, 1 and above: everything)', { most: 1_000_000 }),
  text('vmodule', 'pattern=level', '', 'no effect', IGNORED),
  text('log_backtrace_at', 'file:line', '', 'no effect', IGNORED),
  toggle('kube-subnet-mgr', false, 'leases in Kubernetes: not in this version', KUBERNETES),
  text('kube-api-url', 'url', '', 'not in this version', KUBERNETES),
  text('kubeconfig-file', 'path', '', 'not in this version', KUBERNETES),
  text('kube-annotation-prefix', 'prefix', 'flannel.alpha.coreos.com', 'not in this version', KUBERNETES),
  text('net-config-path', 'path', '/etc/kube-flannel/net-conf.json', 'not in this version', KUBERNETES),
  toggle('set-node-network-unavailable', true, 'not in this version', KUBERNETES),
]

const BY_NAME = new Map(FLAGS.map((row) => [row.name, row]))

export function flagOf(name: string): Flag | undefined {
  return BY_NAME.get(name)
}

/** `FLANNELD_ETCD_ENDPOINTS` of `etcd-endpoints`. */
export function variableOf(prefix: 'FLANNELD' | 'FLANNELLETTE', name: string): string {
  return `${prefix}_${name.toUpperCase().replaceAll('-', '_')}`
}
