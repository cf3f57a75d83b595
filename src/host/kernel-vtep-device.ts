// The kernel's own VXLAN device: makes it, keeps a compatible one, refuses somebody else's. Pure planning first, then
// the one function that acts.
import { createSocket } from 'node:dgram'
import { formatAddress, formatIpv4, formatMac } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { CommandOptions } from './command.ts'
import type { LocalVtep, VtepOutline } from './dataplane.ts'
import { batch, type LinkInfo, readLink, showJson } from './ip.ts'
import { addAddress, addressesIn, allowIpv6, inspectOverlayDevice, quietRouterAdvertisements } from './overlay-link.ts'
import { DEVICE_ALIAS } from './route-protocol.ts'
import { kernelHasIpv6 } from './sysctl.ts'

type InNamespace = Pick<CommandOptions, 'namespace'>

/** Why an existing VXLAN device cannot be used as it is; empty when it can. flannel compares the same properties. */
export function deviceDifferences(link: LinkInfo, local: VtepOutline, udpChecksum: boolean): string[] {
  const data = link.linkinfo?.info_data ?? {}
  const differences: string[] = []
  const compare = (what: string, has: unknown, wanted: unknown) => {
    if (has !== wanted) differences.push(`${what} ${String(has)}, wanted ${String(wanted)}`)
  }
  compare('kind', link.linkinfo?.info_kind, 'vxlan')
  compare('VNI', data.id, local.vni)
  compare('port', data.port, local.port)
  compare('local address', data.local, formatIpv4(local.underlayAddress))
  compare('lower device', data.link, local.underlayInterface)
  compare('learning', data.learning, false)
  compare('UDP checksum', data.udp_csum, udpChecksum)
  return differences
}

/** Commands that make the device, or put right MAC, MTU and alias of one that is there. */
export function planDevice(local: LocalVtep, link: LinkInfo | null, udpChecksum: boolean, hasIpv6 = true): string[] {
  const name = local.deviceName
  const mac = formatMac(local.mac)
  const plan: string[] = []
  if (link === null) {
    const checksum = udpChecksum ? 'udpcsum' : 'noudpcsum'
    plan.push(
      `link add ${name} address ${mac} mtu ${local.mtuBytes} type vxlan id ${local.vni} dstport ${local.port} ` +
        `local ${formatIpv4(local.underlayAddress)} dev ${local.underlayInterface} nolearning ${checksum}`,
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

/** Commands that give the device an address of each family, and bring it up. */
export function planAddresses(local: LocalVtep, link: LinkInfo | null): string[] {
  const { deviceName: name, network, overlayAddress, ipv6Subnet } = local
  const ipv6 = ipv6Subnet === null ? null : `${formatAddress(ipv6Subnet.address)}/128`
  return [
    ...planAddress(name, addressesIn(link, network), `${formatIpv4(overlayAddress)}/32`),
    // As flannel has it: all but link-local ones.
    ...planAddress(name, globalIpv6Addresses(link), ipv6),
    `link set dev ${name} up`,
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
 * @throws FlanneletteError `device-foreign`, `port-busy`, `host-command`
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
  const socket = createSocket('udp4')
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
 * Makes or adopts `flannel.<VNI>`. A device of ours that does not fit is made anew; a fitting one that flannel left is
 * adopted; anything else is refused. Nothing half-made stays behind.
 * @throws FlanneletteError `device-foreign`, `port-busy`, `not-permitted`, `host-command`
 */
export async function ensureKernelDevice(local: LocalVtep, udpChecksum: boolean, where: InNamespace): Promise<void> {
  const name = local.deviceName
  let link = await readLink(name, where)
  if (link !== null) {
    const differences = deviceDifferences(link, local, udpChecksum)
    if (differences.length > 0) {
      await refuseUnlessOurs(name, link, differences, where)
      await batch('ip', [`link delete dev ${name}`], where)
      link = null
    }
  }
  try {
    await batch('ip', planDevice(local, link, udpChecksum, kernelHasIpv6()), where)
    if (local.ipv6Network !== null) await allowIpv6(name, where)
    await batch('ip', planAddresses(local, link), where)
  } catch (error) {
    if (link === null) await batch('ip', [`link delete dev ${name}`], where).catch(() => {})
    throw explainDeviceFailure(error, local)
  }
  await quietRouterAdvertisements(name, where)
}

async function refuseUnlessOurs(name: string, link: LinkInfo, differences: string[], where: InNamespace) {
  if (link.ifalias === DEVICE_ALIAS) return
  const device = await inspectOverlayDevice(name, where)
  if (device.kind !== 'foreign') return
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
