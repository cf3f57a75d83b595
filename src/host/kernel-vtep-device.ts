// The kernel's own VXLAN device: makes it, keeps a compatible one, refuses somebody else's. Pure planning first, then
// the one function that acts.
import { createSocket } from 'node:dgram'
import { formatAddress, formatMac, OVERHEAD_BYTES, WIDE_OVERHEAD_BYTES } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { InNamespace } from './command.ts'
import type { LocalVtep, VtepOutline } from './dataplane.ts'
import { batch, type LinkInfo, readLink, showJson } from './ip.ts'
import {
  addAddress,
  addressesIn,
  allowIpv6,
  inspectOverlayDevice,
  isAttached,
  quietRouterAdvertisements,
} from './overlay-link.ts'
import { DEVICE_ALIAS } from './route-protocol.ts'
import { kernelHasIpv6 } from './sysctl.ts'

/**
 * Why an existing device cannot be used as it is; empty when it can. flannel compares the same properties, but for
 * learning and the checksum, which it takes as they come. One of another kind has none of them: that alone is said.
 */
export function deviceDifferences(link: LinkInfo, local: VtepOutline, udpChecksum: boolean): string[] {
  const data = link.linkinfo?.info_data ?? {}
  const differences: string[] = []
  const compare = (what: string, has: unknown, wanted: unknown) => {
    if (has !== wanted) differences.push(`${what} ${String(has ?? 'none')}, wanted ${String(wanted)}`)
  }
  compare('kind', link.linkinfo?.info_kind, 'vxlan')
  if (differences.length > 0) return differences
  compare('VNI', data.id, local.vni)
  compare('port', data.port, local.port)
  compare('local address', data.local ?? data.local6, formatAddress(local.underlayAddress))
  compare('lower device', data.link, local.underlayInterface)
  compare('learning', data.learning, local.learning ?? false)
  compare('group policy', data.gbp ?? false, local.groupPolicy ?? false)
  if (isOverIpv6(local)) {
    compare('zero checksums sent', data.udp_zero_csum6_tx, false)
    compare('zero checksums accepted', data.udp_zero_csum6_rx, false)
  } else {
    compare('UDP checksum', data.udp_csum, udpChecksum)
  }
  compare('default destination', data.group ?? data.group6 ?? data.remote ?? data.remote6 ?? 'none', 'none')
  compare('asking for unknown MACs', data.l2miss ?? false, false)
  return differences
}

function isOverIpv6({ underlayAddress }: VtepOutline): boolean {
  return typeof underlayAddress === 'bigint'
}

/** The outer UDP checksum in words of `ip link`: IPv6 has it always (RFC 8200 section 8.1). */
function checksumWords(local: VtepOutline, udpChecksum: boolean): string {
  if (isOverIpv6(local)) return 'noudp6zerocsumtx noudp6zerocsumrx'
  return udpChecksum ? 'udpcsum' : 'noudpcsum'
}

/** Commands that make the device, or put right MAC, MTU and alias of one that is there. */
export function planDevice(local: LocalVtep, link: LinkInfo | null, udpChecksum: boolean, hasIpv6 = true): string[] {
  const name = local.deviceName
  const mac = formatMac(local.mac)
  const plan: string[] = []
  if (link === null) {
    const flags = [
      local.learning ? 'learning' : 'nolearning',
      checksumWords(local, udpChecksum),
      ...(local.groupPolicy ? ['gbp'] : []),
    ]
    plan.push(
      `link add ${name} address ${mac} mtu ${local.mtuBytes} type vxlan id ${local.vni} dstport ${local.port} ` +
        `local ${formatAddress(local.underlayAddress)} dev ${local.underlayInterface} ${flags.join(' ')}`,
      `link set dev ${name} alias ${DEVICE_ALIAS}`,
    )
    if (hasIpv6) plan.push(`link set dev ${name} addrgenmode none`)
  } else {
    if (link.address !== mac) plan.push(`link set dev ${name} address ${mac}`)
    if (link.mtu !== local.mtuBytes) plan.push(`link set dev ${name} mtu ${local.mtuBytes}`)
    if (link.ifalias !== DEVICE_ALIAS) plan.push(`link set dev ${name} alias ${DEVICE_ALIAS}`)
  }
  return plan
}

/** Commands that give the device an address of each family, and bring it up; none when all is so already. */
export function planAddresses(local: LocalVtep, link: LinkInfo | null): string[] {
  const { deviceName: name, network, subnet, ipv6Subnet } = local
  const ipv4 = subnet === null ? null : `${formatAddress(subnet.address)}/32`
  const ipv6 = ipv6Subnet === null ? null : `${formatAddress(ipv6Subnet.address)}/128`
  return [
    ...planAddress(name, network === null ? [] : addressesIn(link, network), ipv4),
    // As flannel has it: all but link-local ones.
    ...planAddress(name, globalIpv6Addresses(link), ipv6),
    ...(link?.flags.includes('UP') === true ? [] : [`link set dev ${name} up`]),
  ]
}

function globalIpv6Addresses(link: LinkInfo | null): string[] {
  const ipv6 = (link?.addr_info ?? []).filter(({ family, scope }) => family === 'inet6' && scope === 'global')
  return ipv6.map(({ local, prefixlen }) => `${local}/${prefixlen}`)
}

/** Of these addresses the device has one in the end, or none. */
function planAddress(name: string, present: readonly string[], address: string | null): string[] {
  const old = present.filter((other) => other !== address)
  return [
    ...(address === null || present.includes(address) ? [] : [addAddress(address, name)]),
    ...old.map((other) => `address delete ${other} dev ${name}`),
  ]
}

