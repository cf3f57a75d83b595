// What `flannelette run` was asked to do, after parsing: values checked, units in the names.
import { isIP } from 'node:net'
import {
  containsAddress,
  isUnicast,
  NON_UNICAST_IPV6_PREFIXES,
  type OuterDf,
  type Prefix,
  parseIpv4,
  parseIpv6,
  parseIpv6Prefix,
  parsePrefix,
  type SourceCheckMode,
  type UdpGsoMode,
  type UnderlayAddress,
  type WorkerDriver,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { LogFormat } from '../log.ts'
import { type EtcdOptions, etcdOptions } from './etcd-options.ts'
import type { Flag } from './flag-table.ts'
import type { FlagValues, SaidValue } from './flag-values.ts'

export type DataplaneKind = 'userspace' | 'kernel' | 'auto'

/** What to listen on. */
export interface ListenAddress {
  /** An IP address. */
  readonly host: string
  readonly port: number
}

/** What the underlay interface is chosen by; empty and absent: the default route. */
export interface UnderlayWishes {
  /** Names or addresses, the first that will do is taken. */
  readonly ifaces: readonly string[]
  /** Patterns for an address, else for a name; after `ifaces`. */
  readonly ifaceRegexes: readonly RegExp[]
  /** After `ifaceRegexes`. */
  readonly ifaceCanReach?: UnderlayAddress
  /** Unsigned 32-bit IPv4 address that peers send to. Alone, it names the interface as well. */
  readonly publicIp?: number
  /** The same for IPv6, unsigned 128-bit. */
  readonly publicIpv6?: bigint
}

export interface RunOptions extends UnderlayWishes {
  /** `etcd`, or `file:DIR` */
  readonly store: string
  readonly etcd: EtcdOptions
  readonly subnetFile: string
  /** Nowhere when left out. */
  readonly dockerOptsFile?: string
  readonly stateDirectory: string
  /** Minutes before expiry at which the lease is renewed, 1 to 1439. */
  readonly renewMarginMinutes: number
  readonly ipMasq: boolean
  readonly ipMasqFullyRandom: boolean
  /** Destinations to which pods are not masqueraded, of both families. */
  readonly ipMasqExclude: readonly Prefix[]
  /** 1 to 86400. */
  readonly iptablesResyncSeconds: number
  readonly iptablesForwardRules: boolean
  readonly blackholeRoute: boolean
  /** Where health is answered; a port of 0 is nowhere. */
  readonly healthzIp: string
  readonly healthzPort: number
  /** Where metrics are, and health too; nowhere when left out. */
  readonly metricsAddress?: ListenAddress
  /** Whether there is a metric for each peer. */
  readonly metricsPeers: boolean
  /** Path of the local socket; in the state directory when left out. */
  readonly apiSocket?: string
  readonly dataplane: DataplaneKind
  readonly driver: WorkerDriver
  readonly udpGso: UdpGsoMode
  readonly tunOffload: boolean
  readonly outerDf: OuterDf
  readonly sourceCheck: SourceCheckMode
  /** Inner sources that any peer may forward for others. */
  readonly sourceAllow: readonly Prefix[]
  /** Threads of the userspace dataplane, 1 to 16. */
  readonly workers: number
  /** UDP ports that it sends from, 1 (the service port) to 256. */
  readonly sourcePorts: number
  readonly udpChecksum: boolean
  /** Flags that were set and that only a tunnel looks at: whether the backend has one is not known yet. */
  readonly tunnelFlags: readonly string[]
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
  const outerDf = values.choice<OuterDf>('outer-df')
  if (outerDf === 'set') refuseOuterDf(values.choice<DataplaneKind>('dataplane'), driver)
  const etcd = etcdOf(values)
  return {
    store: values.text('store'),
    etcd,
    ...underlayWishes(values),
    subnetFile: values.text('subnet-file'),
    ...(values.said('docker-opts-file') === null ? {} : { dockerOptsFile: values.text('docker-opts-file') }),
    stateDirectory: values.text('state-dir'),
    renewMarginMinutes: values.integer('subnet-lease-renew-margin'),
    ipMasq: values.boolean('ip-masq'),
    ipMasqFullyRandom: !values.boolean('ip-masq-fully-random-disable'),
    ipMasqExclude: values.list('ip-masq-exclude').map(parseExclusion),
    iptablesResyncSeconds: values.integer('iptables-resync'),
    iptablesForwardRules: values.boolean('iptables-forward-rules'),
    blackholeRoute: values.boolean('ip-blackhole-route'),
    healthzIp: addressText(values.said('healthz-ip')),
    healthzPort: values.integer('healthz-port'),
    ...metricsAddress(values.said('metrics-address')),
    metricsPeers: values.text('metrics-peers') === 'on',
    ...(values.said('api-socket') === null ? {} : { apiSocket: values.text('api-socket') }),
    dataplane: values.choice('dataplane'),
    driver,
    udpGso: values.choice('udp-gso'),
    tunOffload: values.text('tun-offload') === 'on',
    outerDf,
    sourceCheck: values.choice('source-check'),
    sourceAllow: values.list('source-allow').map(parseCidr),
    workers,
    sourcePorts: values.integer('source-ports'),
    udpChecksum: values.text('udp-checksum') === 'on',
    tunnelFlags: flagsOfTunnel(values),
    onExit: values.choice('on-exit'),
    logFormat: values.choice('log-format'),
    verbose: values.integer('v') > 0,
    notices: [
      ...values.notices,
      ...flagsWithoutEffect(values),
      ...idleExclusions(values),
      ...idleEtcdFlags(values, etcd),
    ],
  }
}

/** One notice for each flag that was set and that the chosen dataplane does not look at. */
function flagsWithoutEffect(values: FlagValues): string[] {
  const chosen = values.choice<DataplaneKind>('dataplane')
  if (chosen === 'auto') return [] // each of them counts for one of the two
  return values.settings
    .filter(({ flag, origin }) => origin !== 'default' && flag.dataplane !== 'both' && flag.dataplane !== chosen)
    .map(({ source }) => `${source} has no effect with --dataplane ${chosen}`)
}

/** Exceptions from what is not done at all. */
function idleExclusions(values: FlagValues): string[] {
  if (values.boolean('ip-masq')) return []
  const given = values.settings.filter(({ flag, values: some }) => flag.name === 'ip-masq-exclude' && some.length > 0)
  return given.map(({ source }) => `${source} has no effect without --ip-masq`)
}

/** DF clear is what happens without a tunnel as well. */
function flagsOfTunnel(values: FlagValues): string[] {
  const chosen = values.choice<DataplaneKind>('dataplane')
  const counts = ({ name, dataplane }: Flag) =>
    name === 'outer-df' ? values.text(name) === 'set' : dataplane !== 'both' && ['auto', dataplane].includes(chosen)
  return values.settings.filter(({ flag, origin }) => origin !== 'default' && counts(flag)).map(({ source }) => source)
}

/** Flags for etcd that come to nothing: whoever gave them believes in something that is not so. */
function idleEtcdFlags(values: FlagValues, { endpoints }: EtcdOptions): string[] {
  const given = values.settings.filter(({ flag, origin }) => origin !== 'default' && flag.name.startsWith('etcd-'))
  const idle = (names: readonly string[] | null, why: string) =>
    given
      .filter(({ flag, values: some }) => some.length > 0 && (names === null || names.includes(flag.name)))
      .map(({ source }) => `${source} has no effect${why}`)
  const store = values.text('store')
  if (store !== 'etcd') return idle(null, ` with --store ${store}`)
  const plain = endpoints.every((endpoint) => endpoint.startsWith('http:'))
  return [
    ...(plain ? idle(TLS_FLAGS, ': no endpoint of etcd begins with https://') : []),
    ...(values.text('etcd-username') === '' ? idle(['etcd-password'], ' without --etcd-username') : []),
  ]
}

const TLS_FLAGS = ['etcd-keyfile', 'etcd-certfile', 'etcd-cafile']

function etcdOf(values: FlagValues): EtcdOptions {
  const flags = {
    etcdEndpoints: values.text('etcd-endpoints'),
    etcdPrefix: values.text('etcd-prefix'),
    etcdKeyfile: values.text('etcd-keyfile'),
    etcdCertfile: values.text('etcd-certfile'),
    etcdCafile: values.text('etcd-cafile'),
    etcdUsername: values.text('etcd-username'),
    etcdPassword: values.text('etcd-password'),
  }
  return etcdOptions(flags, (name) => values.source(name))
}

function underlayWishes(values: FlagValues): UnderlayWishes {
  const canReach = values.said('iface-can-reach')
  const publicIp = values.said('public-ip')
  const publicIpv6 = values.said('public-ipv6')
  return {
    ifaces: values.list('iface').map(({ text }) => text),
    ifaceRegexes: values.list('iface-regex').map(parsePattern),
    ...(canReach === null ? {} : { ifaceCanReach: hostIpv4(canReach) ?? hostIpv6(canReach) ?? refuseHost(canReach) }),
    ...(publicIp === null ? {} : { publicIp: hostIpv4(publicIp) ?? refuseHost(publicIp, 'IPv4 ') }),
    ...(publicIpv6 === null ? {} : { publicIpv6: hostIpv6(publicIpv6) ?? refuseHost(publicIpv6, 'IPv6 ') }),
  }
}

function hostIpv4({ text }: SaidValue): number | null {
  const address = parseIpv4(text)
  return address === null || !isUnicast(address) ? null : address
}

/** A link-local address is none that could be reached without saying by which interface. */
function hostIpv6({ text }: SaidValue): bigint | null {
  const address = parseIpv6(text)
  const isHost = address !== null && !NON_UNICAST_IPV6_PREFIXES.some((prefix) => containsAddress(prefix, address))
  return isHost ? address : null
}

/** @throws FlanneletteError `usage` */
function refuseHost({ said }: SaidValue, family = ''): never {
  throw new FlanneletteError('usage', `${said} is not the ${family}address of a host`, {
    remedy: 'give one, or leave it out',
  })
}

/**
 * A pattern of Go's, as far as JavaScript has the same; `(?i)` in front is understood. @throws FlanneletteError `usage`
 */
function parsePattern({ text, said }: SaidValue): RegExp {
  const [, flags, pattern] = /^(?:\(\?([is]+)\))?([\s\S]*)$/.exec(text)!
  try {
    return new RegExp(pattern!, flags)
  } catch (cause) {
    const why = (cause as Error).message.replace(/^Invalid regular expression: /, '')
    throw new FlanneletteError('usage', `${said} is no pattern: ${why}`, { remedy: 'correct it', cause })
  }
}

/** `--healthz-ip`. @throws FlanneletteError `usage` */
function addressText(value: SaidValue | null): string {
  if (value === null) return '0.0.0.0'
  if (isIP(value.text) !== 0) return value.text
  throw new FlanneletteError('usage', `${value.said} is no IP address`, { remedy: 'give one, such as 127.0.0.1' })
}

/** `--metrics-address`: `:9401` is on loopback, another host must be named. @throws FlanneletteError `usage` */
function metricsAddress(value: SaidValue | null): { metricsAddress?: ListenAddress } {
  if (value === null) return {}
  const [, bracketed, plain, portText = ''] = /^(?:\[(.*)\]|([^:]*)):(\d{1,5})$/.exec(value.text) ?? []
  const host = (bracketed ?? plain ?? '') || '127.0.0.1'
  const port = Number(portText)
  if (port > 0 && port < 65_536 && isIP(host) !== 0) return { metricsAddress: { host, port } }
  const remedy = 'give :PORT for loopback, or ADDRESS:PORT'
  throw new FlanneletteError('usage', `${value.said} is no address to listen on`, { remedy })
}

/** Whether a driver can be shared by so many workers. @throws FlanneletteError `usage` */
export function refuseWorkersOf(driver: WorkerDriver, workers: number): void {
  if (workers === 1 || driver === 'offload' || driver === 'plain') return
  throw new FlanneletteError('usage', `--driver ${driver} has one worker, not ${workers}`, {
    remedy: 'leave --workers out, or use --driver offload',
  })
}

/**
 * Whoever sets DF must tell pods what passes. The kernel's VTEP tells nobody whose packets the host forwards; and to our own
 * the kernel must say which packet was too large, which it does not for headers of our own, and Node does when the packet is
 * gone. @throws FlanneletteError `usage`
 */
function refuseOuterDf(dataplane: DataplaneKind, driver: WorkerDriver): void {
  if (dataplane !== 'userspace') {
    throw new FlanneletteError(
      'usage',
      `--outer-df set is not for --dataplane ${dataplane}: the kernel would not tell pods`,
      {
        remedy: 'leave --outer-df out, or use --dataplane userspace',
      },
    )
  }
  if (driver === 'offload' || driver === 'plain') return
  throw new FlanneletteError('usage', `--driver ${driver} cannot set DF on tunnel packets`, {
    remedy: 'leave --outer-df out, or use --driver offload or plain',
  })
}

function parseExclusion(value: SaidValue): Prefix {
  const prefix = parseCidr(value)
  if (prefix.length > 0) return prefix
  throw new FlanneletteError('usage', `${value.said} are all addresses`, { remedy: 'leave --ip-masq out instead' })
}

function parseCidr({ text, said }: SaidValue): Prefix {
  const prefix = parsePrefix(text) ?? parseIpv6Prefix(text)
  if (prefix !== null) return prefix
  throw new FlanneletteError('usage', `${said} is no CIDR`, { remedy: 'give one as 10.8.0.0/16 or fd00:8::/64' })
}
