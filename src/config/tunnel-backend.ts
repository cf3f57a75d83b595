// What the tunnel backends read from the network config's `Backend` object, with flannel's names and defaults.
import { OVERHEAD_BYTES } from '../../dataplane/index.ts'
import { asConfigError, invalid } from './config-error.ts'
import type { JsonFields } from './json-fields.ts'
import { type Encapsulation, SMALLEST_OVERLAY_BYTES } from './mtu.ts'
import type { NetworkConfig } from './network-config.ts'
import { hasNoTunnel, type PlainBackend, plainBackend } from './plain-backend.ts'
import { unsupportedBackend } from './unsupported-backend.ts'

/** flannel's (and Linux's) VXLAN port; IANA's 4789 is not the default. */
const DEFAULT_VXLAN_PORT = 8472
/** Port of flannel's plain UDP backend. */
const DEFAULT_UDP_PORT = 8285

/** Smallest underlay MTU that leaves enough for the overlay. */
const SMALLEST_MTU_BYTES = SMALLEST_OVERLAY_BYTES + OVERHEAD_BYTES.vxlan

export interface TunnelBackend {
  readonly encapsulation: Encapsulation
  /** The type as leases name it: flannel's `udp` and `alloc` backends leave it empty. */
  readonly leaseType: string
  /** Name of the overlay device, as flannel names it; empty for none. */
  readonly deviceName: string
  /** 1 to 16777215; 0 where there is none. */
  readonly vni: number
  /** UDP port, 1 to 65535, equal on all nodes; 0 for none. */
  readonly port: number
  /** Underlay MTU in bytes; `null` to take the interface's. */
  readonly mtuBytes: number | null
  /** `DirectRouting`: peers on the same link are reached by routes, past the tunnel. Absent: none are. */
  readonly directRouting?: boolean
  /** Set for a backend without a tunnel. */
  readonly plain?: PlainBackend
  /** What a person should read once. */
  readonly notices: readonly string[]
}

/**
 * Decodes the config's backend. @throws FlanneletteError `config-invalid` for a type that this version does not run, a
 * value out of range, or an option that would silently lose packets here
 */
export function tunnelBackend(config: NetworkConfig): TunnelBackend {
  requireIpv6Way(config)
  if (config.backendType === 'vxlan') return vxlanBackend(config)
  if (config.backendType === 'udp') return udpBackend(config)
  const plain = plainBackend(config)
  if (plain !== null) return withoutTunnel(config, plain)
  throw unsupportedBackend(config.backendType)
}

/** Neither device nor port; the pods' MTU is the interface's. */
function withoutTunnel({ backendType }: NetworkConfig, { backend, notices }: ReturnType<typeof plainBackend> & {}) {
  const leaseType = backendType === 'alloc' ? '' : backendType
  const nothing = { encapsulation: 'none', deviceName: '', vni: 0, port: 0, mtuBytes: null } as const
  return { ...nothing, leaseType, plain: backend, notices }
}

/** Our own key beside flannel's: IPv6 packets of pods ride through the IPv4 tunnel, device, MAC and port of IPv4. */
const IPV6_KEY = 'IPv6OverIPv4'

/** IPv6 needs to be told how it crosses: there is no tunnel between IPv6 addresses of hosts yet. */
function requireIpv6Way({ ipv6, backend, backendType }: NetworkConfig): void {
  if (ipv6 === null || hasNoTunnel(backendType)) return
  if (backendType !== 'vxlan') {
    throw invalid('EnableIPv6', `is true, but backend "${backendType}" carries IPv4 only`, 'take Backend.Type "vxlan"')
  }
  if (asConfigError(() => backend?.boolean(IPV6_KEY, false), 'Backend') === true) return
  throw invalid(
    'EnableIPv6',
    'is true, but this version has no tunnel over IPv6 yet',
    `add "${IPV6_KEY}": true to Backend to carry IPv6 of pods through the IPv4 tunnel`,
  )
}

/** The plain UDP backend: a port and nothing else. There is no `MTU` key in flannel's. */
function udpBackend({ backend }: NetworkConfig): TunnelBackend {
  const common = {
    encapsulation: 'udp',
    leaseType: '',
    deviceName: 'flannel0',
    vni: 0,
    mtuBytes: null,
    notices: [],
  } as const
  if (backend === null) return { ...common, port: DEFAULT_UDP_PORT }
  return asConfigError(() => ({ ...common, port: portOf(backend, DEFAULT_UDP_PORT) }), 'Backend')
}

function portOf(fields: JsonFields, usual: number): number {
  const port = fields.integer('Port', 0) || usual
  if (port < 1 || port > 65535) throw fields.refusal('Port', 'must be 1 to 65535')
  return port
}

function vxlanBackend({ backend: fields, ipv6 }: NetworkConfig): TunnelBackend {
  if (fields === null) throw invalid('Backend', 'is missing')
  return asConfigError(() => {
    const vni = fields.integer('VNI', 1)
    const port = portOf(fields, DEFAULT_VXLAN_PORT)
    const mtu = fields.integer('MTU', 0)
    if (vni < 1 || vni > 0xffffff) throw fields.refusal('VNI', 'must be 1 to 16777215')
    if (mtu !== 0 && (mtu < SMALLEST_MTU_BYTES || mtu > 65535)) {
      throw fields.refusal('MTU', `must be the underlay's MTU, ${SMALLEST_MTU_BYTES} to 65535, or left out`)
    }
    if (fields.boolean('GBP', false)) {
      throw fields.refusal('GBP', 'is not supported yet: packets with a policy mark would be lost; set it to false')
    }
    const notices: string[] = []
    if (ipv6 === null && fields.boolean(IPV6_KEY, false)) {
      notices.push(`Backend.${IPV6_KEY} has no effect without EnableIPv6`)
    }
    if (fields.boolean('Learning', false)) {
      notices.push('Backend.Learning has no effect: every peer address comes from the leases')
    }
    const directRouting = fields.boolean('DirectRouting', false)
    const names = { encapsulation: 'vxlan', leaseType: 'vxlan', deviceName: vxlanDeviceName(vni) } as const
    return { ...names, vni, port, mtuBytes: mtu === 0 ? null : mtu, directRouting, notices }
  }, 'Backend')
}

/** IFNAMSIZ − 1, netdevice(7). */
const MAX_NAME_LENGTH = 15

/**
 * `flannel.<VNI>` as flannel names it. From VNI 10,000,000 on that is too long for Linux; there the number is written
 * in hex behind an `x`.
 */
export function vxlanDeviceName(vni: number): string {
  const name = `flannel.${vni}`
  return name.length <= MAX_NAME_LENGTH ? name : `flannel.x${vni.toString(16)}`
}
