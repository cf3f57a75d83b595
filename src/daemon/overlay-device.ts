// The overlay device of the userspace dataplane: opened queue by queue, dressed with address, MTU and route, looked at.
import { readFileSync } from 'node:fs'
import {
  closeDescriptor,
  errno,
  type OpenTun,
  openOverlayDevice,
  readDeviceMtu,
  type TunFailure,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { networkAdminMissing } from '../host/capability.ts'
import type { LocalVtep, VtepOutline } from '../host/dataplane.ts'
import { configureOverlayLink, inspectOverlayDevice, isAttached, removeOverlayLink } from '../host/overlay-link.ts'
import { hasIpv6Address, hasIpv6Route, hasRoute } from '../host/proc-route.ts'
import type { Log } from '../log.ts'

export interface DeviceWishes {
  /** Queues, one for each worker. */
  readonly workers: number
  /** Whether packets come with virtio-net headers. */
  readonly header: boolean
  /** Whether super-packets and open checksums may cross the device. */
  readonly tunOffload: boolean
}

/** As the kernel would say it of a device with one queue; of several it lets anybody take one more. */
const IN_USE: TunFailure = { step: 'attach', errno: errno.EBUSY }

/** Makes or finds the device. @throws FlanneletteError device-foreign, device-busy, tun-unavailable, not-permitted */
export async function openDevice(deviceName: string, wishes: DeviceWishes, log: Log): Promise<readonly OpenTun[]> {
  const present = await inspectOverlayDevice(deviceName)
  if (present.kind === 'foreign') {
    throw new FlanneletteError('device-foreign', `${deviceName} is already there: ${present.what}`, {
      remedy: `remove it with "${present.removeCommand}" if nothing needs it`,
    })
  }
  const isInUse = present.kind === 'ours' && isAttached(present.link)
  const opened = isInUse ? IN_USE : await openQueues(deviceName, wishes, log)
  if ('step' in opened) throw tunError(deviceName, opened)
  return opened
}

/**
 * A device that a former run made with one queue cannot have several, nor the other way round: it is made anew then.
 */
async function openQueues(deviceName: string, wishes: DeviceWishes, log: Log): Promise<OpenTun[] | TunFailure> {
  const { workers, header, tunOffload } = wishes
  const opened = await openOverlayDevice(deviceName, workers, { header, offloads: tunOffload })
  if (!('step' in opened) || opened.step !== 'attach' || opened.errno !== errno.EINVAL) return opened
  const why = `${deviceName} was made ${workers > 1 ? 'for one worker' : 'for several workers'}`
  log.warn('device-recreated', `${why} and is made anew: packets of a moment are lost`)
  await removeOverlayLink(deviceName)
  return openOverlayDevice(deviceName, workers, { header, offloads: tunOffload })
}

/** Lets go of the queues. A device that is to outlive them was told so before. */
export async function closeAll(tuns: readonly OpenTun[]): Promise<void> {
  for (const { fd } of tuns) await closeDescriptor(fd)
}

/** Addresses, MTU and routes. */
export function dress(local: LocalVtep): Promise<void> {
  const { deviceName, mtuBytes, network, subnet, ipv6Network, ipv6Subnet } = local
  const overlayAddress = subnet?.address ?? null
  const ipv6 =
    ipv6Network === null || ipv6Subnet === null ? null : { address: ipv6Subnet.address, network: ipv6Network }
  return configureOverlayLink({ name: deviceName, overlayAddress, mtuBytes, network, ipv6 })
}

/** Whether the device is as a start leaves it, as far as a look that costs next to nothing can tell. */
export async function isDressed(local: LocalVtep): Promise<boolean> {
  return leadsInto(local) && (await readDeviceMtu(local.deviceName)) === local.mtuBytes
}

/**
 * Whether the kernel sends the networks' packets into the device: not when it is down, or has lost its IPv4 address. An
 * IPv6 route outlives its address, so that one is looked for as well.
 */
function leadsInto({ network, ipv6Network, ipv6Subnet, deviceName }: LocalVtep): boolean {
  const list = (name: string) => readFileSync(`/proc/thread-self/net/${name}`, 'latin1')
  if (network !== null && !hasRoute(list('route'), network, deviceName)) return false
  if (ipv6Network === null || ipv6Subnet === null) return true
  return (
    hasIpv6Route(list('ipv6_route'), ipv6Network, deviceName) &&
    hasIpv6Address(list('if_inet6'), ipv6Subnet.address, deviceName)
  )
}

/** Packets that the device's full queue has lost: before we could read them, so only the kernel knows (proc(5)). */
export function transmitDropped(deviceName: string): number {
  const line = readFileSync('/proc/thread-self/net/dev', 'utf8')
    .split('\n')
    .find((candidate) => candidate.trimStart().startsWith(`${deviceName}:`))
  // After the name: eight receive columns, then bytes, packets, errs, drop of the transmit side.
  const columns = line?.split(':')[1]?.trim().split(/\s+/) ?? []
  return Number(columns[11] ?? 0)
}

function tunError(name: string, failure: TunFailure): FlanneletteError {
  if (failure.step === 'open' && (failure.errno === errno.EACCES || failure.errno === errno.EPERM)) {
    return new FlanneletteError('not-permitted', `/dev/net/tun may not be opened (errno ${failure.errno})`, {
      remedy: 'run as root, and give a container the device: --device /dev/net/tun --cap-add NET_ADMIN',
    })
  }
  if (failure.step === 'open') {
    return new FlanneletteError('tun-unavailable', `/dev/net/tun cannot be opened (errno ${failure.errno})`, {
      remedy: 'load the module with "modprobe tun", or make the node with "mknod /dev/net/tun c 10 200"',
    })
  }
  if (failure.errno === errno.EBUSY) {
    return new FlanneletteError('device-busy', `${name} is held by another process`, {
      remedy: 'is another flannelette running here? Stop it first, or use another VNI',
    })
  }
  if (failure.errno === errno.EPERM) {
    return networkAdminMissing(name)
  }
  return new FlanneletteError('tun-unavailable', `${name} cannot be made (${failure.step}, errno ${failure.errno})`, {
    remedy: `remove a left-over device with "ip link delete ${name}"`,
  })
}

/** @throws FlanneletteError `config-invalid`: what comes out of a TUN has lost its mark */
export function refuseGroupPolicy({ groupPolicy }: VtepOutline): void {
  if (groupPolicy !== true) return
  throw new FlanneletteError('config-invalid', 'Backend.GBP is true, and only the kernel sees the marks of packets', {
    remedy: 'use --dataplane kernel on every node, or set GBP to false on all',
  })
}
