// What the tunnel backends read from the network config's `Backend` object, with flannel's names and defaults.
import { asConfigError, invalid } from './config-error.ts'
import type { JsonFields } from './json-fields.ts'
import { type Encapsulation, overheadBytes, smallestOverlayBytes } from './mtu.ts'
import type { NetworkConfig } from './network-config.ts'
import { type PlainBackend, type PlainChoice, plainBackend } from './plain-backend.ts'
import { unsupportedBackend } from './unsupported-backend.ts'

/** flannel's (and Linux's) VXLAN port; IANA's 4789 is not the default. */
const DEFAULT_VXLAN_PORT = 8472
/** Port of flannel's plain UDP backend. */
const DEFAULT_UDP_PORT = 8285

/** Between which addresses of hosts the tunnels are: `dual` has one of each, with a device for each family of pods. */
export type UnderlayFamilies = 'ipv4' | 'ipv6' | 'dual'

export interface TunnelBackend {
  readonly encapsulation: Encapsulation
  /** The type as leases name it: flannel's `udp` and `alloc` backends leave it empty. */
  readonly leaseType: string
  readonly underlay: UnderlayFamilies
  /** Name of the overlay device, as flannel names it; with `dual` of the one over IPv4; empty for none. */
  readonly deviceName: string
  /** With `dual` the device of the tunnel over IPv6, else `null`. */
  readonly ipv6DeviceName: string | null
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
  /** `GBP`: marks of packets cross the tunnel. Absent: they do not. */
  readonly groupPolicy?: boolean
  /** `Learning`: the kernel's device learns MACs. Absent: it does not. */
  readonly learning?: boolean
  /** What a person should read once. */
  readonly notices: readonly string[]
}

/**
 * Decodes the config's backend. @throws FlanneletteError `config-invalid` for a type that this version does not run, a
 * value out of range, or an option that would silently lose packets here
 */
export function tunnelBackend(config: NetworkConfig): TunnelBackend {
  if (config.backendType === 'vxlan') return vxlanBackend(config)
  if (config.backendType === 'udp') return udpBackend(config)
  const plain = plainBackend(config)
  if (plain !== null) return withoutTunnel(config, plain)
  throw unsupportedBackend(config.backendType)
}

/** Neither device nor port; the pods' MTU is the interface's. */
function withoutTunnel(config: NetworkConfig, { backend, notices }: PlainChoice): TunnelBackend {
  const nothing = {
    encapsulation: 'none',
    deviceName: '',
    ipv6DeviceName: null,
    vni: 0,
    port: 0,
    mtuBytes: null,
  } as const
  const isAlloc = backend.type === 'alloc'
  // The lease of `alloc` names one address of its host; commands are told of both.
  const underlay = underlayOf(config, isAlloc && config.ipv4 !== null)
  return { ...nothing, leaseType: isAlloc ? '' : backend.type, underlay, plain: backend, notices }
}

/** Our own key beside flannel's: IPv6 packets of pods ride through the IPv4 tunnel, device, MAC and port of IPv4. */
const IPV6_KEY = 'IPv6OverIPv4'

/** As flannel has it IPv6 goes between IPv6 addresses of hosts, unless our own key says otherwise. */
function underlayOf({ ipv4, ipv6 }: NetworkConfig, ridesOverIpv4: boolean): UnderlayFamilies {
  if (ipv6 === null) return 'ipv4'
  if (ipv4 !== null) return ridesOverIpv4 ? 'ipv4' : 'dual'
  if (!ridesOverIpv4) return 'ipv6'
  throw invalid(`Backend.${IPV6_KEY}`, 'is true, but EnableIPv4 is false: there is no IPv4 tunnel', 'leave it out')
}

/** The plain UDP backend: a port and nothing else. There is no `MTU` key in flannel's. */
function udpBackend({ backend, ipv4, ipv6 }: NetworkConfig): TunnelBackend {
  if (ipv4 === null || ipv6 !== null) {
    const why = '"udp" carries IPv4 only'
    const add = 'add for example "Backend": {"Type": "vxlan"}'
    if (backend === null) throw invalid('Backend', `is missing, and flannel's default ${why}`, add)
    throw invalid('EnableIPv6', `does not go with this Backend: ${why}`, 'take Backend.Type "vxlan"')
  }
  const common = {
    encapsulation: 'udp',
    leaseType: '',
    underlay: 'ipv4',
    deviceName: 'flannel0',
    ipv6DeviceName: null,
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

function vxlanBackend(config: NetworkConfig): TunnelBackend {
  const { backend: fields, ipv6 } = config
  if (fields === null) throw invalid('Backend', 'is missing')
  return asConfigError(() => {
    const vni = fields.integer('VNI', 1)
    const port = portOf(fields, DEFAULT_VXLAN_PORT)
    const mtu = fields.integer('MTU', 0)
    if (vni < 1 || vni > 0xffffff) throw fields.refusal('VNI', 'must be 1 to 16777215')
    const [groupPolicy, learning] = [fields.boolean('GBP', false), fields.boolean('Learning', false)]
    const notices: string[] = []
    const ridesOverIpv4 = fields.boolean(IPV6_KEY, false)
    if (groupPolicy) {
      notices.push('Backend.GBP needs --dataplane kernel or auto: only the kernel sees the marks of packets')
    }
    if (ipv6 === null && ridesOverIpv4) {
      notices.push(`Backend.${IPV6_KEY} has no effect without EnableIPv6`)
    }
    if (learning) {
      notices.push('Backend.Learning has an effect with the kernel dataplane only, and no use: leases name every MAC')
    }
    const directRouting = fields.boolean('DirectRouting', false)
    const underlay = underlayOf(config, ridesOverIpv4)
    const least = smallestOverlayBytes(ipv6 !== null) + overheadBytes('vxlan', underlay !== 'ipv4')
    if (mtu !== 0 && (mtu < least || mtu > 65535)) {
      const why = ipv6 === null ? '' : ': IPv6 needs 1280 inside'
      throw fields.refusal('MTU', `must be the underlay's MTU, ${least} to 65535, or left out${why}`)
    }
    const names = {
      encapsulation: 'vxlan',
      leaseType: 'vxlan',
      underlay,
      deviceName: underlay === 'ipv6' ? vxlanIpv6DeviceName(vni) : vxlanDeviceName(vni),
      ipv6DeviceName: underlay === 'dual' ? vxlanIpv6DeviceName(vni) : null,
    } as const
    return { ...names, vni, port, mtuBytes: mtu === 0 ? null : mtu, directRouting, groupPolicy, learning, notices }
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

/** The same for `flannel-v6.<VNI>`, the device of the tunnel over IPv6: too long from VNI 10,000 on. */
export function vxlanIpv6DeviceName(vni: number): string {
  const name = `flannel-v6.${vni}`
  return name.length <= MAX_NAME_LENGTH ? name : `flan-v6.x${vni.toString(16)}`
}
