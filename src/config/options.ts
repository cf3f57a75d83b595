// What `flannelette run` was asked to do, after parsing: values checked, units in the names.
import { parseIpv4, type SourceCheckMode, type UdpGsoMode, type WorkerDriver } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { LogFormat } from '../log.ts'

export type DataplaneKind = 'userspace' | 'kernel'

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
  readonly udpChecksum: boolean
  readonly onExit: 'keep' | 'remove'
  readonly logFormat: LogFormat
  readonly verbose: boolean
}

/** `--public-ip`. @throws FlanneletteError `usage` */
export function parsePublicIp(text: string): number {
  const address = parseIpv4(text)
  if (address === null || address === 0) {
    throw new FlanneletteError('usage', `--public-ip ${text} is not an IPv4 address`, {
      remedy: 'give one, or leave it out',
    })
  }
  return address
}

/** `--subnet-lease-renew-margin`, flannel's limits. @throws FlanneletteError `usage` */
export function parseRenewMargin(text: string): number {
  const minutes = /^\d+$/.test(text) ? Number(text) : 0
  if (minutes < 1 || minutes > 1439) {
    const remedy = 'give minutes from 1 to 1439'
    throw new FlanneletteError('usage', `--subnet-lease-renew-margin ${text} is out of range`, { remedy })
  }
  return minutes
}
