// From the kernel's VTEP of a former run to a TUN of the same name. Device and port are the VTEP's until it is deleted,
// and it goes on forwarding without any daemon; so it stays until the start is sure of all else.
import { FlanneletteError } from '../errors.ts'
import type { VtepOutline } from '../host/dataplane.ts'
import { batch, type LinkInfo, showJson } from '../host/ip.ts'
import { DEVICE_ALIAS } from '../host/route-protocol.ts'
import type { Log } from '../log.ts'

/** Opened in the device's place where its name is taken until the start; gone when it is closed. */
export const REHEARSAL_DEVICE = 'flannel.try'

/**
 * Whether the kernel's VTEP stands in the way that a former run of ours has made.
 * @throws FlanneletteError `port-busy` when the port would stay taken without it, `host-command`
 */
export async function findOwnVtep({ deviceName, port, underlayAddress }: VtepOutline): Promise<boolean> {
  const vteps = await showJson<LinkInfo>('ip', ['link', 'show', 'type', 'vxlan'])
  if (!vteps.some(({ ifname, ifalias }) => ifname === deviceName && ifalias === DEVICE_ALIAS)) return false
  const overIpv6 = typeof underlayAddress === 'bigint'
  const other = vteps.find(({ ifname, linkinfo }) => {
    const { port: taken, local6 } = linkinfo?.info_data ?? {}
    // Of each family the kernel has a socket of its own.
    return ifname !== deviceName && taken === port && (local6 !== undefined) === overIpv6
  })
  if (other === undefined) return true
  throw new FlanneletteError('port-busy', `UDP port ${port} is also that of the kernel vxlan device ${other.ifname}`, {
    remedy: 'use --dataplane kernel, which can share it, or another Port',
  })
}

/** Takes it away, with its routes and entries. @throws FlanneletteError `host-command` */
export async function removeOwnVtep(deviceName: string, log: Log): Promise<void> {
  const message = `${deviceName} was the kernel's VTEP and becomes a TUN: packets of a moment are lost`
  log.warn('device-recreated', message)
  await batch('ip', [`link delete dev ${deviceName}`])
}
