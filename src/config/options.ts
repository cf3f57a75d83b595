// What `flannelette run` was asked to do, after parsing: values checked, units in the names.
import {
  isUnicast,
  type Prefix,
  parseIpv4,
  parseIpv6,
  parseIpv6Prefix,
  parsePrefix,
  type SourceCheckMode,
  type UdpGsoMode,
  type WorkerDriver,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { LogFormat } from '../log.ts'
import type { FlagValues, SaidValue } from './flag-values.ts'

export type DataplaneKind = 'userspace' | 'kernel'

/** How etcd is reached and what for. Empty texts where nothing was given. */
export interface EtcdOptions {
  readonly endpoints: readonly string[]
  readonly prefix: string
  readonly keyFile: string
  readonly certFile: string
  readonly caFile: string
  readonly username: string
  readonly password: string
}

/** What the underlay interface is chosen by; empty and absent: the default route. */
export interface UnderlayWishes {
  /** Names or IPv4 addresses, the first that will do is taken. */
  readonly ifaces: readonly string[]
  /** Patterns for an address, else for a name; after `ifaces`. */
  readonly ifaceRegexes: readonly RegExp[]
  /** Unsigned 32-bit; after `ifaceRegexes`. */
  readonly ifaceCanReach?: number
  /** Unsigned 32-bit IPv4 address that peers send to. Alone, it names the interface as well. */
  readonly publicIp?: number
}

export interface RunOptions extends UnderlayWishes {
  /** `etcd`, or `file:DIR` */
  readonly store: string
  readonly etcd: EtcdOptions
  readonly subnetFile: string
  readonly stateDirectory: string
  /** Minutes before expiry at which the lease is renewed, 1 to 1439. */
  readonly renewMarginMinutes: number
  readonly ipMasq: boolean
  readonly ipMasqFullyRandom: boolean
  /** 1 to 86400. */
  readonly iptablesResyncSeconds: number
  readonly iptablesForwardRules: boolean
  readonly blackholeRoute: boolean
  /** IPv4 or IPv6 address as text. */
  readonly healthzIp: string
  /** 0 for none. */
  readonly healthzPort: number
  /** `address:port`, empty for none. */
  readonly metricsAddress: string
  readonly dataplane: DataplaneKind
  readonly driver: WorkerDriver
  readonly udpGso: UdpGsoMode
  readonly tunOffload: boolean
  readonly sourceCheck: SourceCheckMode
  /** Inner sources that any peer may forward for others. */
  readonly sourceAllow: readonly Prefix[]
  /** Threads of the userspace dataplane, 1 to 16. */
  readonly workers: number
  /** UDP ports that it sends from, 1 (the service port) to 256. */
  readonly sourcePorts: number
  readonly udpChecksum: boolean
  readonly onExit: 'keep' | 'remove'
  readonly logFormat: LogFormat
  readonly verbose: boolean
  /** What a person should read once: flags without effect, variables that were overruled. */
  readonly notices: readonly string[]
}

/** What all flags together ask for. @throws FlanneletteError `usage` */
export function runOptions(values: FlagValues): RunOptions {
  const driver = values.choice<WorkerDriver>('driver')
  const workers = values.integer('workers')
  refuseWorkersOf(driver, workers)
  return {
    store: values.text('store'),
    etcd: etcdOptions(values),
    ...underlayWishes(values),
    subnetFile: values.text('subnet-file'),
    stateDirectory: values.text('state-dir'),
    renewMarginMinutes: values.integer('subnet-lease-renew-margin'),
    ipMasq: values.boolean('ip-masq'),
    ipMasqFullyRandom: !values.boolean('ip-masq-fully-random-disable'),
    iptablesResyncSeconds: values.integer('iptables-resync'),
    iptablesForwardRules: values.boolean('iptables-forward-rules'),
    blackholeRoute: values.boolean('ip-blackhole-route'),
    healthzIp: addressText(values.said('healthz-ip')),
    healthzPort: values.integer('healthz-port'),
    metricsAddress: values.text('metrics-address'),
    dataplane: values.choice('dataplane'),
    driver,
    udpGso: values.choice('udp-gso'),
    tunOffload: values.text('tun-offload') === 'on',
    sourceCheck: values.choice('source-check'),
    sourceAllow: values.list('source-allow').map(parseSourceAllow),
    workers,
    sourcePorts: values.integer('source-ports'),
    udpChecksum: values.text('udp-checksum') === 'on',
    onExit: values.choice('on-exit'),
    logFormat: values.choice('log-format'),
    verbose: values.integer('v') > 0,
    notices: [...values.notices, ...flagsWithoutEffect(values)],
  }
}

/** One notice for each flag that was set and that the chosen dataplane does not look at. */
function flagsWithoutEffect(values: FlagValues): string[] {
  const chosen = values.choice<DataplaneKind>('dataplane')
  return values.settings
    .filter(({ flag, origin }) => origin !== 'default' && flag.dataplane !== 'both' && flag.dataplane !== chosen)
    .map(({ source }) => `${source} has no effect with --dataplane ${chosen}`)
}

function etcdOptions(values: FlagValues): EtcdOptions {
  const endpoints = values.text('etcd-endpoints').split(',')
  return {
    endpoints: endpoints.map((endpoint) => endpoint.trim()).filter((endpoint) => endpoint !== ''),
    prefix: values.text('etcd-prefix'),
    keyFile: values.text('etcd-keyfile'),
    certFile: values.text('etcd-certfile'),
    caFile: values.text('etcd-cafile'),
    username: values.text('etcd-username'),
    password: values.text('etcd-password'),
  }
}

function underlayWishes(values: FlagValues): UnderlayWishes {
  const canReach = values.said('iface-can-reach')
  const publicIp = values.said('public-ip')
  return {
    ifaces: values.list('iface').map(({ text }) => text),
    ifaceRegexes: values.list('iface-regex').map(parsePattern),
    ...(canReach === null ? {} : { ifaceCanReach: parseHostAddress(canReach) }),
    ...(publicIp === null ? {} : { publicIp: parseHostAddress(publicIp) }),
  }
}

/** `--public-ip`, `--iface-can-reach`. @throws FlanneletteError `usage` */
export function parseHostAddress({ text, said }: SaidValue): number {
  const address = parseIpv4(text)
  if (address === null || !isUnicast(address)) {
    throw new FlanneletteError('usage', `${said} is not the IPv4 address of a host`, {
      remedy: 'give one, or leave it out',
    })
  }
  return address
}

/** A pattern of Go's, as far as JavaScript has the same; `(?i)` in front is understood. @throws FlanneletteError `usage` */
export function parsePattern({ text, said }: SaidValue): RegExp {
  const [, flags, pattern] = /^(?:\(\?([is]+)\))?([\s\S]*)$/.exec(text)!
  try {
    return new RegExp(pattern!, flags)
  } catch (cause) {
    const why = (cause as Error).message.replace(/^Invalid regular expression: /, '')
    throw new FlanneletteError('usage', `${said} is no pattern: ${why}`, { remedy: 'correct it', cause })
  }
}

function addressText(value: SaidValue | null): string {
  if (value === null) return '0.0.0.0'
  if (parseIpv4(value.text) !== null || parseIpv6(value.text) !== null) return value.text
  throw new FlanneletteError('usage', `${value.said} is no address`, { remedy: 'give an IPv4 or IPv6 address' })
}

/** Whether a driver can be shared by so many workers. @throws FlanneletteError `usage` */
export function refuseWorkersOf(driver: WorkerDriver, workers: number): void {
  if (workers === 1 || driver === 'offload' || driver === 'plain') return
  throw new FlanneletteError('usage', `--driver ${driver} has one worker, not ${workers}`, {
    remedy: 'leave --workers out, or use --driver offload',
  })
}

function parseSourceAllow({ text, said }: SaidValue): Prefix {
  const prefix = parsePrefix(text) ?? parseIpv6Prefix(text)
  if (prefix !== null) return prefix
  throw new FlanneletteError('usage', `${said} is no CIDR`, { remedy: 'give one as 10.8.0.0/16 or fd00:8::/64' })
}
