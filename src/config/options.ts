// What `flannelette run` was asked to do, after parsing: values checked, units in the names.
import { isIP } from 'node:net'
import {
  isUnicast,
  type Prefix,
  parseIpv4,
  parseIpv6Prefix,
  parsePrefix,
  type SourceCheckMode,
  type UdpGsoMode,
  type WorkerDriver,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { LogFormat } from '../log.ts'

export type DataplaneKind = 'userspace' | 'kernel'

/** What may move packets of the userspace dataplane; the first one is the default. */
export const DRIVERS: [WorkerDriver, ...WorkerDriver[]] = ['offload', 'plain', 'dgram', 'raw']

/** What to listen on. */
export interface Endpoint {
  /** An IP address. */
  readonly host: string
  readonly port: number
}

export interface RunOptions {
  /** `file:DIR` */
  readonly store: string
  readonly iface?: string
  /** Unsigned 32-bit IPv4 address. */
  readonly publicIp?: number
  readonly subnetFile: string
  readonly stateDirectory: string
  /** Minutes before expiry at which the lease is renewed, 1 to 1439. */
  readonly renewMarginMinutes: number
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
  /** Where health is answered; a port of 0 is nowhere. */
  readonly healthzIp: string
  readonly healthzPort: number
  /** Where metrics are, and health too; nowhere when left out. */
  readonly metricsAddress?: Endpoint
  /** Whether there is a metric for each peer. */
  readonly metricsPeers: boolean
  /** Path of the local socket; in the state directory when left out. */
  readonly apiSocket?: string
  readonly logFormat: LogFormat
  readonly verbose: boolean
  /** What a person should read once. */
  readonly notices: readonly string[]
}

/** Flags that only one of the dataplanes looks at. */
const FLAGS_OF: Readonly<Record<DataplaneKind, readonly string[]>> = {
  userspace: [
    ...['--driver', '--udp-gso', '--tun-offload', '--source-check', '--source-allow'],
    ...['--workers', '--source-ports'],
  ],
  kernel: ['--udp-checksum'],
}

/** One notice for each flag that was given and that this dataplane does not look at. */
export function flagsWithoutEffect(dataplane: DataplaneKind, wasGiven: (flag: string) => boolean): string[] {
  const other = dataplane === 'kernel' ? 'userspace' : 'kernel'
  return FLAGS_OF[other].filter(wasGiven).map((flag) => `${flag} has no effect with --dataplane ${dataplane}`)
}

/** `--public-ip`. @throws FlanneletteError `usage` */
export function parsePublicIp(text: string): number {
  const address = parseIpv4(text)
  if (address === null || !isUnicast(address)) {
    throw new FlanneletteError('usage', `--public-ip ${text} is not the IPv4 address of a host`, {
      remedy: 'give one, or leave it out',
    })
  }
  return address
}

/** `--healthz-ip`. @throws FlanneletteError `usage` */
export function parseHealthzIp(text: string): string {
  if (isIP(text) !== 0) return text
  throw new FlanneletteError('usage', `--healthz-ip ${text} is no IP address`, {
    remedy: 'give one, such as 127.0.0.1',
  })
}

/** `--healthz-port`; 0 switches it off. @throws FlanneletteError `usage` */
export function parseHealthzPort(text: string): number {
  const port = portOf(text)
  if (port !== null) return port
  const remedy = 'give a port from 1 to 65535, or 0 for none'
  throw new FlanneletteError('usage', `--healthz-port ${text} is out of range`, { remedy })
}

/** `--metrics-address`: `:9401` is on loopback, another host must be named. @throws FlanneletteError `usage` */
export function parseMetricsAddress(text: string): Endpoint {
  const [, bracketed, plain, portText = ''] = /^(?:\[(.*)\]|([^:]*)):(\d+)$/.exec(text) ?? []
  const host = (bracketed ?? plain ?? '') || '127.0.0.1'
  const port = portOf(portText)
  if (port !== null && port > 0 && isIP(host) !== 0) return { host, port }
  const remedy = 'give :PORT for loopback, or ADDRESS:PORT'
  throw new FlanneletteError('usage', `--metrics-address ${text} is no address to listen on`, { remedy })
}

function portOf(text: string): number | null {
  return /^\d{1,5}$/.test(text) && Number(text) < 65536 ? Number(text) : null
}

/** `--subnet-lease-renew-margin`, flannel's limits. @throws FlanneletteError `usage` */
export function parseRenewMargin(text: string): number {
  return parseWithin('--subnet-lease-renew-margin', text, 1439, 'minutes')
}

/** `--workers`. @throws FlanneletteError `usage` */
export function parseWorkers(text: string): number {
  return parseWithin('--workers', text, 16, 'a number')
}

/** `--source-ports`. @throws FlanneletteError `usage` */
export function parseSourcePorts(text: string): number {
  return parseWithin('--source-ports', text, 256, 'a number')
}

/** Whether a driver can be shared by so many workers. @throws FlanneletteError `usage` */
export function refuseWorkersOf(driver: WorkerDriver, workers: number): void {
  if (workers === 1 || driver === 'offload' || driver === 'plain') return
  throw new FlanneletteError('usage', `--driver ${driver} has one worker, not ${workers}`, {
    remedy: 'leave --workers out, or use --driver offload',
  })
}

/** A whole number from 1 to `most`; `what` is what to give in place of another. */
function parseWithin(flag: string, text: string, most: number, what: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : 0
  if (value < 1 || value > most) {
    throw new FlanneletteError('usage', `${flag} ${text} is out of range`, { remedy: `give ${what} from 1 to ${most}` })
  }
  return value
}

/** `--source-allow`, given any number of times. @throws FlanneletteError `usage` */
export function collectSourceAllow(text: string, before: readonly Prefix[]): Prefix[] {
  const prefix = parsePrefix(text) ?? parseIpv6Prefix(text)
  if (prefix === null) {
    const remedy = 'give one as 10.8.0.0/16 or fd00:8::/64'
    throw new FlanneletteError('usage', `--source-allow ${text} is no CIDR`, { remedy })
  }
  return [...before, prefix]
}