/**
 * Says what would keep `ensureKernelDevice` from working, changing nothing. The port is tried only where the kernel has
 * no VXLAN device: those of one port share it.
 * @throws FlanneletteError `device-foreign`, `device-busy`, `port-busy`, `host-command`
 */
export async function probeKernelDevice(local: VtepOutline, udpChecksum: boolean, where: InNamespace): Promise<void> {
  const link = await readLink(local.deviceName, where)
  if (link !== null) {
    const differences = deviceDifferences(link, local, udpChecksum)
    if (differences.length > 0) await refuseUnlessOurs(local.deviceName, link, differences, where)
  }
  const sharing = await showJson<LinkInfo>('ip', ['link', 'show', 'type', 'vxlan'], where)
  if (where.namespace === undefined && sharing.length === 0) await tryPort(local)
}

/** @throws FlanneletteError `port-busy` */
async function tryPort(local: VtepOutline): Promise<void> {
  const socket = isOverIpv6(local) ? createSocket({ type: 'udp6', ipv6Only: true }) : createSocket('udp4')
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject)
      socket.bind({ port: local.port, exclusive: true }, resolve)
    })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') throw portBusy(local, error)
  } finally {
    socket.close()
  }
}

function portBusy(local: VtepOutline, cause: unknown): FlanneletteError {
  return new FlanneletteError('port-busy', `UDP port ${local.port} is in use by another program`, {
    remedy: `find it with: ss -lunp 'sport = :${local.port}'`,
    cause,
  })
}

/**
 * Makes or adopts `flannel.<VNI>`, and puts right what is not as it should be. A device of ours that does not fit is made
 * anew; a fitting one that flannel left is adopted; anything else is refused. Nothing half-made stays behind. Resolves
 * with what was done: nothing, or why the device was made anew, or the commands that put it right.
 * @throws FlanneletteError `device-foreign`, `port-busy`, `not-permitted`, `host-command`
 */
export async function ensureKernelDevice(
  local: LocalVtep,
  udpChecksum: boolean,
  where: InNamespace,
): Promise<DeviceWork> {
  const name = local.deviceName
  let link = await readLink(name, where)
  const differences = link === null ? [] : deviceDifferences(link, local, udpChecksum)
  if (link !== null && differences.length > 0) {
    await refuseUnlessOurs(name, link, differences, where)
    await batch('ip', [`link delete dev ${name}`], where)
    link = null
  }
  const plan = planDevice(await fitting(local, link, where), link, udpChecksum, kernelHasIpv6())
  try {
    await batch('ip', plan, where)
    if (local.ipv6Network !== null) await allowIpv6(name, where)
    const addresses = planAddresses(local, link)
    await batch('ip', addresses, where)
    plan.push(...addresses)
  } catch (error) {
    if (link === null) await batch('ip', [`link delete dev ${name}`], where).catch(() => {})
    throw explainDeviceFailure(error, local)
  }
  await quietRouterAdvertisements(name, where)
  if (differences.length > 0) return { what: 'made-anew', why: differences }
  if (link === null) return { what: 'made', why: [] }
  return plan.length === 0 ? { what: 'kept', why: [] } : { what: 'mended', why: plan }
}

/** What came of a look at the device. */
export interface DeviceWork {
  readonly what: 'kept' | 'mended' | 'made' | 'made-anew'
  /** What a device was made anew for, or the commands that mended it. */
  readonly why: readonly string[]
}

/**
 * The kernel makes no VXLAN device larger than its lower one leaves room for: it cuts a new one down without a word, and
 * refuses to change another. A config that asks for more has been warned of.
 */
async function fitting(local: LocalVtep, link: LinkInfo | null, where: InNamespace): Promise<LocalVtep> {
  if (link === null || link.mtu === local.mtuBytes) return local
  const lower = await readLink(local.underlayInterface, where)
  const overhead = isOverIpv6(local) ? WIDE_OVERHEAD_BYTES : OVERHEAD_BYTES
  const mostBytes = (lower?.mtu ?? Number.POSITIVE_INFINITY) - overhead.vxlan
  return { ...local, mtuBytes: Math.min(local.mtuBytes, mostBytes) }
}

/** Of ours is also the TUN of a former run, unless a process holds it. */
async function refuseUnlessOurs(name: string, link: LinkInfo, differences: string[], where: InNamespace) {
  const device = await inspectOverlayDevice(name, where)
  if (device.kind === 'ours' && isAttached(device.link)) {
    throw new FlanneletteError('device-busy', `${name} is held by another process`, {
      remedy: 'is another flannelette running here? Stop it first, or use another VNI',
    })
  }
  if (link.ifalias === DEVICE_ALIAS || device.kind !== 'foreign') return
  throw new FlanneletteError(
    'device-foreign',
    `${name} is ${device.what} that is not ours (${differences.join('; ')})`,
    {
      remedy: `remove it if nothing needs it: ${device.removeCommand}`,
    },
  )
}

/** The kernel's short answers in words that say what to do. */
export function explainDeviceFailure(error: unknown, local: VtepOutline): unknown {
  if (!(error instanceof FlanneletteError)) return error
  if (/Address already in use/.test(error.message)) return portBusy(local, error)
  if (/VXLAN device with the specified VNI already exists|File exists/.test(error.message)) {
    return new FlanneletteError('device-foreign', `another VXLAN device already serves VNI ${local.vni}`, {
      remedy: 'find it with: ip -d link show type vxlan',
      cause: error,
    })
  }
  if (/Unknown device type|not supported/i.test(error.message)) {
    return new FlanneletteError('host-command', 'this kernel has no vxlan device', {
      remedy: 'load it with `modprobe vxlan`, or use --dataplane userspace, which needs none',
      cause: error,
    })
  }
  return error
}
