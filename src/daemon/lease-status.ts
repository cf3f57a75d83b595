// A lease in the words of the status: text and ISO 8601 in place of numbers.
import { formatMac } from '../../dataplane/index.ts'
import { resultPer } from '../last-result.ts'
import { identityInWords, type Lease, nameOf } from '../lease/lease.ts'
import { vtepMacForIpv6, vtepMacOf } from '../store/flannel-json.ts'

export interface LeaseStatus {
  /** The IPv4 one; of a lease without one the IPv6 one. */
  readonly subnet: string
  /** `null` for a lease without an IPv6 half. */
  readonly ipv6Subnet: string | null
  /** What the node is known by: its IPv4 address, where IPv4 is off the IPv6 one. */
  readonly publicIp: string
  /** Where a tunnel over IPv6 leads, `null` without one. */
  readonly publicIpv6?: string | null
  readonly backendType: string
  /** Of the device that carries `subnet`. `null` when the lease carries none that is usable. */
  readonly vtepMac: string | null
  /** ISO 8601, `null` for a reservation. */
  readonly expiresAt: string | null
  readonly revision: number
}

/** By the lease itself, which never changes: the words for ten thousand take a tenth of a second. */
const knownWords = resultPer(inWords)

/** A lease in the words of the status. */
export function leaseStatus(lease: Lease): LeaseStatus {
  return knownWords(lease)
}

function inWords(lease: Lease): LeaseStatus {
  const { attributes } = lease
  const mac = lease.subnet === null ? vtepMacForIpv6(attributes) : vtepMacOf(attributes)
  return {
    subnet: nameOf(lease),
    ipv6Subnet: lease.ipv6Subnet,
    publicIp: identityInWords(attributes),
    publicIpv6: attributes.publicIpv6,
    backendType: attributes.backendType,
    vtepMac: mac === null ? null : formatMac(mac),
    expiresAt: isoOrNull(lease.expiresAtMs),
    revision: lease.revision,
  }
}

/** ISO 8601. */
export function isoOrNull(wallMs: number | null): string | null {
  return wallMs === null ? null : new Date(wallMs).toISOString()
}
